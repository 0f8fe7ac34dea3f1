"""`nmt average`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from nmt.core.errors import UsageError


def average(
    first: Annotated[
        Path, typer.Argument(metavar="RUN", help="Run directory; with SECOND, any model.")
    ],
    second: Annotated[
        Path | None,
        typer.Argument(
            metavar="SECOND", help="Second model, usually fine-tuned from RUN: average both models."
        ),
    ] = None,
    last: Annotated[
        int | None,
        typer.Option(
            help="Number of latest checkpoints to average; see train.keep_last.", show_default="5"
        ),
    ] = None,
    share: Annotated[
        float | None,
        typer.Option(help="Share of SECOND in the average, between 0 and 1.", show_default="0.5"),
    ] = None,
    run: Annotated[
        Path | None,
        typer.Option(
            help="Run to create from RUN and SECOND.", show_default="SECOND-average-SHARE"
        ),
    ] = None,
) -> None:
    """Average the latest checkpoints of a run, or two models.

    Prints the directory of the result. With a schedule that does not decay to zero, such as noam,
    the average often translates better than any checkpoint. Keep enough of them with --set
    train.keep_last=5, or average automatically at the end of training with --set
    train.average_last=5.

    The average of a model and its fine-tuned version, a new run, keeps most of the gain in the new
    domain and loses less on other text (Wortsman et al. 2022). Models or checkpoints must have the
    same tokenizer and model options.

    Examples:
      nmt average runs/multi30k --last 2
      nmt evaluate --model runs/multi30k/average-2
      nmt average runs/base runs/tuned --share 0.3
    """
    if second is not None:
        if last is not None:
            raise UsageError(
                "--last averages the checkpoints of one run", "leave out --last or the second run"
            )
        from nmt.models.discovery import find_model
        from nmt.runs.interpolation import interpolate_models

        first_model = find_model(first)
        second_model = find_model(second)
        typer.echo(
            interpolate_models(first_model, second_model, 0.5 if share is None else share, run)
        )
        return
    for name, value in (("--share", share), ("--run", run)):
        if value is not None:
            raise UsageError(
                f"{name} needs two runs", "for example nmt average runs/base runs/tuned --share 0.3"
            )
    last = 5 if last is None else last
    if last < 2:
        raise UsageError(f"--last must be at least 2, got {last}")

    from nmt.runs import checkpoint, pretrained
    from nmt.runs.model_files import load_settings

    pretrained.reject_pretrained(first)
    if checkpoint.checkpoints(first) and last > (
        keep_last := load_settings(first)[0].train.keep_last
    ):
        raise UsageError(
            f"{first} keeps its {keep_last} latest checkpoints",
            f"reduce --last, or train with train.keep_last={last}",
        )
    typer.echo(checkpoint.average(first, last))
