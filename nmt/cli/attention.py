"""`nmt attention`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from nmt.cli.options import ModelOption, SearchOption
from nmt.cli.output import write_file
from nmt.errors import UsageError, suggest

WIDEST = 120


def attention(
    text: Annotated[str, typer.Argument(help="A sentence.", show_default=False)],
    model: ModelOption = None,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="A page (.html), its data (.json), or a picture (.png, .svg, .pdf).")
    ] = Path("attention.html"),
    target: Annotated[
        str | None, typer.Option(help="A translation to look at.", show_default="the search's best")
    ] = None,
    search: SearchOption = "",
    part: Annotated[
        str | None, typer.Option(help="Of a picture: encoder, decoder or cross.", show_default="cross")
    ] = None,
    layer: Annotated[int | None, typer.Option(min=1, help="Of a picture, from 1.", show_default="the last")] = None,
) -> None:
    """Show what a model looks at while it translates a sentence.

    The page needs no network: choose encoder, decoder or source attention, a layer and heads, and point at a word to
    see what it looks at. Below stand what the search found and how probable each piece was.

    Examples:
      nmt attention "The animal didn't cross the street because it was too tired"
      nmt attention "Are we done?" --model runs/multi30k -o attention.png --part encoder --layer 2
    """
    import json

    from nmt.console import log
    from nmt.runs import discovery
    from nmt.viz.attention_maps import PARTS, attention_maps, draw
    from nmt.viz.figures import check_format

    check_format(output, ".html", ".json")
    suffix = output.suffix.lower()
    if part is not None and part not in PARTS:
        raise UsageError(f"unknown part '{part}'", suggest(part, PARTS))
    if suffix in (".html", ".json") and (part or layer):
        raise UsageError("--part and --layer are for pictures", f"leave them out: a {suffix} file has all of them")
    path = model or discovery.newest_run()
    if model is None:
        log(f"using {path}")
    maps = attention_maps(discovery.load(path), text, target=target, spec=search or None)
    if suffix == ".html":
        write_file(output, maps.to_html())
    elif suffix == ".json":
        write_file(output, json.dumps(maps.to_dict(), ensure_ascii=False) + "\n")
    else:
        shown = part or "cross"
        draw(maps, output, shown, layer if layer is not None else len(maps.weights.get(shown, ())))
    log(f"{maps.source_text} -> {maps.translation}"[:WIDEST])
    typer.echo(output)
