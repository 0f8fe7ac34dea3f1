"""`nmt info`."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Annotated

import typer

WIDTH = 120


def info(
    run: Annotated[Path | None, typer.Argument(help="A run's folder.", show_default="the newest under runs/")] = None,
    json_: Annotated[bool, typer.Option("--json", help="Print all of it as JSON.")] = False,
) -> None:
    """Show on one screen what a run is: model, data with checksums, training, machine, scores.

    The same stands in the run's README.md, its model card.

    Examples:
      nmt info
      nmt info runs/multi30k --json
    """
    from nmt.runs import discovery, pretrained
    from nmt.runs.model_card import describe
    from nmt.runs.run_info import collect

    run = run or discovery.newest_run()
    comes_along = pretrained.find(run)
    run = comes_along or run
    found = collect(run)
    if json_:
        import json

        typer.echo(json.dumps(found, indent=2, ensure_ascii=False))
        return
    typer.echo(run)
    for subject, lines in describe(found).items():
        for number, line in enumerate(lines):
            label = subject if number == 0 else ""
            typer.echo(
                textwrap.fill(line, WIDTH, initial_indent=f"{label:<11}", subsequent_indent=" " * 11,
                              break_long_words=False, break_on_hyphens=False)
            )  # fmt: skip
    if comes_along:
        typer.echo(f"{'card':<11}README.md in that folder tells of its earlier trainings, and how good it is")
