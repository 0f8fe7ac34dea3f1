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


def read_log(run: Path) -> list[dict[str, Any]]:
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


def points(
    log: Sequence[dict[str, Any]], metric: str, axis: Axis
) -> tuple[list[float], list[float]]:
    """Return the x and y values of a metric, for the records that have both."""
    records = [
        record
        for record in log
        if all(isinstance(record.get(key), int | float) for key in (metric, axis.key))
    ]
    return [record[axis.key] * axis.scale for record in records], [
        record[metric] for record in records
    ]


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
    panels = figure.subplots(2, 2).flat
    for panel, (title, lines) in zip(panels, PANELS.items(), strict=True):
        for number, log in enumerate(logs):
            for metric, style in lines.items():
                panel.plot(*points(log, metric, axis), color=f"C{number}", **style)
        panel.set(title=title, xlabel=axis.label)
        panel.grid(alpha=0.3)
    panels = figure.axes
    panels[0].legend(*(each[:2] for each in panels[0].get_legend_handles_labels()))
    if len(runs) > 1:
        labels = [str(run) for run in runs]
        legend = figure.legend(
            panels[2].lines, labels, loc="outside upper center", ncols=min(4, len(runs))
        )
        for text in legend.get_texts():
            text.set_parse_math(False)
    else:
        figure.suptitle(str(runs[0]), parse_math=False)
    figures.save(figure, output)
