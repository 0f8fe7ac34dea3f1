"""`nmt average`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from nmt.errors import UsageError


def average(
    run: Annotated[Path, typer.Argument(help="Run directory.")],
    last: Annotated[int, typer.Option(help="Number of latest checkpoints to average.")] = 5,
) -> None:
    """Average the latest checkpoints of a run.

    Prints the directory of the averaged checkpoint. Averaged weights often translate better than any single
    checkpoint. Keep enough checkpoints with --set train.keep_last=5, or average automatically at the end of training
    with --set train.average_last=5.

    Examples:
      nmt average runs/multi30k --last 2
      nmt evaluate --model runs/multi30k/average-2
    """
    if last < 2:
        raise UsageError(f"--last must be at least 2, got {last}")

    from nmt.runs import checkpoint, pretrained

    pretrained.reject_pretrained(run)
    typer.echo(checkpoint.average(run, last))
