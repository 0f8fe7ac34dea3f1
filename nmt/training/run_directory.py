"""The run directory during training: its lock, and checks before resuming."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from nmt.core import runtime
from nmt.core.config import Config, config_io
from nmt.core.errors import TrainingError, UsageError
from nmt.core.paths import locked, make_directory, write_text
from nmt.core.registry import parse
from nmt.core.untrusted_files import JsonObject, read_record
from nmt.runs import checkpoint, run_report

LOCK = ".lock"
"""Lock file of the process that trains in a run directory."""
CHOOSE_RUN = "choose another directory with --run"


@contextmanager
def lock_run(config: Config, run: Path, resume: bool) -> Iterator[None]:
    """Create the run directory, or check that its run can be resumed, and lock it against other
    processes. At the end, remove a directory without a run.

    Raises:
        UsageError: the directory contains a run and `resume` is false, or it contains none and
            `resume` is true; its run has another config; it cannot be created; or another process
            trains in it.
    """
    holds_run = (run / "config.yaml").exists() or bool(checkpoint.checkpoints(run))
    if holds_run and not resume:
        raise UsageError(
            f"{run} already contains a run", f"continue it with --resume, or {CHOOSE_RUN}"
        )
    if run.exists() and not run.is_dir():
        raise UsageError(f"{run} is a file, not a directory", CHOOSE_RUN)
    if resume and not holds_run:  # a typo must not start a new run
        raise UsageError(f"{run} contains no run to resume", "start a new run without --resume")
    if holds_run:
        _check_config_unchanged(config, run)
    make_directory(run, CHOOSE_RUN)
    with locked(
        run / LOCK,
        UsageError(f"another process is training in {run}", f"wait for it, or {CHOOSE_RUN}"),
    ):
        try:
            yield
        finally:
            if not (run / "config.yaml").exists():  # training failed before it wrote anything
                with suppress(OSError):
                    (run / LOCK).unlink()
                    run.rmdir()


def check_data_unchanged(run: Path, meta: JsonObject) -> None:
    """Check that the prepared data is the data that the run was trained on.

    Raises:
        TrainingError: a corpus, the tokenizer or the teacher has changed.
    """
    current = json.loads(json.dumps(meta["recipe"]))  # converts tuples to lists
    try:
        saved_meta = read_record(run / "data.json")
        saved = saved_meta["recipe"]
        teacher = (saved_meta.get("teacher") or {}).get("sha256")
        is_equal = (
            saved.get("placeholders") == current.get("placeholders")
            and saved.get("tokenizer") == current.get("tokenizer")
            and _checksums(saved) == _checksums(current)
        )
    except (KeyError, TypeError, AttributeError, IndexError):
        return  # missing because training stopped early, or damaged
    if not is_equal:
        raise TrainingError(
            f"the data or the tokenizer of {run} has changed",
            f"restore it, or fine-tune on the new data: nmt train --init-from {run} --run NEW",
        )
    if saved.get("plugins", {}) != current.get("plugins", {}):
        raise TrainingError(
            f"a cleaning step of a plug-in has changed since {run} was trained",
            f"restore it, or fine-tune on the new data: nmt train --init-from {run} --run NEW",
        )
    if teacher != meta.get("teacher", {}).get("sha256"):
        raise TrainingError(
            f"train.teacher of {run} has changed",
            "restore it or name its checkpoint, or fine-tune with the new one: "
            f"nmt train --init-from {run} --set train.teacher=TEACHER --run NEW",
        )


def _checksums(recipe: JsonObject) -> list[str]:
    """Return the checksums of the corpora, with None between training, replay and validation; their
    names depend on the paths of their files."""
    corpora = [*recipe.get("train", []), None, *recipe.get("replay", []), None, recipe.get("valid")]
    return [corpus and corpus[1] for corpus in corpora]


def saved_precision(run: Path, device: str) -> str:
    """Return the precision of a run, the default when it is resumed; `auto` without a checkpoint or
    on a device type that does not support it.
    """
    last = run_report.last_progress(run)
    if last:
        with suppress(UsageError):
            precision = runtime.precision_name(last.precision)
            runtime.check_precision(precision, device)
            return precision
    return "auto"


def _check_config_unchanged(config: Config, run: Path) -> None:
    saved = config_io.load(run / "config.yaml")
    fixed = ("data", "tokenizer", "model", "seed", "lowercase_all_caps")
    # The test sets of a comparison do not affect training.
    saved = replace(saved, data=replace(saved.data, general_test=config.data.general_test))
    changed = []
    for name in fixed:
        changed += config_io.changed_options(name, getattr(saved, name), getattr(config, name))
    # The metric's values, or positions in an epoch, are not comparable.
    for name in ("best_metric", "valid_search", "valid_pairs", "replay_share", "init_from"):
        if getattr(saved.train, name) != getattr(config.train, name):
            changed.append(f"train.{name}")
    if parse(saved.train.optimizer)[0] != parse(config.train.optimizer)[0]:  # their states differ
        changed.append("train.optimizer")
    if changed:
        raise UsageError(
            f"{run} was trained with another '{changed[0]}'",
            f"resume with its own config, or {CHOOSE_RUN}",
        )


def truncate_metrics(run: Path, step: int, *, validated: bool) -> None:
    """Remove log lines after update `step`, which a resumed run will repeat.

    If not `validated`, also remove the validation at `step`.
    """

    def is_kept(line: str) -> bool:
        try:
            values = json.loads(line)
            position = values["step"], "best_metric_value" in values  # a validation is the last
            return line.endswith("\n") and position <= (step, validated)
        except (ValueError, TypeError, KeyError):  # damaged by a kill, or of another program
            return False

    path = run / "metrics.jsonl"
    if path.exists():
        lines = path.read_text("utf-8", errors="replace").splitlines(keepends=True)
        write_text(path, "".join(filter(is_kept, lines)))
