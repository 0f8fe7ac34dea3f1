"""`nmt plot`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from nmt.errors import UsageError, suggest
from nmt.plot import AXES, draw


def plot(
    runs: Annotated[list[Path], typer.Argument(help="Folders of runs.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Picture: .png, .svg or .pdf.")] = Path("curves.png"),
    by: Annotated[str, typer.Option(help="Horizontal axis: updates, tokens or hours.")] = "updates",
) -> None:
    """Draw learning curves: training and validation loss, BLEU, learning rate, speed.

    Several runs share a picture, for comparing them, and a run may still be training. Needs matplotlib
    (pip install matplotlib).

    Examples:
      nmt plot runs/quickstart
      nmt plot runs/a runs/b --by hours -o comparison.svg
    """
    if by not in AXES:
        raise UsageError(f"unknown axis '{by}'", suggest(by, AXES))
    draw(list(dict.fromkeys(runs)), output, AXES[by])
    typer.echo(output)
