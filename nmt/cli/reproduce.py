"""`nmt reproduce`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from nmt.cli.options import DeviceOption
from nmt.core.console import SILENT, format_table
from nmt.jobs.output import show


def reproduce(
    run: Annotated[Path, typer.Argument(help="Run directory.")],
    into: Annotated[
        Path | None,
        typer.Option("--run", help="Directory of the new run.", show_default="RUN-again"),
    ] = None,
    changed: Annotated[
        bool,
        typer.Option(
            "--allow-changed-data", help="Continue if the data or the tokenizer has changed."
        ),
    ] = False,
    device: DeviceOption = "auto",
) -> None:
    """Train a run again from its recorded config and data and compare the results.

    Prepares the data again and compares its checksums before training. On the same machine with the
    same versions and without a time limit, the weights are bitwise identical. Exit code: 0 if they
    are, 3 if they are not. Run the command again to resume an interrupted reproduction.

    Example: nmt reproduce runs/quickstart
    """
    from nmt.runs import pretrained
    from nmt.train.reproduce import reproduce as retrain

    pretrained.reject_pretrained(run)
    run = run if run.name not in ("", "..") else run.resolve()
    result = retrain(
        run, into or run.with_name(f"{run.name}-again"), device=device, allow_changed_data=changed
    )
    if SILENT:  # rank 0 of torchrun reports
        return
    rows = [
        [name, f"{before:.3f}", f"{now:.3f}", ""] for name, (before, now) in result.scores.items()
    ]
    lines = format_table([["", str(result.original_run), str(result.new_run), ""], *rows])
    lines.append(
        "the weights are bitwise identical" if result.identical_weights else "the weights differ"
    )
    show(
        "\n".join(
            [*lines, *(f"  {each}" for each in result.differences if not result.identical_weights)]
        )
    )
    if not result.identical_weights:
        raise typer.Exit(3)
