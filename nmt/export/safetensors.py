"""nmt's own format: a run without what only training needs, in safetensors, which many tools read."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from nmt.errors import ConfigError, suggest
from nmt.export.common import Engine, copy_run_files, searching
from nmt.inference.pytorch import TorchModel
from nmt.paths import sha256
from nmt.runs import checkpoint, discovery
from nmt.runs.checkpoint import META, WEIGHTS
from nmt.runs.discovery import LoadedModel
from nmt.runs.quantization import SCALE, quantize

Weights = Mapping[str, Tensor]
KINDS: dict[str, Callable[[Weights], Weights]] = {
    "fp32": lambda weights: {name: t.float().contiguous() for name, t in weights.items()},
    "bf16": lambda weights: {name: t.to(torch.bfloat16).contiguous() for name, t in weights.items()},
    "int8": lambda weights: {
        name: torch.from_numpy(w) if w.ndim == 2 or name.endswith(SCALE) else torch.from_numpy(w).bfloat16()
        for name, w in quantize({name: t.float().cpu().numpy() for name, t in weights.items()}).items()
    },
}
"""How weights are written."""


def export(loaded: LoadedModel, folder: Path, *, weights: str = "fp32") -> None:
    """Write a run with one checkpoint into `folder`, which stands; `nmt translate --model` takes it as it is.

    Args:
        loaded: the model.
        folder: where to.
        weights: fp32; bf16 for half the size and weights rounded to 8 bits; int8 for a quarter, with 8 bits for the
            largest weight of a row and fewer for smaller ones (`nmt.quantization`). They are computed with in any type.

    Raises:
        ConfigError: no such type of weights.
    """
    if weights not in KINDS:
        raise ConfigError(f"export 'safetensors': unknown weights '{weights}'", suggest(weights, KINDS))
    copy_run_files(loaded, folder)
    meta = checkpoint.read_meta(loaded.checkpoint)
    step = folder / f"step-{meta['progress']['step']:06d}"  # for an average too: it is the only one here
    step.mkdir()
    save_file(dict(KINDS[weights](loaded.model.state_dict())), step / WEIGHTS)
    meta["sha256"] = {WEIGHTS: sha256(step / WEIGHTS)}
    (step / META).write_text(json.dumps(meta, indent=2) + "\n", encoding="utf-8")


def engine(folder: Path) -> Engine:
    """Return a translator of what `export` wrote."""
    loaded = discovery.load(folder)
    return searching(TorchModel([loaded.model]), loaded.tokenizer, loaded.model.max_positions)
