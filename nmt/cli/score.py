"""`nmt score`."""

from __future__ import annotations

import json
from itertools import tee
from pathlib import Path
from typing import Annotated

import typer

from nmt.cli.options import DeviceOption, EncodingErrorsOption, ModelsOption, load_translator
from nmt.core.errors import check_choice
from nmt.jobs.output import OUTPUT_FORMATS, open_output, to_record


def score(
    src: Annotated[
        Path, typer.Option(help="Source file with one sentence per line.", show_default=False)
    ],
    tgt: Annotated[Path, typer.Option(help="Target file, aligned by line.", show_default=False)],
    model: ModelsOption = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Output file.", show_default="standard output"),
    ] = None,
    format: Annotated[
        str,
        typer.Option(
            help="Output format: text, or jsonl with the log-probability of each token and word"
            " alignments."
        ),
    ] = "text",
    device: DeviceOption = "auto",
    encoding_errors: EncodingErrorsOption = "strict",
) -> None:
    """Score given translations with a model (log p(target | source)).

    Prints one log-probability in nats per line, computed in float32. Use scores to filter noisy
    parallel data or to rank translations.

    Examples:
      nmt score --src test.en --tgt test.de
      nmt score --src test.en --tgt test.de --model runs/multi30k --format jsonl
    """
    check_choice("format", format, OUTPUT_FORMATS)

    from nmt.core.console import progress
    from nmt.core.paths import check_not_overwriting
    from nmt.data.pairs import count_lines, open_text, read_pairs

    for file in (src, tgt):
        open_text(file).close()
    check_not_overwriting([output], [src, tgt])
    translator = load_translator(model, device, "fp32")
    pairs, inputs = tee(read_pairs(src, tgt, errors=encoding_errors))
    with open_output(output) as write, progress(count_lines(src), "scoring", " pairs") as bar:
        for (source, target), translation in zip(inputs, translator.score(pairs), strict=True):
            if format == "jsonl":
                details = to_record(translation) | {"score": translation.log_prob}
                del details["text"]
                record = {"source": source, "target": target, **details}
                write(json.dumps(record, ensure_ascii=False))
            else:
                write(f"{translation.log_prob:.4f}")
            bar.update()
