"""Train a run again from its recorded config and data and compare the results."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nmt.core import runtime
from nmt.core.config import Config, config_io
from nmt.core.console import counted, log
from nmt.core.errors import CheckpointError, StoppedError, TrainingError, UsageError
from nmt.data.prepare import prepare
from nmt.models import discovery
from nmt.runs import checkpoint, run_info
from nmt.train.session import train
from nmt.train.word_distillation import find_teacher

SESSION_FIELDS = ("device", "processes", "precision")
"""Fields of a session that change how sums are rounded."""
ENVIRONMENT_FIELDS = ("nmt", "torch", "sentencepiece", "processor", "threads", "gpus")


@dataclass(frozen=True)
class Reproduction:
    """The comparison of a run with its reproduction."""

    original_run: Path
    new_run: Path
    scores: dict[str, tuple[float, float]]
    """Scores of the best validation, of the original run and of the new run."""
    identical_weights: bool
    """Whether the weights of the latest checkpoints are bitwise identical."""
    differences: list[str]
    """Differences in hardware and versions."""


def reproduce(
    run: Path, new_run: Path, *, device: str = "auto", allow_changed_data: bool = False
) -> Reproduction:
    """Train the config of a run again, on the same data, in the directory `new_run`.

    A run that a time limit stopped gets the same time again. Its schedule depends on the clock, so
    the result is similar, not identical. An interrupted reproduction is resumed.

    Args:
        run: the run directory.
        new_run: directory of the new run; it must not contain another run.
        device: as in `train`.
        allow_changed_data: continue even if the data or the tokenizer has changed.

    Raises:
        CheckpointError: `run` has no checkpoint, or a record is damaged.
        UsageError: `new_run` contains another run, or `run` was stopped before its last update.
        TrainingError: the data or the tokenizer has changed.
        StoppedError: a signal stopped the reproduction.
    """
    if new_run.resolve() == run.resolve():
        raise UsageError(f"{run} cannot reproduce itself", "choose another directory with --run")
    original = run_info.collect(run)
    config = config_io.load(run / "config.yaml")
    parents = original["derived_from"]
    is_average = any("share" in parent for parent in parents)
    if is_average or ((original["imported"] or parents) and not config.train.init_from):
        raise UsageError(
            f"the first weights of {run} were imported or averaged",
            "reproduce the runs that it was made from",
        )
    resume = _can_resume(new_run, config)
    meta = prepare(config).meta
    if config.train.teacher:
        meta |= {"teacher": run_info.parent_record(find_teacher(config, new_run))}
    if config.train.init_from:
        meta |= {
            "derived_from": [
                run_info.parent_record(discovery.find_model(Path(config.train.init_from)))
            ]
        }
    _check_data(run, meta, allow_changed_data)
    training = original["training"]
    time_limit = None
    if training["updates"] < training["total_updates"] and not _stopped_early(run, config):
        time_limit = _time_limit(run, original)
        progress = f"{training['updates']:,} of {training['total_updates']:,} updates"
        log(f"{run} was stopped after {progress}; the reproduction gets the same training time")
        if resume and checkpoint.checkpoints(new_run):
            time_limit = max(
                1.0, time_limit - 3600 * run_info.collect(new_run)["training"]["hours"]
            )
    precision = runtime.precision_name(training["precision"])
    try:
        train(
            config,
            new_run,
            resume=resume,
            device=device,
            precision=precision,
            time_limit=time_limit,
        )
    except StoppedError:
        log("the reproduction was stopped; run the command again to resume it")
        raise
    new = run_info.collect(new_run)
    old_scores, new_scores = (info["best"]["validation"] for info in (original, new))
    scores = {
        name: (old_scores[name], new_scores[name]) for name in old_scores if name in new_scores
    }
    latest_checkpoints = [checkpoint.checkpoints(each)[-1] for each in (run, new_run)]
    old_sum, new_sum = (
        checkpoint.read_meta(path)["sha256"][checkpoint.WEIGHTS] for path in latest_checkpoints
    )
    return Reproduction(
        run,
        new_run,
        scores,
        old_sum == new_sum,
        _differences(original["sessions"], new["sessions"]),
    )


def _stopped_early(run: Path, config: Config) -> bool:
    """Return whether a run ended because its validations did not improve."""
    latest = checkpoint.checkpoints(run)[-1]
    return 0 < config.train.patience <= checkpoint.read_progress(latest).validations_since_best


def _can_resume(new_run: Path, config: Config) -> bool:
    """Return whether `new_run` contains an interrupted reproduction of `config`."""
    if not (new_run / "config.yaml").exists():
        return False
    if config_io.load(new_run / "config.yaml") != config:
        raise UsageError(f"{new_run} already contains a run", "choose another directory with --run")
    return True


def _is_validated(run: Path) -> bool:
    """Return whether the latest checkpoint was validated; that of a stop signal is not."""
    return bool(checkpoint.read_progress(checkpoint.checkpoints(run)[-1]).scores)


def _time_limit(run: Path, info: dict[str, Any]) -> float:
    """Return the time limit that stopped a run, in seconds; after several sessions, its training
    time."""
    limits = [
        session.get("time_limit", True) for session in info["sessions"]
    ]  # older versions do not record a limit
    if limits and not any(limits):
        raise UsageError(
            f"{run} was stopped before its last update",
            f"finish it first: nmt train --run {run} --resume",
        )
    hours = info["training"]["hours"]
    return float(
        limits[0]
        if len(limits) == 1 and limits[0] is not True and _is_validated(run)
        else 3600 * hours
    )


def _check_data(run: Path, meta: dict[str, Any], allow_changed_data: bool) -> None:
    try:
        saved = _checksums(json.loads((run / "data.json").read_text(encoding="utf-8")))
    except (OSError, ValueError, KeyError, TypeError):
        raise CheckpointError(f"{run / 'data.json'} is damaged", checkpoint.RESTORE_FILE) from None
    current = _checksums(meta)
    both = {key: (saved.get(key, ("", "")), current.get(key, ("", ""))) for key in saved | current}
    changed = sorted({old[0] or new[0] for old, new in both.values() if old[1] != new[1]})
    if not changed:
        return
    message = (
        f"{' and '.join(changed)} {'has' if len(changed) == 1 else 'have'} changed since {run} was"
        " trained"
    )
    if not allow_changed_data:
        raise TrainingError(message, "restore the data, or continue with --allow-changed-data")
    log(message)


def _checksums(meta: dict[str, Any]) -> dict[tuple[str, int], tuple[str, str]]:
    """Return name and checksum of the corpora, the tokenizer, the teacher and the start models, by
    kind and index."""
    recipe = meta["recipe"]
    entries = {
        "train": recipe["train"],
        "replay": recipe.get("replay", []),
        "valid": [recipe["valid"]],
        "tokenizer": [("the tokenizer", meta["tokenizer"])],
        "teacher": [("the teacher", meta["teacher"]["sha256"])] if "teacher" in meta else [],
        "start": [("the start model", start["sha256"]) for start in meta.get("derived_from", [])],
    }
    return {
        (kind, i): (str(name), str(checksum))
        for kind, pairs in entries.items()
        for i, (name, checksum) in enumerate(pairs)
    }


def _differences(
    old_sessions: list[dict[str, Any]], new_sessions: list[dict[str, Any]]
) -> list[str]:
    if not old_sessions or not new_sessions:
        return ["hardware and versions of the original run are not recorded"]
    differences = []
    if len(old_sessions) != len(new_sessions):
        differences = [
            f"the original run took {counted(len(old_sessions), 'session')}, the new run"
            f" {len(new_sessions)}"
        ]

    def values(sessions: list[dict[str, Any]], name: str) -> str:
        found = (
            (each["environment"] if name in ENVIRONMENT_FIELDS else each).get(name)
            for each in sessions
        )
        return " and ".join(sorted(set(map(str, found))))

    for name in (*SESSION_FIELDS, *ENVIRONMENT_FIELDS):
        if (old := values(old_sessions, name)) != (new := values(new_sessions, name)):
            differences.append(f"the original run used {name} {old}, the new run {new}")
    return differences
