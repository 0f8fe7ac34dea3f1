"""Learning curves of one or several runs, from what their metrics.jsonl says."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nmt.errors import UsageError
from nmt.viz import figures as picture


@dataclass(frozen=True)
class Axis:
    """What stands on the horizontal axis."""

    key: str
    label: str
    scale: float = 1.0


AXES = {
    "updates": Axis("step", "updates"),
    "tokens": Axis("tokens", "million target tokens", 1e-6),
    "hours": Axis("seconds", "hours of training", 1 / 3600),
}
FAINT, DOTTED = {"alpha": 0.4}, {"marker": "o", "markersize": 3.0}
PANELS: dict[str, dict[str, dict[str, Any]]] = {
    "loss, nats per token": {
        "loss": FAINT | {"label": "training, with its label smoothing"},
        "valid_loss": DOTTED | {"label": "validation"},
    },
    "validation BLEU": {"valid_bleu": DOTTED},
    "learning rate": {"lr": {}},
    "target tokens/s": {"tokens_per_second": {}},
}
"""What each panel shows: the log's values by name, and how their lines look."""


def read_log(run: Path) -> list[dict[str, Any]]:
    """Return the lines of a run's metrics.jsonl; one that a kill has cut is left out.

    Raises:
        UsageError: there is no log.
    """
    try:
        lines = (run / "metrics.jsonl").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        raise UsageError(f"{run} holds no metrics.jsonl", "name the folder of a run, as in runs/quickstart") from None
    found = []
    for line in lines:
        try:
            found.append(json.loads(line))
        except ValueError:
            continue
    return [line for line in found if isinstance(line, dict) and "step" in line]


def points(log: Sequence[dict[str, Any]], name: str, axis: Axis) -> tuple[list[float], list[float]]:
    """Return places on the axis and values, for the lines of a log that have both."""
    lines = [line for line in log if all(isinstance(line.get(key), int | float) for key in (name, axis.key))]
    return [line[axis.key] * axis.scale for line in lines], [line[name] for line in lines]


def draw(runs: Sequence[Path], output: Path, axis: Axis) -> None:
    """Draw the curves of `runs` into one picture, a color for each; the suffix of `output` is its format.

    Raises:
        UsageError: matplotlib is not installed or does not know the format, or a run has nothing to show.
        NMTError: the picture cannot be written.
    """
    figure = picture.figure(output, 11, 7)
    logs = [read_log(run) for run in runs]
    for run, log in zip(runs, logs, strict=True):
        if not any(points(log, axis.key, axis)[0]):
            raise UsageError(
                f"the log of {run} has no {axis.label} yet", "train on, or draw it by something else: --by"
            )
    panels = figure.subplots(2, 2).flat
    for panel, (title, lines) in zip(panels, PANELS.items(), strict=True):
        for number, log in enumerate(logs):
            for name, look in lines.items():
                panel.plot(*points(log, name, axis), color=f"C{number}", **look)
        panel.set(title=title, xlabel=axis.label)
        panel.grid(alpha=0.3)
    panels = figure.axes
    panels[0].legend(*(each[:2] for each in panels[0].get_legend_handles_labels()))
    if len(runs) > 1:
        figure.legend(panels[2].lines, [str(run) for run in runs], loc="outside upper center", ncols=min(4, len(runs)))
    else:
        figure.suptitle(str(runs[0]))
    picture.save(figure, output)
