#!/usr/bin/env python3
"""Plot the results of experiments: a panel per sweep, a point per seed, and a dash for the mean.

    scripts/experiments/plot.py -o docs/figures/experiments.svg
    runs/experiments/{label_smoothing,warmup,vocabulary} scripts/experiments/plot.py -o
    docs/figures/architectures.svg --join runs/experiments/architectures/*
    scripts/experiments/plot.py -o docs/figures/beam_size.svg --table beam_size.md

With --join, all sweeps share one panel with a row per value. --table plots the columns of a table
printed by scripts/experiments/beam_size.sh as lines.
"""

from __future__ import annotations

import argparse
import re
import statistics
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from nmt.training.sweep import read_results


def main() -> None:
    """Plot sweeps or a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("sweeps", nargs="*", type=Path, help="sweep directories")
    parser.add_argument("--join", action="store_true", help="one panel for all sweeps")
    parser.add_argument("--table", type=Path, help="Markdown table with numbers")
    parser.add_argument(
        "--score", default="BLEU", choices=("BLEU", "chrF2", "valid_loss", "valid_bleu")
    )
    parser.add_argument("-o", "--output", type=Path, required=True)
    arguments = parser.parse_args()
    if not (arguments.sweeps or arguments.table) or (arguments.join and arguments.table):
        parser.error("pass sweep directories, or --table without --join")
    for sweep in arguments.sweeps:
        if not any(result.scores for result in read_results(sweep)):
            parser.error(f"{sweep} has no results of a sweep")
    if arguments.join:
        figure = draw_joined(arguments.sweeps, arguments.score)
    else:
        panels = [*arguments.sweeps, *([arguments.table] if arguments.table else [])]
        figure = Figure(
            figsize=(1 + 3 * len(panels) + 2 * bool(arguments.table), 3.4), layout="constrained"
        )
        axes = figure.subplots(1, len(panels), squeeze=False)[0]
        for panel, sweep in zip(axes, arguments.sweeps, strict=False):
            draw_sweep(panel, sweep, arguments.score)
        if arguments.table:
            draw_table(axes[-1], arguments.table)
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(
        arguments.output, metadata={"Date": None} if arguments.output.suffix == ".svg" else None
    )


def draw_sweep(panel: Any, directory: Path, score: str) -> None:
    """Plot the scores of a sweep by the values of its options."""
    scores: dict[str, list[float]] = {}
    for result in read_results(directory):
        if result.scores:
            scores.setdefault("\n".join(map(short, result.options.values())), []).append(
                result.scores[score]
            )
    names = list(scores)
    panel.plot(
        names, [statistics.mean(scores[name]) for name in names], "_", color="C1", markersize=22
    )
    for name in names:
        panel.plot([name] * len(scores[name]), scores[name], "o", color="C0", markersize=4)
    panel.set(title=directory.name.replace("_", " "), ylabel=label(score))
    panel.tick_params(axis="x", labelsize=8)
    panel.grid(alpha=0.3)


def draw_joined(directories: list[Path], score: str) -> Figure:
    """Plot the scores of several sweeps in one panel, a row per value, the best on top."""
    scores: dict[str, list[float]] = {}
    for directory in directories:
        for result in read_results(directory):
            name = ", ".join(
                f"{key.rpartition('.')[2]}={value}" for key, value in result.options.items()
            )
            if result.scores:
                scores.setdefault(name, []).append(result.scores[score])
    names = sorted(scores, key=lambda name: statistics.mean(scores[name]))
    figure = Figure(figsize=(8, 0.8 + 0.3 * len(names)), layout="constrained")
    panel = figure.subplots()
    panel.plot(
        [statistics.mean(scores[name]) for name in names], names, "|", color="C1", markersize=14
    )
    for name in names:
        panel.plot(scores[name], [name] * len(scores[name]), "o", color="C0", markersize=4)
    panel.set(xlabel=label(score))
    panel.grid(alpha=0.3)
    return figure


def label(score: str) -> str:
    """Return the label of an axis: validation scores are named `valid_bleu`, test scores `BLEU` or
    `chrF2`."""
    return score if score.startswith("valid") else f"test {score}"


def short(value: str) -> str:
    """Shorten a spec to its option values: `linear(peak=3e-3, warmup=300)` becomes `3e-3, 300`."""
    return ", ".join(re.findall(r"=\s*([^,)]+)", value)) or value


def draw_table(panel: Any, path: Path) -> None:
    """Plot each column of a table over the first column."""
    rows = [
        [cell.strip() for cell in line.strip().strip("|").split("|")]
        for line in path.read_text().splitlines()
    ]
    head, body = rows[0], [row for row in rows[1:] if not set("".join(row)) <= set("-")]
    for column in range(1, len(head)):
        panel.plot(
            [row[0] for row in body],
            [float(row[column]) for row in body],
            marker="o",
            label=head[column],
        )
    panel.set(title="", xlabel=head[0], ylabel="test BLEU")
    panel.grid(alpha=0.3)
    panel.legend(fontsize=8)


if __name__ == "__main__":
    main()
