"""A small experiment on generated text, shared by tests that train in-process."""

from __future__ import annotations

import random
from pathlib import Path

from nmt.config import Config, config_io

WORDS = "ba be bi bo bu da de di do du ga ge gi go gu".split()


def copy_text(directory: Path, pairs: int, longest: int = 6, split: str = "train", seed: int = 0) -> None:
    """Write aligned files whose target is the source: the copy task."""
    rng = random.Random(f"{split} {seed}")
    lines = ["".join(f"{' '.join(rng.choices(WORDS, k=rng.randint(1, longest)))}\n") for _ in range(pairs)]
    for code in ("en", "de"):
        (directory / f"{split}.{code}").write_text("".join(lines), encoding="utf-8")


def config(directory: Path, *changes: str) -> Config:
    """Return a tiny config for the copy task; its data is written to `directory` if missing."""
    if not (directory / "train.en").exists():
        copy_text(directory, 300)
        copy_text(directory, 20, split="valid")
    corpus = f"data.train=files(train={str(directory / 'train')!r}, valid={str(directory / 'valid')!r}, hold_out=False)"
    tiny = [
        corpus, "data.clean=[normalize]", "tokenizer.vocab_size=300", "model.dim=16",
        "model.heads=2", "model.ffn_dim=32",
        "model.encoder_layers=1", "model.decoder_layers=1", "train.steps=12", "train.valid_every=6",
        "train.batch_tokens=256", "train.max_length=64", "train.log_every=1", "train.source_noise=[]",
    ]  # fmt: skip
    return config_io.load(None, [*tiny, *changes])
