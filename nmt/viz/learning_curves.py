"""Plot the learning curves of runs from their metrics.jsonl.

The runs of a sweep that differ only in their seed are one variant: a line for the mean and a band
for the range.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from nmt.core.errors import UsageError
from nmt.core.untrusted_files import read_records
from nmt.runs.sweep_results import assignments, runs_by_options, short_options
from nmt.viz import figures

Log = list[dict[str, Any]]
"""The records of a run's metrics.jsonl."""


@dataclass(frozen=True)
class Axis:
    """A quantity for the horizontal axis."""

    key: str
    label: str
    scale: float = 1.0
    smaller: Axis | None = None
    """The same quantity in a smaller unit, for short runs."""


@dataclass(frozen=True)
class Variant:
    """Runs of one color."""

    label: str
    logs: list[Log]


AXES = {
    "updates": Axis("step", "updates"),
    "tokens": Axis(
        "tokens", "million target tokens", 1e-6, Axis("tokens", "thousand target tokens", 1e-3)
    ),
    "hours": Axis(
        "seconds",
        "hours of training",
        1 / 3600,
        Axis("seconds", "minutes of training", 1 / 60, Axis("seconds", "seconds of training")),
    ),
}
FAINT = {"alpha": 0.4}
MARKED = {"marker": "o", "markersize": 3.0, "clip_on": False}
BLEU, SPEED = "validation BLEU", "target tokens per second"
PANELS: dict[str, dict[str, dict[str, Any]]] = {
    "loss (nats per token)": {
        "loss": FAINT | {"label": "training (label-smoothed)"},
        "valid_loss": MARKED | {"label": "validation"},
    },
    BLEU: {"valid_bleu": MARKED},
    "learning rate": {"lr": {}},
    SPEED: {"tokens_per_second": {}},
}
"""Metrics of each panel by the label of its vertical axis, with the style of their lines."""
MAX_LABEL = 60
MAX_LEGEND_WIDTH = 115
"""Maximum number of characters in a row of the legend."""
HANDLE_WIDTH = 8
"""Characters that would fit in the place of a line in the legend."""


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


def read_variants(paths: Sequence[Path], axis: Axis) -> list[Variant]:
    """Return a variant for each run, and for each combination of a sweep. The label has only what
    differs.

    Raises:
        UsageError: a log cannot be read, or a run or sweep has no values.
    """
    variants = []
    names = [path.name or str(path) for path in paths]
    if len(set(names)) < len(names):
        names = list(map(str, paths))
    for path, name in zip(paths, names, strict=True):
        prefix = f"{name}: " if len(paths) > 1 else ""
        of_path = _read_sweep(path, prefix) or [Variant(name, [read_log(path)])]
        if not _largest(of_path, axis):
            raise UsageError(
                f"the log of {path} has no {axis.label} yet",
                "continue training, or choose another axis with --by",
            )
        variants += of_path
    return variants


def _largest(variants: Sequence[Variant], axis: Axis) -> float:
    """Return the largest value on an axis; 0 if there is none."""
    largest = 0.0
    for variant in variants:
        for log in variant.logs:
            values, _ = points(log, axis.key, axis)
            largest = max([largest, *values])
    return largest


def _read_sweep(directory: Path, prefix: str) -> list[Variant]:
    """Return the combinations of a sweep; none if it is a run."""
    combinations = runs_by_options(directory)
    if not combinations:
        return []
    variants = []
    all_differing = short_options([options for options, _ in combinations])
    for differing, (_, runs) in zip(all_differing, combinations, strict=True):
        label = prefix + ", ".join(assignments(differing))
        logs = [read_log(run) for run in runs]
        variants.append(Variant(_shorten(label), logs))
    return variants


def _shorten(label: str) -> str:
    if len(label) <= MAX_LABEL:
        return label
    half = MAX_LABEL // 2
    start = label[:half]
    end = label[-half:]
    return f"{start}…{end}"


def mean_and_range(series: Iterable[tuple[list[float], list[float]]]) -> np.ndarray:
    """Return the rows x, mean, minimum and maximum of several curves, each a list of x and one of
    y.

    Between its points, a curve is a straight line; beyond its ends, it does not count.
    """
    curves = [_sort(*curve) for curve in series]
    all_x = np.concatenate([curve_x for curve_x, _ in curves])
    x = np.unique(all_x)
    rows = []
    for curve_x, curve_y in curves:
        row = np.interp(x, curve_x, curve_y, left=np.nan, right=np.nan)
        rows.append(row)
    # Each x is a point of at least one curve, so no column is empty.
    y = np.stack(rows)
    mean = np.nanmean(y, 0)
    low = np.nanmin(y, 0)
    high = np.nanmax(y, 0)
    return np.stack([x, mean, low, high])


def _sort(x: list[float], y: list[float]) -> tuple[np.ndarray, np.ndarray]:
    order = np.argsort(x, kind="stable")
    sorted_x = np.array(x, float)[order]
    sorted_y = np.array(y, float)[order]
    return sorted_x, sorted_y


def draw(paths: Sequence[Path], output: Path, axis: Axis) -> None:
    """Draw the curves of runs and sweeps in one figure, a color per variant. The suffix of `output`
    selects the format.

    Raises:
        UsageError: matplotlib is not installed or does not support the format, or a log has no
            values.
        NMTError: the figure cannot be written.
    """
    figure = figures.figure(output, 11, 7)
    variants = read_variants(paths, axis)
    axis = _in_readable_unit(axis, variants)
    colors = figures.colors(len(variants))
    panels = figure.subplots(2, 2, sharex=True).ravel()
    for panel, label in zip(panels, PANELS, strict=True):
        for variant, color in zip(variants, colors, strict=True):
            _draw_variant(panel, label, variant, color, axis)
        _finish_panel(panel, label, axis)
    left, _ = panels[0].get_xlim()  # that of all panels
    panels[0].set_xlim(left=max(0, left))
    if axis.key == "step":
        panels[0].xaxis.get_major_locator().set_params(integer=True)
    _draw_line_styles(panels[0], has_colors=len(variants) > 1)
    title = str(paths[0]) if len(paths) == 1 else ""
    if len(variants) > 1:
        _draw_legend(figure, panels[2].lines, [variant.label for variant in variants], title)
    else:
        figure.suptitle(title, parse_math=False)
    figures.save(figure, output)


def _in_readable_unit(axis: Axis, variants: Sequence[Variant]) -> Axis:
    """Return an axis in the largest unit in which the longest run has at least 1."""
    largest = _largest(variants, replace(axis, scale=1.0))
    while axis.smaller and largest * axis.scale < 1:
        axis = axis.smaller
    return axis


def _finish_panel(panel: Any, label: str, axis: Axis) -> None:
    panel.set(ylabel=label, xlabel=axis.label)
    panel.tick_params(labelbottom=True)  # also above another panel with the same axis
    panel.grid(alpha=0.3)
    if all(len(line.get_xdata()) == 0 for line in panel.lines):
        panel.set_yticks([])
        panel.text(0.5, 0.5, "no values yet", ha="center", transform=panel.transAxes)
    elif label == SPEED:
        panel.set_ylim(bottom=0)
    else:
        figures.start_at_zero(panel, min_top=float(label == BLEU))


def _draw_line_styles(panel: Any, *, has_colors: bool) -> None:
    """Draw the legend of the loss above its panel, where it covers no line; in gray if the colors
    are those of variants."""
    lines = panel.lines[:2]
    legend = panel.legend(
        lines,
        [line.get_label() for line in lines],
        loc="lower right",
        bbox_to_anchor=(1, 1),
        ncols=2,
        frameon=False,
    )
    if has_colors:
        for handle in legend.legend_handles:
            handle.set_color("gray")


def _draw_legend(figure: Any, lines: Any, labels: Sequence[str], title: str) -> None:
    column_width = max(map(len, labels)) + HANDLE_WIDTH
    max_columns = MAX_LEGEND_WIDTH // column_width
    num_columns = min(len(labels), max_columns)
    num_columns = max(1, num_columns)
    legend = figure.legend(lines, labels, loc="outside upper center", ncols=num_columns)
    legend.set_title(title or None)
    for text in [legend.get_title(), *legend.get_texts()]:
        text.set_parse_math(False)


def _draw_variant(panel: Any, label: str, variant: Variant, color: Any, axis: Axis) -> None:
    for metric, style in PANELS[label].items():
        curves = []
        for log in variant.logs:
            x, y = points(log, metric, axis)
            if x:
                curves.append((x, y))
        if not curves:
            # For the legend. The layout would make room for an empty line that is not clipped.
            panel.plot([], [], color=color, **style | {"clip_on": True})
            continue
        all_x, mean, low, high = mean_and_range(curves)
        is_point = len(all_x) == 1
        if is_point:  # a line would be invisible
            style = style | MARKED | {"markersize": 5.0}
        panel.plot(all_x, mean, color=color, **style)
        if len(curves) == 1:
            continue
        panel.fill_between(all_x, low, high, color=color, alpha=0.2, linewidth=0)
        if is_point:
            panel.vlines(all_x, low, high, color=color)
