"""A run made once more from its own record, and compared with what it was."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nmt import runtime
from nmt.config import Config, config_io
from nmt.console import log
from nmt.data.prepare import prepare
from nmt.errors import CheckpointError, TrainingError, UsageError
from nmt.runs import checkpoint, run_info
from nmt.train.session import train

WHERE = ("device", "processes", "precision")
"""Of a session's note: what changes how sums are rounded."""
VERSIONS = ("nmt", "torch", "sentencepiece", "processor", "threads", "gpus")


@dataclass(frozen=True)
class Reproduction:
    """Both runs, and where they differ."""

    before: Path
    now: Path
    scores: dict[str, tuple[float, float]]
    """The best validation's scores, of the old run and of the new."""
    same_weights: bool
    """Whether the last checkpoints are equal to the last bit."""
    differences: list[str]
    """What of machine and versions is not as it was."""


def reproduce(run: Path, into: Path, *, device: str = "auto", changed: bool = False) -> Reproduction:
    """Train the run's configuration again into the folder `into`, on the same text.

    A run that a time limit stopped is given as long again; its schedule followed the clock, so it comes out alike only.
    A reproduction that was stopped itself goes on.

    Args:
        run: the folder of a run.
        into: a folder that holds no run yet.
        device: as in `train`.
        changed: go on where text or tokenizer are not those of the run.

    Raises:
        CheckpointError: it is no run.
        UsageError: `into` holds another run, or the run was stopped before its end.
        TrainingError: text or tokenizer have changed, and `changed` does not allow it; or the training was stopped.
    """
    found = run_info.collect(run)
    config = config_io.load(run / "config.yaml")
    begun = _begun(into, config)
    _check_text(run, prepare(config).meta, changed)
    training = found["training"]
    limit = None
    if training["updates"] < training["of"] and not config.train.patience:
        limit = _limit(run, found)
        log(f"{run} was stopped after {training['updates']:,} of {training['of']:,} updates: it gets as long again")
        if begun:
            limit = max(1.0, limit - 3600 * run_info.collect(into)["training"]["hours"])
    wanted = training["precision"]
    train(config, into, resume=begun, device=device, precision=runtime.precision_name(wanted), time_limit=limit)
    again = run_info.collect(into)
    if limit is None and not config.train.patience and again["training"]["updates"] < training["updates"]:
        raise TrainingError("the reproduction was stopped", "the same command goes on with it")
    pairs = [each["best"]["validation"] for each in (found, again)]
    last = [checkpoint.checkpoints(each)[-1] for each in (run, into)]
    sums = [checkpoint.read_meta(each)["sha256"][checkpoint.WEIGHTS] for each in last]
    return Reproduction(
        run, into, {name: (pairs[0][name], pairs[1][name]) for name in pairs[0] if name in pairs[1]},
        sums[0] == sums[1], _differences(found["sessions"], again["sessions"]),
    )  # fmt: skip


def _begun(into: Path, config: Config) -> bool:
    """Say whether `into` holds a reproduction of `config` to go on with."""
    if not (into / "config.yaml").exists():
        return False
    if config_io.load(into / "config.yaml") != config or not checkpoint.checkpoints(into):
        raise UsageError(f"{into} already holds a run", "name another folder with --run")
    return True


def _limit(run: Path, found: dict[str, Any]) -> float:
    """Return the seconds that a run was given which a time limit stopped."""
    sessions = found["sessions"]
    if sessions and not any(session.get("time_limit", True) for session in sessions):
        raise UsageError(f"{run} was stopped before its end", f"finish it first: nmt train --run {run} --resume")
    return float(3600 * found["training"]["hours"])


def _check_text(run: Path, now: dict[str, Any], changed: bool) -> None:
    try:
        old = _sums(json.loads((run / "data.json").read_text(encoding="utf-8")))
    except (OSError, ValueError, KeyError, TypeError):
        raise CheckpointError(f"{run / 'data.json'} is damaged", "put the run's own file back") from None
    others = sorted({name for name, _ in old ^ _sums(now)})
    if others and not changed:
        raise TrainingError(
            f"{' and '.join(others)} {'is' if len(others) == 1 else 'are'} not what {run} was trained on",
            "put the text back, or go on with what there is: --allow-changed-data",
        )
    for name in others:
        log(f"{name} is not what {run} was trained on")


def _sums(meta: dict[str, Any]) -> set[tuple[str, str]]:
    """Return what a run learned from, name and checksum of each."""
    recipe = meta["recipe"]
    texts = [*recipe["train"], recipe["valid"]]
    return {*((str(name), str(sum_)) for name, sum_ in texts), ("the tokenizer", str(meta["tokenizer"]))}


def _differences(before: list[dict[str, Any]], now: list[dict[str, Any]]) -> list[str]:
    if not before or not now:
        return ["where and with which versions the run was trained is not recorded"]
    found = []
    if len(before) != len(now):
        found = [f"trained in {len(before)} session{'s' * (len(before) > 1)} instead of {len(now)}"]
    old, new = before[-1], now[-1]
    for name, one, other in (
        *((name, old.get(name), new.get(name)) for name in WHERE),
        *((name, old["environment"].get(name), new["environment"].get(name)) for name in VERSIONS),
    ):
        if one != other:
            found.append(f"trained with {name} {one} instead of {other}")
    return found
