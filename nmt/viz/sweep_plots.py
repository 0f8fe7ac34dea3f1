"""Plot the scores of sweeps: a point per seed and a dash for the mean of each combination."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nmt.core.errors import UsageError
from nmt.runs.sweep_results import Options, read_results, short_options
from nmt.viz import figures

SCORES = {
    "BLEU": "test BLEU",
    "chrF2": "test chrF2",
    "valid_bleu": "validation BLEU",
    "valid_loss": "validation loss",
}
"""Scores of a sweep, with the labels of their axes."""
MAX_UPRIGHT_LABEL = 8
"""Longer labels below a panel are rotated."""


@dataclass(frozen=True)
class _Variant:
    """A combination of a sweep with the scores of its seeds."""

    options: dict[str, str]
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
    groups = {sweep: _read(sweep, score) for sweep in sweeps}
    if join:
        variants = [variant for group in groups.values() for variant in group]
        figure = figures.figure(output, 8, 0.8 + 0.3 * len(variants))
        _draw_rows(figure.subplots(), variants, score)
    else:
        # A panel needs a minimum width, and a place for each combination.
        widths = [max(3.0, 1.0 + 0.45 * len(group)) for group in groups.values()]
        figure = figures.figure(output, 0.5 + sum(widths), 3.6)
        panels = figure.subplots(1, len(groups), squeeze=False, width_ratios=widths)[0]
        for panel, (sweep, group) in zip(panels, groups.items(), strict=True):
            _draw_panel(panel, sweep, group)
        panels[0].set_ylabel(SCORES[score])
    figures.save(figure, output)


def _read(directory: Path, score: str) -> list[_Variant]:
    """Return the combinations of a sweep, in the order of its results."""
    variants: list[_Variant] = []
    for result in read_results(directory):
        if not result.scores or score not in result.scores:
            continue
        value = result.scores[score]
        for variant in variants:
            if variant.options == result.options:
                variant.scores.append(value)
                break
        else:
            variants.append(_Variant(result.options, [value]))
    if not variants:
        raise UsageError(
            f"{directory} has no results of a sweep with {SCORES[score]}",
            "give the --run of nmt sweep, such as runs/quickstart-sweep",
        )
    return variants


def _draw_panel(panel: Any, directory: Path, variants: Sequence[_Variant]) -> None:
    differing = short_options([variant.options for variant in variants])
    labels = ["\n".join(options.values()) for options in differing]
    for position, variant in enumerate(variants):
        panel.plot([position], [variant.mean], "_", color="C1", markersize=22)
        panel.plot([position] * len(variant.scores), variant.scores, "o", color="C0", markersize=4)
    is_long = any(len(line) > MAX_UPRIGHT_LABEL for label in labels for line in label.split("\n"))
    rotation = {"rotation": 35, "ha": "right", "rotation_mode": "anchor"} if is_long else {}
    panel.set_xticks(range(len(labels)), labels, fontsize=8, parse_math=False, **rotation)
    panel.set_xlabel(", ".join(differing[0]), fontsize=8, parse_math=False)
    panel.set_xlim(-0.6, len(labels) - 0.4)
    panel.set_title(directory.resolve().name.replace("_", " "), parse_math=False)
    panel.grid(alpha=0.3)


def _draw_rows(panel: Any, variants: Sequence[_Variant], score: str) -> None:
    ascending = sorted(variants, key=lambda variant: variant.mean, reverse=score == "valid_loss")
    for position, variant in enumerate(ascending):
        panel.plot([variant.mean], [position], "|", color="C1", markersize=14)
        panel.plot(variant.scores, [position] * len(variant.scores), "o", color="C0", markersize=4)
    labels = [", ".join(_assignments(variant.options)) for variant in ascending]
    panel.set_yticks(range(len(labels)), labels, parse_math=False)
    panel.set_xlabel(SCORES[score])
    panel.grid(alpha=0.3)


def _assignments(options: Options) -> list[str]:
    return [f"{key.rpartition('.')[2]}={value}" for key, value in options.items()]
