"""Saves and loads the checkpoints of a run directory; docs/reference/files.md lists all files.

    runs/NAME/step-000500/          a checkpoint
        model.safetensors           weights for inference
        training.safetensors        optimizer state, RNG states and, with EMA, the non-averaged
        weights meta.json                   progress, scores, checksums of the two files
    runs/NAME/average-5/            average of the weights of the five latest checkpoints

A checkpoint is written to a temporary directory and renamed, so an incomplete checkpoint never has
the final name. Checksums detect later damage. The latest and best checkpoints are determined from
the `meta.json` files.
"""

from __future__ import annotations

import json
import math
import re
import shlex
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np
from numpy.typing import NDArray

from nmt.core import untrusted_files
from nmt.core.console import log
from nmt.core.errors import CheckpointError, NewerCheckpointError
from nmt.core.paths import clean_up, new_directory, sha256, write_json
from nmt.core.untrusted_files import Count, JsonObject, Number, TensorEntry
from nmt.core.version import __version__
from nmt.runs.quantization import SCALE, Arrays, dequantize, scales

if TYPE_CHECKING:  # inference does not require PyTorch
    from torch import Tensor

FORMAT = 1
"""Version of the layout of run directories. Later versions are rejected."""
USE_ANOTHER, RESTORE_FILE = (
    "use another checkpoint of the run",
    "restore the original file of the run",
)
WEIGHTS, TRAINING, META = "model.safetensors", "training.safetensors", "meta.json"
CALIBRATION = "calibration.json"
OLD_POSITION = "batches_in_epoch"
"""Name of `Progress.batches_in_window` when epochs had one window."""


@dataclass
class Progress:
    """Training progress. Together with the tensors of a checkpoint, it suffices to resume
    training."""

    step: Count = 0
    epoch: Count = 0
    window: Count = 0
    """Window of this epoch; see `nmt.data.loader`."""
    batches_in_window: Count = 0
    """Completed batches of this window, over all ranks; a resumed run may have another number of
    ranks."""
    seconds: Number = 0.0
    """Training time over all sessions."""
    tokens: Count = 0
    """Target tokens trained on."""
    validations_since_best: Count = 0
    """Validations since the best one."""
    best: float | None = None
    """Best value of `train.best_metric` so far; higher is better (a loss is negated)."""
    best_loss: float | None = None
    """Validation loss with it: of checkpoints with equal scores, such as a BLEU of 0, the lower
    loss is better."""
    precision: str = ""
    """PyTorch name of the dtype of the activations; a resumed run keeps it unless --precision is
    given."""
    scores: dict[str, float] = field(default_factory=dict)
    """Scores of the validation at this step; empty if there was none."""
    batch_tokens: Count = 0
    """`train.batch_tokens` of the completed batches; 0 in checkpoints of older versions."""
    packed: bool = False
    """Whether the completed batches were packed."""


class Meta(TypedDict):
    """The content of `meta.json`."""

    tokenizer: str
    """SHA-256 of the tokenizer."""
    progress: Progress
    sha256: dict[str, str]
    """SHA-256 of each file."""


class Version(TypedDict):
    """The content of `meta.json` of any version of nmt."""

    format: int
    nmt: str


def save(
    run: Path,
    progress: Progress,
    weights: Mapping[str, Tensor],
    training: Mapping[str, Tensor],
    tokenizer: str,
) -> Path:
    """Save a checkpoint atomically and return its directory.

    Raises:
        CheckpointError: the disk is full or not writable; older checkpoints are unchanged.
    """
    return _write(
        run / f"step-{progress.step:06d}",
        progress,
        tokenizer,
        {WEIGHTS: weights, TRAINING: training},
        "free disk space and continue with --resume; earlier checkpoints are intact",
    )


def _write(
    path: Path,
    progress: Progress,
    tokenizer: str,
    files: Mapping[str, Mapping[str, Tensor]],
    hint: str = "free disk space",
    **more_meta: Any,
) -> Path:
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    try:
        with new_directory(path) as work:
            for name, tensors in files.items():
                save_file(
                    {key: t.detach().cpu().contiguous() for key, t in tensors.items()}, work / name
                )
            meta = {
                "format": FORMAT,
                "nmt": __version__,
                "tokenizer": tokenizer,
                "progress": asdict(progress),
                "sha256": {name: sha256(work / name) for name in files},
                **more_meta,
            }
            (work / META).write_text(json.dumps(meta, indent=2) + "\n", encoding="utf-8")
    except (OSError, SafetensorError) as error:
        raise CheckpointError(
            f"cannot save {path}: {getattr(error, 'strerror', None) or error}", hint
        ) from None
    return path


def average(run: Path, last: int) -> Path:
    """Average the weights of the `last` latest checkpoints and save them in `average-LAST` of the
    run.

    Vaswani et al. 2017, section 6.1, average the last 5 checkpoints of their base models.

    Raises:
        CheckpointError: the run has fewer validated checkpoints, or one is damaged.
    """
    latest = validated(run)[-last:]
    if len(latest) < last:
        is_run = bool(checkpoints(run))
        hint = (
            f"reduce --last, or train with train.keep_last={last}"
            if is_run
            else "choose a run (runs/NAME)"
        )
        raise CheckpointError(f"{run} has {len(latest)} validated checkpoints, not {last}", hint)
    average = run / f"average-{last}"
    averaged = [read_meta(path)["sha256"][WEIGHTS] for path in latest]
    # Keep the scores and the calibration of an intact average of the same checkpoints.
    with suppress(CheckpointError):
        if read_meta(average).get("averaged") == averaged and read_weights(average):
            return average
    weights = weighted_sum([(path, 1 / last) for path in latest])
    progress = replace(read_progress(latest[-1]), scores={}, validations_since_best=0)
    return _write(
        average,
        progress,
        str(read_meta(latest[-1])["tokenizer"]),
        {WEIGHTS: weights},
        averaged=averaged,
    )


def weighted_sum(shares: Sequence[tuple[Path, float]]) -> dict[str, Tensor]:
    """Return the sum of the weights of checkpoints, each multiplied by its share, in float32.

    Raises:
        CheckpointError: the weights are missing, damaged or have different names or shapes.
    """
    import torch

    total: dict[str, NDArray[np.float64]] = {}
    for path, share in shares:  # one at a time, to limit memory
        weights = read_weights(path)
        shapes = [
            {name: array.shape for name, array in arrays.items()}
            for arrays in (weights, total or weights)
        ]
        if shapes[0] != shapes[1]:
            raise CheckpointError(
                f"the weights of {shares[0][0]} and {path} have different shapes", USE_ANOTHER
            )
        for name, weight in weights.items():
            total[name] = total.get(name, 0.0) + share * weight.astype(np.float64)
    return {name: torch.from_numpy(weight.astype(np.float32)) for name, weight in total.items()}


def write_scores(checkpoint: Path, scores: dict[str, float]) -> None:
    """Add validation scores to a checkpoint that was saved without them."""
    meta = read_meta(checkpoint)
    meta["progress"]["scores"] = scores
    write_json(checkpoint / META, meta)


def checkpoints(run: Path) -> list[Path]:
    """Return the complete checkpoints of a run, oldest first."""
    clean_up(run)  # puts back a checkpoint that a killed process was replacing
    paths = [path for path in run.glob("step-*") if is_name(path.name) and (path / META).is_file()]
    return sorted(paths, key=_step)


def is_name(name: str) -> bool:
    """Return whether a directory of this name is a checkpoint: `step-N` with at least six digits,
    as `save` writes."""
    match = re.fullmatch(r"step-([0-9]{6,18})", name)
    return match is not None and name == f"step-{int(match[1]):06d}"


def validated(run: Path) -> list[Path]:
    """Return the checkpoints of a run that have validation scores, oldest first: those of a stop
    signal have none."""
    return [path for path in checkpoints(run) if _quality(path)[0] > -math.inf]


def _step(checkpoint: Path) -> int:
    return int(checkpoint.name.removeprefix("step-"))


def best(run: Path) -> Path | None:
    """Return the checkpoint or average with the best validation score, else the latest checkpoint,
    else None."""
    paths = checkpoints(run)
    best_paths = [path for path in paths if _was_best(path)]
    best_path = best_paths[-1] if best_paths else max(reversed(paths), key=_quality, default=None)
    for path in run.glob("average-*"):
        if best_path and (path / META).is_file() and _quality(path) > _quality(best_path):
            best_path = path
    return best_path


def hint_at_runs(directory: Path, otherwise: str) -> str:
    """Return a hint at the runs in a directory, such as that of a sweep; `otherwise` if it has
    none."""
    for path in sorted(directory.glob("[!.]*")):
        if (path / "config.yaml").is_file() and best(path):
            return f"name one of its runs, such as {shlex.quote(str(path))}"
    return otherwise


def _intact_progress(path: Path) -> Progress:
    """Return the progress of a checkpoint; if it is damaged, one without scores, so that it does
    not affect others."""
    try:
        return read_progress(path)
    except NewerCheckpointError:
        raise
    except CheckpointError:
        return Progress()


def _quality(path: Path) -> tuple[float, float]:
    """Return the value of `train.best_metric` and, for equal values, the negative validation
    loss."""
    scores = _intact_progress(path).scores
    return scores.get("best_metric_value", -math.inf), -scores.get("valid_loss", math.inf)


def _was_best(path: Path) -> bool:
    """Return whether the validation of this checkpoint was the best so far."""
    progress = _intact_progress(path)
    return (
        not progress.validations_since_best
        and progress.scores.get("best_metric_value", math.nan) == progress.best
    )


def prune(run: Path, keep_last: int = 2, keep_best: int = 1) -> None:
    """Delete all checkpoints except the latest one, the latest validated ones and the best ones.

    Two validated ones are kept by default, in case one is damaged.
    """
    paths = checkpoints(run)
    by_quality = sorted(paths, key=_quality)
    kept = {
        best(run),
        *by_quality[-keep_best:],
        *paths[-1:],
        *(validated(run) or paths)[-keep_last:],
    }
    # The former are left by a process killed while deleting.
    for path in (
        *run.glob(".step-*"),
        *paths,
    ):
        if path not in kept:
            hidden = path.with_name(f".{path.name.removeprefix('.')}")
            path.rename(hidden)  # an interrupted deletion must not leave a damaged checkpoint
            shutil.rmtree(hidden)


def read_meta(checkpoint: Path) -> JsonObject:
    """Read the `meta.json` of a checkpoint.

    Raises:
        NewerCheckpointError: a later version of nmt wrote it.
        CheckpointError: it is missing or damaged.
    """
    path = checkpoint / META
    with _errors_of(path):
        content = untrusted_files.read_bytes(path)
        meta: JsonObject = untrusted_files.parse_json(content)
        untrusted_files.check(meta, Version)
        if meta["format"] > FORMAT:  # it may have other fields
            raise NewerCheckpointError(
                f"{checkpoint} was written by a newer version of nmt ({meta['nmt']})", "upgrade nmt"
            )
        progress = meta.get("progress")
        if isinstance(progress, dict) and OLD_POSITION in progress:
            progress["batches_in_window"] = progress.pop(OLD_POSITION)
        untrusted_files.check(meta, Meta)
    return meta


@contextmanager
def _errors_of(path: Path) -> Iterator[None]:
    """Raise a CheckpointError that names the file for an error of reading it."""
    try:
        yield
    except OSError as error:
        raise CheckpointError(f"cannot read {path}: {error.strerror}", USE_ANOTHER) from None
    except (KeyError, ValueError, TypeError):
        raise CheckpointError(f"{path} is damaged", USE_ANOTHER) from None


def read_progress(checkpoint: Path) -> Progress:
    """Read the training progress of a checkpoint."""
    return Progress(**read_meta(checkpoint)["progress"])


def read_tensors(checkpoint: Path, name: str) -> dict[str, Tensor]:
    """Load one of the two tensor files of a checkpoint and verify its checksum.

    Raises:
        CheckpointError: the file is missing or damaged.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    with _verified(checkpoint, name) as path:
        try:
            return load_file(path)
        except SafetensorError as error:
            raise ValueError(str(error)) from None


def read_weights(checkpoint: Path) -> Arrays:
    """Load the weights of a checkpoint as float32 arrays, without PyTorch, and verify their
    checksum.

    Raises:
        CheckpointError: the file is missing or damaged.
    """
    return dequantize(read_stored_weights(checkpoint))


def read_stored_weights(checkpoint: Path) -> Arrays:
    """Load the weights of a checkpoint as `read_weights` does, but leave int8 matrices and their
    scales as they are.

    Raises:
        CheckpointError: the file is missing or damaged.
    """
    with _verified(checkpoint, WEIGHTS) as path:
        header, start = untrusted_files.read_safetensors_header(path)
        # Mapped rather than read, because a large model would be in memory twice. "c": changes stay
        # in memory.
        content = np.asarray(np.memmap(path, np.uint8, "c"))
        arrays = {name: _array(entry, content[start:]) for name, entry in header.items()}
        scales(arrays)  # raises an error if they do not fit
        return arrays


def read_shapes(checkpoint: Path) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the weights of a checkpoint by name, without reading the weights.

    Raises:
        CheckpointError: the file is missing or damaged.
    """
    path = checkpoint / WEIGHTS
    with _errors_of(path):
        header, _ = untrusted_files.read_safetensors_header(path)
    scales = {name + SCALE for name in header}  # of int8 matrices
    return {name: tuple(entry["shape"]) for name, entry in header.items() if name not in scales}


def _array(tensor: TensorEntry, content: NDArray[np.uint8]) -> NDArray[Any]:
    first, end = tensor["data_offsets"]
    data, shape = content[first:end], tensor["shape"]
    if tensor["dtype"] == "BF16":  # the upper 16 bits of a float32
        return (data.view(np.uint16).astype(np.uint32) << 16).view(np.float32).reshape(shape)
    dtype = {"F32": np.float32, "F16": np.float16, "I8": np.int8}[tensor["dtype"]]
    array = data.view(dtype).reshape(shape)
    return array.astype(np.float32) if tensor["dtype"] == "F16" else array


@contextmanager
def _verified(checkpoint: Path, name: str) -> Iterator[Path]:
    """Yield the path of a file with the right checksum; see `_errors_of`."""
    path = checkpoint / name
    with _errors_of(path):
        untrusted_files.open_file(path).close()  # it is a regular file that can be opened
        if sha256(path) != read_meta(checkpoint)["sha256"][name]:
            raise CheckpointError(f"{path} is damaged: its checksum differs", USE_ANOTHER)
        yield path


def quarantine(run: Path, after: Path) -> None:
    """Rename the damaged checkpoints newer than `after`, so that they are never used as the best or
    latest one."""
    for path in checkpoints(run):
        if _step(path) > _step(after):
            damaged = path.with_name(f"{path.name}.damaged")
            shutil.rmtree(damaged, ignore_errors=True)  # of an earlier damage at the same update
            path.rename(damaged)


def load(checkpoint: Path) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Return the weights and the training state of a checkpoint.

    Raises:
        CheckpointError: a file is missing or damaged.
    """
    return read_tensors(checkpoint, WEIGHTS), read_tensors(checkpoint, TRAINING)


def load_latest_intact(run: Path) -> tuple[Path, dict[str, Tensor], dict[str, Tensor]] | None:
    """Load the latest intact checkpoint and log each damaged one that is skipped; None if there are
    no checkpoints.

    Raises:
        CheckpointError: all checkpoints are damaged.
        NewerCheckpointError: a later version of nmt wrote the latest checkpoint.
    """
    paths = checkpoints(run)
    for path in reversed(paths):
        try:
            return path, *load(path)
        except NewerCheckpointError:  # resuming from an older checkpoint would overwrite it
            raise
        except CheckpointError as error:
            log(f"skipping {path.name}: {error.message}")
    if paths:
        raise CheckpointError(
            f"all checkpoints of {run} are damaged", "train a new run with another --run"
        )
    return None
