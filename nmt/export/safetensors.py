"""nmt's own format: a run without what only training needs, in safetensors, which many tools read."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import save_file

from nmt import checkpoint
from nmt.checkpoint import META, WEIGHTS, WITH_INT8, Loaded
from nmt.errors import ConfigError, suggest
from nmt.export.engine import Engine, copy_run_files, searching
from nmt.int8 import SCALE, rounded
from nmt.paths import sha256

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "int8": torch.bfloat16}
"""Type of each kind of weights; int8 has matrices of 8-bit numbers, and everything else in bf16."""


def export(loaded: Loaded, folder: Path, *, weights: str = "fp32") -> None:
    """Write a run with one checkpoint into `folder`, which stands; `nmt translate --model` takes it as it is.

    Args:
        loaded: the model.
        folder: where to.
        weights: fp32; bf16 for half the size and weights rounded to 8 bits; int8 for a quarter, with 8 bits for the
            largest weight of a row and fewer for smaller ones (`nmt.int8`). They are computed with in any type.

    Raises:
        ConfigError: no such type of weights.
    """
    if weights not in DTYPES:
        raise ConfigError(f"export 'safetensors': unknown weights '{weights}'", suggest(weights, DTYPES))
    copy_run_files(loaded, folder)
    meta = checkpoint.read_meta(loaded.checkpoint)
    step = folder / f"step-{meta['progress']['step']:06d}"  # for an average too: it is the only one here
    step.mkdir()
    tensors = {name: t.contiguous() for name, t in loaded.model.state_dict().items()}
    if weights == "int8":
        tensors = rounded(tensors)
        meta["format"] = WITH_INT8
    small = {
        name: t if t.dtype == torch.int8 or name.endswith(SCALE) else t.to(DTYPES[weights])
        for name, t in tensors.items()
    }
    save_file(small, step / WEIGHTS)
    meta["sha256"] = {WEIGHTS: sha256(step / WEIGHTS)}
    (step / META).write_text(json.dumps(meta, indent=2) + "\n", encoding="utf-8")


def engine(folder: Path) -> Engine:
    """Return a translator of what `export` wrote."""
    loaded = checkpoint.load(folder)
    return searching(loaded.model, loaded.tokenizer, loaded.model.most_positions)
