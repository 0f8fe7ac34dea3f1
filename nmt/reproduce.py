"""A run made once more from its own record, and compared with what it was."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nmt import checkpoint, record, runtime, settings
from nmt.console import log
from nmt.data.prepare import prepare
from nmt.errors import CheckpointError, TrainingError, UsageError
from nmt.train import train

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

    Args:
        run: the folder of a run.
        into: a folder that holds no run yet.
        device: as in `train`.
        changed: go on where text or tokenizer are not those of the run.

    Raises:
        CheckpointError: it is no run.
        UsageError: `into` holds a run.
        TrainingError: text or tokenizer have changed, and `changed` does not allow it.
    """
    found = record.gather(run)
    if (into / "config.yaml").exists():
        raise UsageError(f"{into} already holds a run", "name another folder with --run")
    config = settings.load(run / "config.yaml")
    _check_text(run, prepare(config).meta, changed)
    training = found["training"]
    limit = None
    if training["updates"] < training["of"] and not config.train.patience:
        limit = 3600 * training["hours"]
        log(f"{run} was stopped after {training['updates']:,} of {training['of']:,} updates: it gets as long again")
    train(config, into, device=device, precision=_precision(training["precision"]), time_limit=limit)
    again = record.gather(into)
    pairs = [each["best"]["validation"] for each in (found, again)]
    last = [checkpoint.checkpoints(each)[-1] for each in (run, into)]
    sums = [checkpoint.read_meta(each)["sha256"][checkpoint.WEIGHTS] for each in last]
    return Reproduction(
        run, into, {name: (pairs[0][name], pairs[1][name]) for name in pairs[0] if name in pairs[1]},
        sums[0] == sums[1], _differences(found["sessions"], again["sessions"]),
    )  # fmt: skip


def _check_text(run: Path, now: dict[str, Any], changed: bool) -> None:
    try:
        before = json.loads((run / "data.json").read_text(encoding="utf-8"))
        old = dict([*before["recipe"]["train"], before["recipe"]["valid"]])
        old["the tokenizer"] = before["tokenizer"]
    except (OSError, ValueError, KeyError, TypeError):
        raise CheckpointError(f"{run / 'data.json'} is damaged", "put the run's own file back") from None
    new = dict([*now["recipe"]["train"], now["recipe"]["valid"]]) | {"the tokenizer": now["tokenizer"]}
    others = [name for name in old if new.get(name) != old[name]]
    if others and not changed:
        raise TrainingError(
            f"{' and '.join(others)} {'is' if len(others) == 1 else 'are'} not what {run} was trained on",
            "put the text back, or go on with what there is: --changed-data",
        )
    for name in others:
        log(f"{name} is not what {run} was trained on")


def _precision(name: str) -> str:
    return next((known for known, dtype in runtime.PRECISIONS.items() if str(dtype) == f"torch.{name}"), "auto")


def _differences(before: list[dict[str, Any]], now: list[dict[str, Any]]) -> list[str]:
    if not before or not now:
        return ["where and with which versions the run was trained is not recorded"]
    found = [f"in {len(before)} sessions instead of {len(now)}"] if len(before) != len(now) else []
    old, new = before[-1], now[-1]
    for name, one, other in (
        *((name, old.get(name), new.get(name)) for name in WHERE),
        *((name, old["environment"].get(name), new["environment"].get(name)) for name in VERSIONS),
    ):
        if one != other:
            found.append(f"{name} {one} instead of {other}")
    return found
