"""A small experiment on generated text, shared by tests that train in-process, and readers of its
results."""

from __future__ import annotations

import json
import random
from pathlib import Path

import torch
from safetensors.torch import load_file

from nmt.core.config import Config, config_io
from nmt.runs import checkpoint

WORDS = "ba be bi bo bu da de di do du ga ge gi go gu".split()


def copy_text(
    directory: Path,
    pairs: int,
    longest: int = 6,
    split: str = "train",
    seed: int = 0,
    prefix: str = "",
) -> None:
    """Write aligned files whose target is the source: the copy task."""
    rng = random.Random(f"{split} {seed}")
    lines = [
        f"{prefix}{' '.join(rng.choices(WORDS, k=rng.randint(1, longest)))}\n" for _ in range(pairs)
    ]
    for code in ("en", "de"):
        (directory / f"{split}.{code}").write_text("".join(lines), encoding="utf-8")


def config(directory: Path, *changes: str) -> Config:
    """Return a tiny config for the copy task; its data is written to `directory` if missing."""
    if not (directory / "train.en").exists():
        copy_text(directory, 300)
        copy_text(directory, 20, split="valid")
    corpus = (
        f"data.train=files(train={str(directory / 'train')!r}, valid={str(directory / 'valid')!r},"
        " hold_out=False)"
    )
    tiny = [
        corpus,
        "data.clean=[normalize]",
        "tokenizer.vocab_size=300",
        "model.dim=16",
        "model.heads=2",
        "model.ffn_dim=32",
        "model.encoder_layers=1",
        "model.decoder_layers=1",
        "train.steps=12",
        "train.valid_every=6",
        "train.batch_tokens=256",
        "train.max_length=64",
        "train.log_every=1",
        "train.source_noise=[]",
    ]
    return config_io.load(None, [*tiny, *changes])


def metrics(run: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def losses(run: Path) -> dict[int, float]:
    return {int(line["step"]): line["loss"] for line in metrics(run) if "loss" in line}


def weights(run: Path) -> dict[str, torch.Tensor]:
    """Return the weights of the latest checkpoint."""
    return load_file(checkpoint.checkpoints(run)[-1] / checkpoint.WEIGHTS)


def same_weights(one: Path, other: Path) -> bool:
    a, b = weights(one), weights(other)
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)
