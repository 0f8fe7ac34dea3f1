"""A run's folder: what is saved, how it is found again, and why a broken save can never be loaded.

    runs/NAME/config.yaml           the resolved configuration
    runs/NAME/spm.model             the tokenizer; every checkpoint names its checksum
    runs/NAME/data.json             what was learned from: corpora with checksums, pairs, what cleaning dropped
    runs/NAME/metrics.jsonl         the training log
    runs/NAME/.lock                 held by the process that trains here
    runs/NAME/step-000500/          one checkpoint
        model.safetensors           the weights that translate
        training.safetensors        optimizer moments, random state, raw weights where an average translates
        meta.json                   progress, scores, checksums of the two files
    runs/NAME/average-5/            the mean of the five latest checkpoints' weights

A checkpoint is written beside and renamed into place, so an incomplete one never has the final name; the
checksums find what a disk or a copy damaged later. "Latest" and "best" are computed from the `meta.json`s.
"""

from __future__ import annotations

import json
import math
import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, deserialize

from nmt import __version__
from nmt.console import log
from nmt.errors import CheckpointError, NewerCheckpointError
from nmt.paths import new_directory, sha256, write_text
from nmt.runs.quantization import Arrays, dequantize

if TYPE_CHECKING:  # what only translates needs no PyTorch
    from torch import Tensor


T = TypeVar("T")
FORMAT = 1
"""Version of the run directory's layout. A model from a later version is rejected by name."""
OTHER, OWN = "use another checkpoint of the run", "put the run's own file back"
WEIGHTS, TRAINING, META = "model.safetensors", "training.safetensors", "meta.json"


@dataclass
class Progress:
    """Where training stands: with the tensors of a checkpoint, everything that resuming needs."""

    step: int = 0
    epoch: int = 0
    batches_in_epoch: int = 0
    """Batches of the epoch learned from, over all ranks: their number may change when a run is resumed."""
    seconds: float = 0.0
    """Time spent in training, over all sessions."""
    tokens: int = 0
    """Target tokens learned from."""
    validations_since_best: int = 0
    """Validations since the best one."""
    best: float | None = None
    """Best value of `train.best_metric` so far; higher is better (a loss is negated)."""
    precision: str = ""
    """Type of the activations, which a resumed training keeps."""
    scores: dict[str, float] = field(default_factory=dict)
    """Results of the validation at this step; empty where none was due."""


def save(
    run: Path, progress: Progress, weights: Mapping[str, Tensor], training: Mapping[str, Tensor], tokenizer: str
) -> Path:
    """Write a checkpoint whole or not at all and return its folder.

    Raises:
        CheckpointError: the disk is full or not writable; older checkpoints stand as they were.
    """
    return _write(run / f"step-{progress.step:06d}", progress, tokenizer, {WEIGHTS: weights, TRAINING: training})


def _write(folder: Path, progress: Progress, tokenizer: str, files: Mapping[str, Mapping[str, Tensor]]) -> Path:
    from safetensors.torch import save_file

    try:
        with new_directory(folder) as work:
            for name, tensors in files.items():
                save_file({key: t.detach().cpu().contiguous() for key, t in tensors.items()}, work / name)
            meta = {
                "format": FORMAT,
                "nmt": __version__,
                "tokenizer": tokenizer,
                "progress": asdict(progress),
                "sha256": {name: sha256(work / name) for name in files},
            }
            (work / META).write_text(json.dumps(meta, indent=2) + "\n", encoding="utf-8")
    except (OSError, SafetensorError) as error:
        raise CheckpointError(
            f"cannot save {folder}: {getattr(error, 'strerror', None) or error}",
            "free some space, then go on with --resume; a checkpoint before it is intact",
        ) from None
    return folder


def average(run: Path, last: int) -> Path:
    """Average the weights of the `last` latest checkpoints into the folder `average-LAST` of the run (Vaswani et al.
    2017, section 6.1: the paper's base models average 5).

    Raises:
        CheckpointError: there are fewer, or one is damaged.
    """
    found = checkpoints(run)[-last:]
    if len(found) < last:
        raise CheckpointError(
            f"{run} holds {len(found)} checkpoints, not {last}", f"ask for fewer, or train with train.keep_last={last}"
        )
    import torch

    total: Arrays = {}
    for path in found:  # one at a time: a big model's checkpoints need not fit into memory together
        for name, weight in read_weights(path).items():
            total[name] = total.get(name, np.zeros(weight.shape)) + weight
    weights = {name: torch.from_numpy((weight / last).astype(np.float32)) for name, weight in total.items()}
    progress = replace(read_progress(found[-1]), scores={}, validations_since_best=0)
    return _write(run / f"average-{last}", progress, str(read_meta(found[-1])["tokenizer"]), {WEIGHTS: weights})


def write_scores(checkpoint: Path, scores: dict[str, float]) -> None:
    """Write a validation's results into a checkpoint that was made without one."""
    meta = read_meta(checkpoint)
    meta["progress"]["scores"] = scores
    write_text(checkpoint / META, json.dumps(meta, indent=2) + "\n")


def checkpoints(run: Path) -> list[Path]:
    """List a run's complete checkpoints, oldest first."""
    found = (path for path in run.glob("step-*") if re.fullmatch(r"step-\d+", path.name) and (path / META).is_file())
    return sorted(found, key=_step)


def _step(checkpoint: Path) -> int:
    return int(checkpoint.name.removeprefix("step-"))


def best(run: Path) -> Path | None:
    """Return the checkpoint or average with the best validation, else the latest, else None."""
    found = checkpoints(run)
    judged = [path for path in found if _was_best(path)]
    chosen = judged[-1] if judged else found[-1] if found else None
    for path in run.glob("average-*"):
        if chosen and (path / META).is_file() and _quality(path) > _quality(chosen):
            chosen = path
    return chosen


def _quality(path: Path) -> float:
    try:
        return read_progress(path).scores.get("quality", -math.inf)
    except NewerCheckpointError:
        raise
    except CheckpointError:
        return -math.inf


def _was_best(path: Path) -> bool:
    try:
        progress = read_progress(path)
    except NewerCheckpointError:
        raise
    except CheckpointError:  # damaged: it must not take the others along
        return False
    return not progress.validations_since_best and progress.scores.get("quality", math.nan) == progress.best


def prune(run: Path, keep: int = 2, keep_best: int = 1) -> None:
    """Delete all checkpoints but the `keep` latest (two, so that one may turn out damaged) and the best ones."""
    found = checkpoints(run)
    by_quality = sorted(found, key=_quality)
    wanted = {best(run), *by_quality[-keep_best:], *found[-keep:]}
    for path in (*found, *run.glob(".step-*")):  # the latter were left by a save that was killed
        if path not in wanted:
            shutil.rmtree(path)


def read_meta(checkpoint: Path) -> dict[str, Any]:
    """Read a checkpoint's `meta.json`.

    Raises:
        NewerCheckpointError: a later version wrote it.
        CheckpointError: missing, or damaged.
    """
    try:
        meta: dict[str, Any] = json.loads((checkpoint / META).read_text(encoding="utf-8"))
        newer, version = meta["format"] > FORMAT, meta["nmt"]
        if not newer:  # what else a newer one holds is not for us to judge
            Progress(**meta["progress"])
            if missing := {"tokenizer", "sha256"} - meta.keys():
                raise KeyError(missing)
    except OSError as error:
        raise CheckpointError(f"cannot read {checkpoint / META}: {error.strerror}", OTHER) from None
    except (ValueError, KeyError, TypeError):
        raise CheckpointError(f"{checkpoint / META} is damaged", OTHER) from None
    if newer:
        raise NewerCheckpointError(f"{checkpoint} was written by a newer nmt ({version})", "upgrade nmt to use it")
    return meta


def read_progress(checkpoint: Path) -> Progress:
    """Read where training stood at a checkpoint."""
    return Progress(**read_meta(checkpoint)["progress"])


def read_tensors(checkpoint: Path, name: str) -> dict[str, Tensor]:
    """Load one of a checkpoint's two tensor files after comparing its checksum.

    Raises:
        CheckpointError: missing, cut or changed.
    """
    from safetensors.torch import load_file

    return _verified(checkpoint, name, load_file)


def read_weights(checkpoint: Path) -> Arrays:
    """Load a checkpoint's weights in float32, without PyTorch, after comparing their checksum.

    Raises:
        CheckpointError: missing, cut or changed.
    """

    read: Callable[[bytes], list[tuple[str, Mapping[str, Any]]]] = deserialize

    def load(path: Path) -> Arrays:
        return dequantize({name: _array(tensor) for name, tensor in read(path.read_bytes())})

    return _verified(checkpoint, WEIGHTS, load)


def _array(tensor: Mapping[str, Any]) -> NDArray[Any]:
    if tensor["dtype"] == "BF16":  # the upper half of a float32
        bits = np.frombuffer(tensor["data"], np.uint16).astype(np.uint32) << 16
        return bits.view(np.float32).reshape(tensor["shape"])
    kind = {"F32": np.float32, "F16": np.float16, "I8": np.int8}[tensor["dtype"]]
    array = np.frombuffer(tensor["data"], kind).reshape(tensor["shape"])
    return array.astype(np.float32) if tensor["dtype"] == "F16" else array


def _verified(checkpoint: Path, name: str, load: Callable[[Path], T]) -> T:
    path = checkpoint / name
    try:
        if sha256(path) != read_meta(checkpoint)["sha256"][name]:
            raise CheckpointError(f"{path} is damaged: its checksum differs", OTHER)
        return load(path)
    except OSError as error:
        raise CheckpointError(f"cannot read {path}: {error.strerror}", OTHER) from None
    except (SafetensorError, KeyError):
        raise CheckpointError(f"{path} is damaged", OTHER) from None


def quarantine(run: Path, after: Path) -> None:
    """Rename checkpoints newer than `after`, which are damaged, so that none is ever taken for the best or latest."""
    for path in checkpoints(run):
        if _step(path) > _step(after):
            path.rename(path.with_name(f"{path.name}.damaged"))


def read(checkpoint: Path) -> tuple[Path, dict[str, Tensor], dict[str, Tensor]]:
    """Return a checkpoint, its weights and its training state.

    Raises:
        CheckpointError: a file is missing, cut or changed.
    """
    return checkpoint, read_tensors(checkpoint, WEIGHTS), read_tensors(checkpoint, TRAINING)


def latest_intact(run: Path) -> tuple[Path, dict[str, Tensor], dict[str, Tensor]] | None:
    """Load the newest checkpoint that is whole, naming each damaged one that is skipped.

    Raises:
        CheckpointError: there are checkpoints, and all are damaged.
    """
    found = checkpoints(run)
    for path in reversed(found):
        try:
            return read(path)
        except NewerCheckpointError:  # to go on from an older one would replace it
            raise
        except CheckpointError as error:
            log(f"skipping {path.name}: {error.message}")
    if found:
        raise CheckpointError(f"every checkpoint of {run} is damaged", "train again under another --run")
    return None
