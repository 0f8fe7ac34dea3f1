"""`nmt export`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def export(
    run: Annotated[Path, typer.Argument(help="A run, or one of its step-N folders.")],
    to: Annotated[str, typer.Option(help="Format: ctranslate2, safetensors, onnx or hf-marian.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Folder to make.", show_default="RUN/FORMAT")
    ] = None,
    verify_with: Annotated[
        Path | None,
        typer.Option(
            help="File of source sentences to compare on.", show_default="100 of the test set, or of the phrasebook"
        ),
    ] = None,
    min_agreement: Annotated[
        float, typer.Option(help="Minimum share of identical translations; otherwise the export is discarded.")
    ] = 0.99,
) -> None:
    """Export a model and verify that its translations are identical.

    Sentences are translated both ways, greedily and in float32. The report says how many translations are identical,
    how big both models are and how fast. What differs too much is refused.

    Examples:
      nmt export runs/multi30k --to ctranslate2
      nmt export runs/multi30k --to hf-marian --output en-de --verify-with news.en
      nmt export runs/multi30k --to "safetensors(weights='bf16')" --min-agreement 0.9
    """
    from nmt.export import verify

    verification = verify.export(run, to, output, verify_with, min_agreement)
    nmt_result, exported = verification.nmt, verification.exported
    for name, text in {
        "format": f"{to}, in {verification.folder}",
        "probe": f"{len(verification.sources)} sentences of {verification.source_name}, greedy, fp32, cpu",
        "identical": f"{verification.agreement:.1%}",
        "BLEU": f"{verification.bleu:.1f} against nmt's translations",
        "size": f"{exported.num_bytes / 1e6:,.1f} MB; nmt {nmt_result.num_bytes / 1e6:,.1f} MB",
        "speed": "{:,.0f} target tokens/s; nmt {:,.0f}".format(
            *map(verification.tokens_per_second, (exported, nmt_result))
        ),
    }.items():
        typer.echo(f"{name:<11}{text}")
    if difference := verification.first_difference():
        typer.echo(f"{'differs':<11}{difference}")
