"""`nmt average`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from nmt.errors import UsageError


def average(
    run: Annotated[Path, typer.Argument(help="A run's folder.")],
    last: Annotated[int, typer.Option(help="Latest checkpoints to average.")] = 5,
) -> None:
    """Average the weights of a run's latest checkpoints and print the folder of the result.

    The mean of weights from the end of a training often translates better than any of them. Keep enough checkpoints
    with --set train.keep_last=5, or let training do it by itself with --set train.average_last=5.

    Examples:
      nmt average runs/multi30k --last 2
      nmt evaluate --model runs/multi30k/average-2
    """
    if last < 2:
        raise UsageError(f"--last must be at least 2, got {last}")

    from nmt.runs import checkpoint, pretrained

    pretrained.reject_pretrained(run)
    typer.echo(checkpoint.average(run, last))
