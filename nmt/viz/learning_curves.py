"""Plot the learning curves of runs from their metrics.jsonl."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nmt.core.errors import UsageError
from nmt.core.untrusted_files import read_records
from nmt.viz import figures

Log = list[dict[str, Any]]
"""The records of a run's metrics.jsonl."""


@dataclass(frozen=True)
class Axis:
    """A quantity for the horizontal axis."""

    key: str
    label: str
    scale: float = 1.0


AXES = {
    "updates": Axis("step", "updates"),
    "tokens": Axis("tokens", "million target tokens", 1e-6),
    "hours": Axis("seconds", "hours of training", 1 / 3600),
}
FAINT, MARKED = {"alpha": 0.4}, {"marker": "o", "markersize": 3.0}
PANELS: dict[str, dict[str, dict[str, Any]]] = {
    "loss, nats per token": {
        "loss": FAINT | {"label": "training (label-smoothed)"},
        "valid_loss": MARKED | {"label": "validation"},
    },
    "validation BLEU": {"valid_bleu": MARKED},
    "learning rate": {"lr": {}},
    "target tokens/s": {"tokens_per_second": {}},
}
"""Metrics of each panel by name, with the style of their lines."""


def read_log(run: Path) -> Log:
    """Return the records of a run's metrics.jsonl, except for truncated lines.

    Raises:
        UsageError: the file cannot be read.
    """
    path = run / "metrics.jsonl"
    if not os.access(path, os.R_OK):
        raise UsageError(
            f"{run} has no readable metrics.jsonl", "give a run directory, such as runs/quickstart"
        )
    return [record for record in read_records(path) if "step" in record]


def points(log: Log, metric: str, axis: Axis) -> tuple[list[float], list[float]]:
    """Return the x and y values of a metric, for the records that have both."""
    x, y = [], []
    for record in log:
        values = (record.get(axis.key), record.get(metric))
        if all(isinstance(value, int | float) for value in values):
            x.append(record[axis.key] * axis.scale)
            y.append(record[metric])
    return x, y


def draw(runs: Sequence[Path], output: Path, axis: Axis) -> None:
    """Draw the curves of runs in one figure, a color per run. The suffix of `output` selects the
    format.

    Raises:
        UsageError: matplotlib is not installed or does not support the format, or a log has no
            values.
        NMTError: the figure cannot be written.
    """
    figure = figures.figure(output, 11, 7)
    logs = [read_log(run) for run in runs]
    for run, log in zip(runs, logs, strict=True):
        if not any(points(log, axis.key, axis)[0]):
            raise UsageError(
                f"the log of {run} has no {axis.label} yet",
                "continue training, or choose another axis with --by",
            )
    for number, title in enumerate(PANELS, 1):
        _draw_panel(figure.add_subplot(2, 2, number), title, logs, axis)
    panels = figure.axes
    handles, labels = panels[0].get_legend_handles_labels()
    panels[0].legend(handles[:2], labels[:2])
    if len(runs) == 1:
        figure.suptitle(str(runs[0]), parse_math=False)
    else:
        labels = list(map(str, runs))
        legend = figure.legend(
            panels[2].lines, labels, loc="outside upper center", ncols=min(4, len(runs))
        )
        for text in legend.get_texts():
            text.set_parse_math(False)
    figures.save(figure, output)


def _draw_panel(panel: Any, title: str, logs: Sequence[Log], axis: Axis) -> None:
    for metric, style in PANELS[title].items():
        for color, log in enumerate(logs):
            x, y = points(log, metric, axis)
            panel.plot(x, y, color=f"C{color}", **style)
    panel.set(title=title, xlabel=axis.label)
    panel.grid(alpha=0.3)
