"""`nmt sweep`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nmt.cli.options import ConfigOption, DeviceOption, SetOption
from nmt.core.console import format_table
from nmt.core.errors import UsageError
from nmt.jobs.output import show

if TYPE_CHECKING:
    from nmt.training.sweep import RunResult, SummaryRow

SCORE_LABELS = {
    "valid_loss": "valid loss",
    "valid_bleu": "valid BLEU",
    "BLEU": "test BLEU",
    "chrF2": "test chrF2",
}


def sweep(
    grid: Annotated[
        list[str],
        typer.Option(
            "--grid",
            metavar="KEY=V1,V2",
            help="Values of a config option; repeat for more options.",
        ),
    ],
    config: ConfigOption = "quickstart",
    set_: SetOption = None,
    seeds: Annotated[
        int,
        typer.Option(min=1, max=1000, help="Number of runs per combination, with seeds 1, 2, ..."),
    ] = 1,
    run: Annotated[
        Path | None,
        typer.Option("--run", help="Directory of the sweep.", show_default="runs/CONFIG-sweep"),
    ] = None,
    time_limit: Annotated[
        str | None,
        typer.Option(help="Wall-clock limit of each run: 90s, 30m, 2h.", show_default=False),
    ] = None,
    device: DeviceOption = "auto",
    json_: Annotated[bool, typer.Option("--json", help="Print the table as JSON.")] = False,
) -> None:
    """Train a grid of options over several seeds.

    Prints one line after each run, then a table with the mean and standard deviation over the seeds
    of each combination. Run the command again to resume a sweep. Values and seeds can be added
    later.

    Examples:
      nmt sweep --config multi30k --grid train.label_smoothing=0,0.1,0.2 --seeds 3 --time-limit 10m
      nmt sweep --grid model.dim=128,256 --grid model.norm_position=pre,post --run runs/small
    """
    import json
    from dataclasses import asdict

    from nmt.cli.duration import parse_duration
    from nmt.core.config.config_io import override_names
    from nmt.core.paths import runs_dir
    from nmt.training import sweep as sweeping

    limit = parse_duration(time_limit) if time_limit is not None else None
    plan = sweeping.Sweep(
        config,
        tuple(set_ or ()),
        sweeping.parse_grid(grid),
        tuple(range(1, seeds + 1)),
        limit,
        device,
    )
    for name in sorted(override_names(plan.common) & {*plan.grid, "seed"}):
        option = "--seeds" if name == "seed" else "--grid"
        raise UsageError(
            f"--set {name} and {option} set the same option", f"leave out --set {name}"
        )
    results = []
    directory = run or runs_dir() / f"{Path(config).stem}-sweep"
    for result in sweeping.run_sweep(plan, directory):
        results.append(result)
        if not json_:
            show(_line(result))
    rows = sweeping.summarize(plan, results)
    if json_:
        show(json.dumps([asdict(row) for row in rows], indent=2))
    else:
        show("")
        show("\n".join(_table(rows)))
    if any(result.exit_code for result in results):
        raise typer.Exit(1)


def _line(result: RunResult) -> str:
    if result.scores is None:
        return f"{result.name}: failed with exit code {result.exit_code}"
    scores = ", ".join(
        f"{label} {result.scores[name]:.2f}"
        for name, label in SCORE_LABELS.items()
        if name in result.scores
    )
    return f"{result.name}: {scores}, {result.updates:,} updates, {result.hours:.2f} h"


def _cell(mean: float, deviation: float | None) -> str:
    return f"{mean:.2f}" if deviation is None else f"{mean:.2f} ± {deviation:.2f}"


def _table(rows: list[SummaryRow]) -> list[str]:
    names = [name for name in SCORE_LABELS if any(name in row.scores for row in rows)]
    head = ["", *(SCORE_LABELS[name] for name in names), "hours", "runs"]
    body = []
    for row in rows:
        label = " ".join(f"{key.rpartition('.')[2]}={value}" for key, value in row.options.items())
        cells = [_cell(*row.scores[name]) if name in row.scores else "-" for name in names]
        failed = f", {row.num_failed} failed" if row.num_failed else ""
        body.append([label, *cells, f"{row.hours:.2f}", f"{row.num_finished}{failed}"])
    return format_table([head, *body])
