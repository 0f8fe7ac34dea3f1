"""`nmt import`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def import_(
    source: Annotated[
        str,
        typer.Argument(
            help="Repository on the Hugging Face Hub (OWNER/NAME), model of Firefox"
            " (firefox:en-de), directory, or archive."
        ),
    ],
    run: Annotated[
        Path | None, typer.Option(help="Run directory to create.", show_default="runs/NAME")
    ] = None,
    revision: Annotated[
        str | None,
        typer.Option(
            help="Commit, branch or tag of the repository.", show_default="the latest commit"
        ),
    ] = None,
    src_lang: Annotated[
        str | None, typer.Option(help="Source language code.", show_default="the model's")
    ] = None,
    tgt_lang: Annotated[
        str | None, typer.Option(help="Target language code.", show_default="the model's")
    ] = None,
) -> None:
    """Import a published model as a run.

    Reads Marian models in the format of Hugging Face Transformers, such as those of OPUS-MT, Marian
    releases, models of Firefox, and exports of `nmt export` to transformers. Every command that
    uses a model works with the run, also train --init-from and export. nmt models lists published
    models.

    Examples:
      nmt import Helsinki-NLP/opus-mt-en-de
      nmt import "firefox:en-de(architecture='tiny')"
      nmt import opus-2020-02-26.zip --run runs/opus --src-lang en --tgt-lang de
      nmt train --init-from runs/opus --run runs/mine --set "data.train=files(train='mine')"
    """
    from nmt.models.importers import import_model

    typer.echo(import_model(source, run, revision, src_lang, tgt_lang))
