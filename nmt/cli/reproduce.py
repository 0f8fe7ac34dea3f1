"""`nmt reproduce`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from nmt.cli.options import DeviceOption
from nmt.cli.output import aligned


def reproduce(
    run: Annotated[Path, typer.Argument(help="A run's folder.")],
    into: Annotated[Path | None, typer.Option("--run", help="Folder of the new run.", show_default="RUN-again")] = None,
    changed: Annotated[
        bool, typer.Option("--allow-changed-data", help="Go on where text or tokenizer are not those of the run.")
    ] = False,
    device: DeviceOption = "auto",
) -> None:
    """Train a run once more from its own record, and compare the two.

    The text is prepared anew and its checksums are compared first. On the same machine, with the same versions and
    without a time limit, the weights come out equal to the last bit. Exit code: 0 where they do, 3 where they do not. A
    reproduction that was stopped goes on by the same command.

    Example: nmt reproduce runs/quickstart
    """
    from nmt.runs import pretrained
    from nmt.train.reproduce import reproduce as again

    pretrained.reject_pretrained(run)
    found = again(run, into or run.with_name(f"{run.name}-again"), device=device, allow_changed_data=changed)
    rows = [[name, f"{before:.3f}", f"{now:.3f}", ""] for name, (before, now) in found.scores.items()]
    for line in aligned([["", str(found.original_run), str(found.new_run), ""], *rows]):
        typer.echo(line)
    typer.echo("the weights are equal to the last bit" if found.identical_weights else "the weights differ")
    for difference in () if found.identical_weights else found.differences:
        typer.echo(f"  {difference}")
    if not found.identical_weights:
        raise typer.Exit(3)
