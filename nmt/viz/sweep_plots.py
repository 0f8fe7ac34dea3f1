"""Plot the scores of sweeps: a point per seed and a dash for the mean of each combination."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from nmt.core.errors import UsageError
from nmt.runs.sweep_results import (
    Options,
    assignments,
    group_by_options,
    read_results,
    short_options,
)
from nmt.viz import figures

SCORES = {
    "BLEU": "test BLEU",
    "chrF2": "test chrF2",
    "valid_bleu": "validation BLEU",
    "valid_loss": "validation loss (nats per token)",
}
"""Scores of a sweep, with the labels of their axes."""
MAX_UPRIGHT_LABEL = 8
"""Longer labels below a panel are rotated."""


@dataclass(frozen=True)
class _Variant:
    """A combination of a sweep with the scores of its seeds."""

    options: Options
    scores: list[float]

    @property
    def mean(self) -> float:
        return statistics.mean(self.scores)


def draw(sweeps: Sequence[Path], output: Path, score: str, *, join: bool = False) -> None:
    """Draw a panel per sweep, or with `join` one panel with a row per combination, the best on top.

    Raises:
        UsageError: matplotlib is not installed or does not support the format of `output`, or a
            sweep has no results with this score.
        NMTError: the figure cannot be written.
    """
    groups = [_read(sweep, score) for sweep in sweeps]
    if join:
        variants = list(chain(*groups))
        height = 1.0 + 0.3 * len(variants)
        figure = figures.figure(output, 8, height)
        panel = figure.subplots()
        _draw_rows(panel, variants, score)
    else:
        # A panel needs a minimum width, and a place for each combination.
        widths = [max(3.0, 1.0 + 0.45 * len(group)) for group in groups]
        figure = figures.figure(output, 0.5 + sum(widths), 3.6)
        grid = figure.subplots(1, len(groups), squeeze=False, width_ratios=widths)
        for each, group, sweep in zip(grid[0], groups, sweeps, strict=True):
            _draw_panel(each, group)
            title = sweep.resolve().name.replace("_", " ")
            each.set_title(title, parse_math=False)
        panel = grid[0][0]
        panel.set_ylabel(SCORES[score])
    mean, seeds = panel.lines[:2]
    # Beside the panels, where it covers no point.
    figure.legend([seeds, mean], ["seed", "mean"], loc="outside right upper", frameon=False)
    figures.save(figure, output)


def _read(directory: Path, score: str) -> list[_Variant]:
    """Return the combinations of a sweep, in the order of its results."""
    scores = []
    for result in read_results(directory):
        of_run = result.scores or {}
        if score in of_run:
            scores.append((result.options, of_run[score]))
    if not scores:
        raise UsageError(
            f"{directory} has no results of a sweep with {SCORES[score]}",
            "give the --run of nmt sweep, such as runs/quickstart-sweep",
        )
    return [_Variant(options, group) for options, group in group_by_options(scores)]


def _draw_panel(panel: Any, variants: Sequence[_Variant]) -> None:
    for position, variant in enumerate(variants):
        positions = [position] * len(variant.scores)
        panel.plot([position], [variant.mean], "_", color="C1", markersize=22)
        panel.plot(positions, variant.scores, "o", color="C0", markersize=4, clip_on=False)
    differing = short_options([variant.options for variant in variants])
    labels = ["\n".join(options.values()) for options in differing]
    longest = 0
    for label in labels:
        longest = max(longest, *map(len, label.split("\n")))
    rotation: dict[str, Any] = {}
    if longest > MAX_UPRIGHT_LABEL:
        rotation = {"rotation": 35, "ha": "right", "rotation_mode": "anchor"}
    panel.set_xticks(range(len(labels)), labels, fontsize=8, parse_math=False, **rotation)
    panel.set_xlabel(", ".join(differing[0]), fontsize=8, parse_math=False)
    panel.set_xlim(-0.6, len(labels) - 0.4)
    panel.grid(alpha=0.3)
    figures.start_at_zero(panel, min_top=1.0)


def _draw_rows(panel: Any, variants: Sequence[_Variant], score: str) -> None:
    lower_is_better = score == "valid_loss"
    ascending = sorted(variants, key=lambda variant: variant.mean, reverse=lower_is_better)
    for position, variant in enumerate(ascending):
        positions = [position] * len(variant.scores)
        panel.plot([variant.mean], [position], "|", color="C1", markersize=14)
        panel.plot(variant.scores, positions, "o", color="C0", markersize=4)
    labels = [", ".join(assignments(variant.options)) for variant in ascending]
    panel.set_yticks(range(len(labels)), labels, parse_math=False)
    panel.set_ylim(-0.6, len(labels) - 0.4)
    panel.set_xlabel(SCORES[score])
    panel.grid(alpha=0.3)
