"""`nmt score`."""

from __future__ import annotations

import json
from dataclasses import asdict
from itertools import tee
from pathlib import Path
from typing import Annotated

import typer

from nmt.cli.options import DeviceOption, ErrorsOption, ModelsOption, check_errors
from nmt.cli.output import check_format, open_output
from nmt.errors import UsageError


def score(
    src: Annotated[Path, typer.Option(help="Source file, a sentence a line.", show_default=False)],
    tgt: Annotated[Path, typer.Option(help="Its translations, line by line.", show_default=False)],
    model: ModelsOption = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="File to write to.")] = None,
    per_token: Annotated[bool, typer.Option("--per-token", help="Divide by the tokens, the end counted.")] = False,
    format: Annotated[str, typer.Option(help="text, or jsonl: with every token's share and word alignment.")] = "text",
    device: DeviceOption = "auto",
    errors: ErrorsOption = "strict",
) -> None:
    """Print how probable a model finds given translations: log p(target | source) in nats, a line for each pair.

    Computed in float32. Sort a corpus by it to find pairs that are no translations, or rank what others translated.

    Examples:
      nmt score --src test.en --tgt test.de
      nmt score --src test.en --tgt test.de --per-token --model runs/multi30k
      nmt score --src test.en --tgt test.de --format jsonl
    """
    check_errors(errors)
    check_format(format)

    from nmt.console import log, progress
    from nmt.data.pairs import count_lines, open_text, read_pairs
    from nmt.inference.translator import Translator
    from nmt.runs import discovery

    for file in (src, tgt):
        open_text(file).close()
        if output and output.exists() and output.samefile(file):
            raise UsageError(f"--output {output} is a file that is read", "name another one")
    translator = Translator.load(model or [discovery.newest_run()], device, "fp32")
    if model is None:
        log(f"using {translator.checkpoint}")
    pairs, given = tee(read_pairs(src, tgt, errors=errors))
    with open_output(output) as write, progress(count_lines(src), "scoring", " pairs") as bar:
        for (source, target), scored in zip(given, translator.score(pairs), strict=True):
            value = scored.log_prob / max(1, len(scored.tokens)) if per_token else scored.log_prob
            record = {"source": source, "target": target, "score": value, **_without_text(asdict(scored))}
            write(json.dumps(record, ensure_ascii=False) if format == "jsonl" else f"{value:.4f}")
            bar.update()


def _without_text(record: dict[str, object]) -> dict[str, object]:
    return {key: value for key, value in record.items() if key not in ("text", "score")}
