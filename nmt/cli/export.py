"""`nmt export`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from nmt.jobs.output import show


def export(
    run: Annotated[
        Path,
        typer.Argument(
            help="Run or checkpoint directory, or the name of a pretrained or published model."
        ),
    ],
    to: Annotated[
        str, typer.Option(help="Format: ctranslate2, safetensors, onnx, transformers or firefox.")
    ],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Output directory.", show_default="RUN/FORMAT"),
    ] = None,
    verify_with: Annotated[
        Path | None,
        typer.Option(
            help="File with source sentences for the verification.",
            show_default="100 lines of the test or validation set, else of the phrasebook",
        ),
    ] = None,
    min_agreement: Annotated[
        float,
        typer.Option(
            help=(
                "Minimum share of identical translations (0.99: 99%), else the export is discarded."
            )
        ),
    ] = 0.99,
) -> None:
    """Export a model and verify that it reproduces the translations.

    Translates sentences with both models, with greedy search in float32, for Firefox in int8.
    Reports the share of identical translations, and the size and speed of both models.

    Examples:
      nmt export runs/multi30k --to ctranslate2
      nmt export runs/quickstart --to transformers --output en-de --verify-with news.en
      nmt export runs/multi30k --to "safetensors(weights='bf16')" --min-agreement 0.9
    """
    from nmt.core.console import format_bytes
    from nmt.core.layout import format_fields
    from nmt.core.registry import parse
    from nmt.export import REFERENCES, verify

    result = verify.export_and_verify(run, to, output, verify_with, min_agreement)
    original, exported = result.nmt, result.exported
    precision = "int8" if parse(to)[0] in REFERENCES else "fp32"
    search = f"greedy, {precision}, cpu"
    fields = {
        "format": f"{to}, in {result.directory}",
        "data": f"{len(result.sources)} sentences of {result.source_name}, {search}",
        "identical": f"{result.agreement:.1%}",
        "BLEU": f"{result.bleu:.1f} against nmt's translations",
        "size": f"{format_bytes(exported.num_bytes)}; nmt {format_bytes(original.num_bytes)}",
        "speed": "{:,.0f} target tokens/s; nmt {:,.0f}".format(
            *map(result.tokens_per_second, (exported, original))
        ),
    }
    if difference := result.first_difference():
        fields["differs"] = difference
    show("\n".join(format_fields(fields)))
