"""The format of nmt itself: a run with one checkpoint and without training state, with weights in
safetensors."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from nmt.core.errors import ConfigError, suggest
from nmt.core.paths import sha256
from nmt.engines.pytorch import TorchModel
from nmt.export.common import Translate, copy_run_files, greedy_translator
from nmt.models import discovery
from nmt.runs import checkpoint
from nmt.runs.checkpoint import META, WEIGHTS
from nmt.runs.model_files import LoadedModel
from nmt.runs.quantization import SCALE, quantize, read_multipliers, write_multipliers
from nmt.search.shortlist import Shortlist
from nmt.translation import confidence

Weights = Mapping[str, Tensor]
WEIGHT_TYPES: dict[str, Callable[[Weights], Weights]] = {
    "fp32": lambda weights: {name: t.float().contiguous() for name, t in weights.items()},
    "bf16": lambda weights: {
        name: t.to(torch.bfloat16).contiguous() for name, t in weights.items()
    },
    "int8": lambda weights: {
        name: torch.from_numpy(w)
        if w.ndim == 2 or name.endswith(SCALE)
        else torch.from_numpy(w).bfloat16()
        for name, w in quantize(
            {name: t.float().cpu().numpy() for name, t in weights.items()}
        ).items()
    },
}
"""Functions that convert weights to each type."""


def export(loaded: LoadedModel, directory: Path, *, weights: str = "fp32") -> None:
    """Write a run with one checkpoint into an existing directory, for `nmt translate --model`.

    `weights` are fp32; bf16 for half the size; int8 for a quarter (`nmt.runs.quantization`). The
    precision of inference does not depend on it. A calibrated model, such as one of Firefox, keeps
    its own int8. Its multipliers, and the shortlist of a model, belong to the export.

    Raises:
        ConfigError: the type of weights is unknown.
    """
    if weights not in WEIGHT_TYPES:
        raise ConfigError(
            f"export 'safetensors': unknown weights '{weights}'", suggest(weights, WEIGHT_TYPES)
        )
    copy_run_files(loaded, directory)
    meta = checkpoint.read_meta(loaded.checkpoint)
    step = directory / f"step-{meta['progress']['step']:06d}"  # also for an average
    step.mkdir()
    multipliers = read_multipliers(loaded.checkpoint)
    if multipliers is None:
        tensors = WEIGHT_TYPES[weights](loaded.model.state_dict())
    else:  # another scale would change its integers
        matrices = checkpoint.read_stored_weights(loaded.checkpoint)
        tensors = {name: torch.from_numpy(array) for name, array in matrices.items()}
        write_multipliers(step, multipliers)
    save_file(dict(tensors), step / WEIGHTS)
    if shortlist := Shortlist.find(loaded.run, loaded.tokenizer):
        shortlist.save(directory)
    meta["sha256"] = {WEIGHTS: sha256(step / WEIGHTS)}
    confidence.copy(loaded, directory, step / WEIGHTS)
    (step / META).write_text(json.dumps(meta, indent=2) + "\n", encoding="utf-8")


def load(directory: Path) -> Translate:
    """Return a function that translates with a directory written by `export`."""
    loaded = discovery.load(directory)
    return greedy_translator(
        TorchModel([loaded.model]),
        loaded.tokenizer,
        loaded.model.max_positions,
        source_eos=loaded.config.model.source_eos,
        shortlist=Shortlist.find(directory, loaded.tokenizer),
    )
