"""`nmt models`."""

from __future__ import annotations

from typing import Annotated

import typer

from nmt.core.layout import NO_BREAK_SPACE, format_table
from nmt.jobs.output import show, show_json


def models(
    src: Annotated[
        str, typer.Option(metavar="LANG", help="Source language.", show_default="all")
    ] = "",
    tgt: Annotated[
        str, typer.Option(metavar="LANG", help="Target language.", show_default="all")
    ] = "",
    json_: Annotated[
        bool, typer.Option("--json", help="Print JSON, with chrF and the sources of the values.")
    ] = False,
) -> None:
    """List models to translate with: pretrained and imported ones on disk, and published ones to
    download.

    Every command accepts the names for --model. A published model is imported to runs/NAME on first
    use. Other MarianMT models of the Hugging Face Hub work in the same way: --model OWNER/NAME. So
    do models of Firefox: --model firefox:en-de. Scores are BLEU as published.

    Examples:
      nmt models --src en
      nmt models --tgt de --json
    """
    from nmt.core.console import log
    from nmt.models.catalog import list_models
    from nmt.text.language_codes import find_language

    found = list_models(src, tgt)
    if json_:
        show_json(found)
        return
    rows = [["model", "languages", "MB", "license", "on disk", "BLEU"]]
    for model in found:
        scores = ", ".join(
            f"{test}{NO_BREAK_SPACE}{bleu:.1f}" for test, (bleu, _) in model.scores.items()
        )
        size = str(model.megabytes or "")
        on_disk = "yes" if model.path else ""
        license_ = " ".join(model.license.split())
        rows.append([model.name, f"{model.src}-{model.tgt}", size, license_, on_disk, scores])
    if not found:
        log(
            "no known model for these languages; --model OWNER/NAME uses any MarianMT model of the"
            " Hugging Face Hub"
        )
        for language in (src, tgt):
            code = find_language(language)
            if code not in ("", language.lower()):
                log(f"write the code of the language: {code}, not {language}")
    show("\n".join(format_table(rows, optional=(1,))))
