"""`nmt sweep`."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nmt.cli.options import ConfigOption, DeviceOption, PrecisionOption, SetOption
from nmt.core.console import counted, format_duration, log
from nmt.core.errors import UsageError, check_choice
from nmt.core.layout import wrap
from nmt.jobs.output import show, show_json
from nmt.jobs.tables import TABLE_FORMATS

if TYPE_CHECKING:
    from nmt.runs.sweep_results import RunResult, SummaryRow

INTERRUPTED = 130
"""Exit code after Ctrl-C: 128 and the number of the signal."""
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
    precision: PrecisionOption = "auto",
    format_: Annotated[
        str, typer.Option("--format", help="Format of the table: text, md, latex or csv.")
    ] = "text",
    json_: Annotated[bool, typer.Option("--json", help="Print the table as JSON.")] = False,
) -> None:
    """Train a grid of options over several seeds.

    Prints one line after each run, then a table with the mean and standard deviation over the seeds
    of each combination. An asterisk marks a significant difference from the first combination. Run
    the command again to resume a sweep, or to print its table. Values and seeds can be added later.
    With --precision auto, models of different sizes may be trained in different precisions.

    Examples:
      nmt sweep --config multi30k --grid train.label_smoothing=0,0.1,0.2 --seeds 3 --time-limit 10m
      nmt sweep --grid model.dim=128,256 --grid model.norm_position=pre,post --precision bf16
      nmt sweep --grid model.dim=128,256 --seeds 4 --set "train.loggers=[wandb]" --format latex
    """

    from nmt.cli.duration import parse_duration
    from nmt.core.config.config_io import override_names
    from nmt.core.paths import runs_dir
    from nmt.runs.sweep_results import Sweep, summarize
    from nmt.training.sweep import parse_grid, run_sweep

    check_choice("table format", format_, TABLE_FORMATS)
    if json_ and format_ != "text":
        raise UsageError("--json and --format cannot be combined", "leave out one of them")
    limit = parse_duration(time_limit) if time_limit is not None else None
    plan = Sweep(
        config,
        tuple(set_ or ()),
        parse_grid(grid),
        tuple(range(1, seeds + 1)),
        limit,
        device,
        precision,
    )
    for name in sorted(override_names(plan.common) & {*plan.grid, "seed"}):
        option = "--seeds" if name == "seed" else "--grid"
        raise UsageError(
            f"--set {name} and {option} set the same option", f"leave out --set {name}"
        )
    results = []
    directory = run or runs_dir() / f"{Path(config).stem}-sweep"
    try:
        for result in run_sweep(plan, directory):
            results.append(result)
            if json_ or format_ != "text":
                log(_line(result))
            else:
                show("\n".join(wrap(_line(result), indent="  ")))
    except KeyboardInterrupt:
        command = shlex.join(["nmt", *sys.argv[1:]])
        log(f"interrupted; continue the sweep with: {command}")
        raise typer.Exit(INTERRUPTED) from None
    rows = summarize(plan, results)
    if json_:
        show_json(rows)
    else:
        if format_ == "text":
            show("")
        table = _numbers(rows) if format_ == "csv" else _cells(rows)
        show(TABLE_FORMATS[format_](table, len(plan.grid)))
        _explain_significance(rows)
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
    duration = format_duration(3600 * result.hours)
    return f"{result.name}: {scores}, {result.updates:,} updates, {duration}"


def _score_names(rows: list[SummaryRow]) -> list[str]:
    return [name for name in SCORE_LABELS if any(name in row.scores for row in rows)]


def _cells(rows: list[SummaryRow]) -> list[list[str]]:
    """Return the table for readers."""
    names = _score_names(rows)
    options = [key.rpartition(".")[2] for key in rows[0].options]
    table = [[*options, *(SCORE_LABELS[name] for name in names), "time", "runs"]]
    for row in rows:
        scores = [_cell(row, name) for name in names]
        failed = f", {row.num_failed} failed" if row.num_failed else ""
        runs = f"{row.num_finished}{failed}"
        duration = format_duration(3600 * row.hours)
        table.append([*row.options.values(), *scores, duration, runs])
    return table


def _cell(row: SummaryRow, name: str) -> str:
    from nmt.runs.sweep_results import SIGNIFICANT

    if name not in row.scores:
        return "-"
    mean, deviation = row.scores[name]
    text = f"{mean:.2f}" if deviation is None else f"{mean:.2f} ± {deviation:.2f}"
    return f"{text} *" if row.p_values.get(name, 1.0) < SIGNIFICANT else text


def _numbers(rows: list[SummaryRow]) -> list[list[str]]:
    """Return the table for programs."""
    names = _score_names(rows)
    columns = [f"{name} {part}" for name in names for part in ("mean", "sd", "p")]
    table = [[*rows[0].options, *columns, "hours", "runs", "failed"]]
    for row in rows:
        line = list(row.options.values())
        for name in names:
            mean, deviation = row.scores.get(name, (None, None))
            values = (mean, deviation, row.p_values.get(name))
            line += ["" if value is None else f"{value:.6g}" for value in values]
        line += [f"{row.hours:.6g}", str(row.num_finished), str(row.num_failed)]
        table.append(line)
    return table


def _explain_significance(rows: list[SummaryRow]) -> None:
    """Log what an asterisk means, or why there can be none."""
    from nmt.runs.sweep_results import SIGNIFICANT, min_p_value

    first, *others = [row.num_finished for row in rows]
    if not others:
        return
    possible = [number for number in others if min_p_value(first, number) < SIGNIFICANT]
    if first and possible:
        log(
            f"* differs from the first row (p < {SIGNIFICANT}, permutation test over seeds, not"
            " corrected for the number of comparisons)"
        )
    else:
        fewest = counted(min(first, *others), "seed")
        log(f"{fewest}: too few for p < {SIGNIFICANT}; use --seeds 4 or more to test differences")
