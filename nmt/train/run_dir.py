"""A run's folder while it is trained in: whose it is, whether it may be resumed, and its log."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NoReturn

from nmt import runtime
from nmt.config import Config, config_io
from nmt.errors import CheckpointError, TrainingError, UsageError
from nmt.paths import locked, write_text
from nmt.runs import checkpoint

LOCK = ".lock"
"""File of a run's folder that the process training in it holds locked."""


@contextmanager
def lock_run(config: Config, run: Path, resume: bool) -> Iterator[None]:
    """Make the run's folder, or check that the one standing there is to be continued; keep other processes out."""
    holds_run = (run / "config.yaml").exists() or bool(checkpoint.checkpoints(run))
    if holds_run and not resume:
        raise UsageError(f"{run} already holds a run", "go on with --resume, or name another with --run")
    if run.exists() and not run.is_dir():
        raise UsageError(f"{run} is a file", "name a folder with --run")
    if resume and not holds_run:  # a misspelled name must not start another training
        raise UsageError(f"there is no run to resume in {run}", "start it without --resume")
    if holds_run:
        _check_same(config, run)
    try:
        run.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot make {run}: {error.strerror}", "name another folder with --run") from None
    with locked(run / LOCK, lambda: _refuse(run)):
        try:
            yield
        finally:
            if not (run / "config.yaml").exists():  # nothing came of it: leave no folder behind that holds no run
                with suppress(OSError):
                    (run / LOCK).unlink()
                    run.rmdir()


def check_data_unchanged(run: Path, meta: dict[str, Any]) -> None:
    """Refuse to go on with other text than the run has learned from.

    Raises:
        TrainingError: a corpus has changed since.
    """
    try:
        before = json.loads((run / "data.json").read_text(encoding="utf-8"))["recipe"]
    except (OSError, ValueError, KeyError, TypeError):  # stopped before it was written, or damaged
        return
    now = json.loads(json.dumps(meta["recipe"]))  # with lists for tuples
    if any(before.get(name) != now[name] for name in ("train", "valid", "tokenizer")):
        raise TrainingError(
            f"the text or the tokenizer that {run} was trained with has changed since",
            f"put it back, or begin a run on what there is with these weights: nmt train --init-from {run} --run NEW",
        )


def saved_precision(run: Path) -> str:
    """Return the name of the precision that a run was trained in: a change would be another training."""
    for path in reversed(checkpoint.checkpoints(run)):
        with suppress(CheckpointError):
            before = checkpoint.read_progress(path).precision
            return runtime.precision_name(before)
    return "auto"


def _refuse(run: Path) -> NoReturn:
    raise UsageError(f"another process is training in {run}", "wait for it, or name another folder with --run")


def _check_same(config: Config, run: Path) -> None:
    before = config_io.load(run / "config.yaml")
    same = ("data", "tokenizer", "model", "seed", "lowercase_all_caps")
    changed = [name for name in same if getattr(before, name) != getattr(config, name)]
    if before.train.best_metric != config.train.best_metric:  # its values so far would be compared with others
        changed.append("train.best_metric")
    if changed:
        raise UsageError(
            f"{run} was trained with another '{changed[0]}'", "resume with its own config, or name a new --run"
        )


class MetricsLogger:
    """What is logged of a run: metrics.jsonl, and the folder `tensorboard` where that is asked for."""

    def __init__(self, run: Path, step: int, *, tensorboard: bool = False) -> None:
        """Go on after update `step`.

        Raises:
            UsageError: TensorBoard is asked for and not installed.
        """
        self.run = run
        self._board = tensorboard_writer()(str(run / "tensorboard"), purge_step=step + 1) if tensorboard else None

    def write(self, values: dict[str, Any]) -> None:
        """Log an update's values, of which `step` is its number."""
        with open(self.run / "metrics.jsonl", "a", encoding="utf-8") as file:
            file.write(json.dumps(values) + "\n")
        if self._board:
            for name, value in values.items():
                if isinstance(value, int | float) and name != "step":
                    part = "validation" if name.startswith("valid_") or name == "quality" else "training"
                    self._board.add_scalar(f"{part}/{name.removeprefix('valid_')}", value, values["step"])
            self._board.flush()  # of what it keeps back a killed training would lose some minutes


def tensorboard_writer() -> Any:
    """Return TensorBoard's writer class.

    Raises:
        UsageError: it is not installed.
    """
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise UsageError("TensorBoard is not installed", "pip install tensorboard") from None
    return SummaryWriter


def truncate_after(run: Path, step: int, *, validated: bool = True) -> None:
    """Drop what the log says of updates after `step`, which a killed training made and this one makes again.

    Unless it is `validated`, the validation of `step` itself is made again too.
    """

    def stands(line: str) -> bool:
        try:
            values = json.loads(line)
            return bool(values["step"] < step or (values["step"] == step and (validated or "quality" not in values)))
        except ValueError:  # cut while it was written
            return False

    path = run / "metrics.jsonl"
    if path.exists():
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
        write_text(path, "".join(line for line in lines if stands(line)))
