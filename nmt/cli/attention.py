"""`nmt attention`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from nmt.cli.options import ModelOption, SearchOption
from nmt.core.errors import UsageError, check_choice
from nmt.jobs.output import write_file

MAX_LOG_CHARACTERS = 120


def attention(
    text: Annotated[str, typer.Argument(help="Source sentence.", show_default=False)],
    model: ModelOption = None,
    output: Annotated[
        Path,
        typer.Option(
            "--output",
            "-o",
            help="Output file: .html (interactive), .json (data), .png, .svg or .pdf.",
        ),
    ] = Path("attention.html"),
    target: Annotated[
        str | None,
        typer.Option(help="Target sentence to force-decode.", show_default="the search's best"),
    ] = None,
    search: SearchOption = "",
    part: Annotated[
        str | None,
        typer.Option(
            help="Attention that the image or page shows: encoder, decoder or cross.",
            show_default="cross",
        ),
    ] = None,
    layer: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Layer that the image or page shows, starting at 1.",
            show_default="the last",
        ),
    ] = None,
) -> None:
    """Visualize attention maps for a sentence.

    The HTML page is self-contained. Choose encoder, decoder or cross-attention, a layer and heads,
    and lines or matrices; point at a token to see its attention weights. The page also lists the
    hypotheses and the probability of each token.

    Examples:
      nmt attention "The animal didn't cross the street because it was too tired"
      nmt attention "Are we done?" --model runs/multi30k -o attention.png --part encoder --layer 2
    """
    import json

    from nmt.core.console import log
    from nmt.models import discovery
    from nmt.viz.attention_maps import PARTS, attention_maps, draw
    from nmt.viz.figures import check_figure_format

    check_figure_format(output, ".html", ".json")
    suffix = output.suffix.lower()
    if part is not None:
        check_choice("part", part, PARTS)
    if suffix == ".json" and (part or layer):
        raise UsageError(
            "--part and --layer apply to images and pages only",
            "a .json file includes all parts and layers",
        )
    if target is not None and search:
        raise UsageError(
            "--target and --search cannot be combined", "leave out --search: nothing is searched"
        )
    path = model or discovery.newest_model()
    if model is None:
        log(f"using {path}")
    maps = attention_maps(discovery.load(path), text, target=target, search=search or None)
    part = part or "cross"
    if suffix == ".html":
        write_file(output, maps.to_html(part, layer))
    elif suffix == ".json":
        write_file(output, json.dumps(maps.to_dict(), ensure_ascii=False) + "\n")
    else:
        draw(maps, output, part, layer)
    log(f"{maps.source_text} -> {maps.translation}"[:MAX_LOG_CHARACTERS])
    typer.echo(output)
