"""`nmt import`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def import_(
    source: Annotated[str, typer.Argument(help="Repository on the Hugging Face Hub (OWNER/NAME), or a directory.")],
    run: Annotated[Path | None, typer.Option(help="Run directory to create.", show_default="runs/NAME")] = None,
    revision: Annotated[
        str | None, typer.Option(help="Commit, branch or tag of the repository.", show_default="the latest commit")
    ] = None,
) -> None:
    """Import a published model as a run.

    Reads Marian models in the format of Hugging Face Transformers, such as those of OPUS-MT, and exports of
    `nmt export --to hf-marian`. Every command works with the run: translate, evaluate, train --init-from, export, ...

    Examples:
      nmt import Helsinki-NLP/opus-mt-en-de
      nmt import downloads/opus-mt-en-de --run runs/opus
      nmt train --init-from runs/opus --run runs/mine --set "data.train=files(train='mine')"
    """
    from nmt.imports import import_model

    typer.echo(import_model(source, run, revision))
