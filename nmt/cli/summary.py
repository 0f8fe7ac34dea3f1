"""`nmt summary`."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nmt.cli.options import ConfigOption, JsonOption, SetOption
from nmt.core.console import format_bytes
from nmt.core.errors import UsageError
from nmt.core.layout import format_table, wrap
from nmt.jobs.output import show

if TYPE_CHECKING:
    from nmt.model.seq2seq import Seq2Seq
    from nmt.model.summary import LayerSummary


def summary(
    model: Annotated[
        Path | None,
        typer.Argument(
            help="Run or checkpoint directory, or the name of a pretrained or published model.",
            show_default="the model of --config",
        ),
    ] = None,
    config: ConfigOption = "",
    set_: SetOption = None,
    json_: JsonOption = False,
) -> None:
    """Show a model's layers, shapes and parameter counts.

    Use --config to see the model of a config before training. Its vocabulary has
    tokenizer.vocab_size tokens.

    Examples:
      nmt summary runs/quickstart
      nmt summary --config wmt14-base
      nmt summary --set model.position_encoding=shaw --set model.activation=swiglu
    """
    import json
    from dataclasses import asdict

    if model is not None and (config or set_):
        raise UsageError(
            "pass either a model, or --config and --set", "for example nmt summary runs/quickstart"
        )
    from nmt.model.build import build_model
    from nmt.model.summary import summarize
    from nmt.models import discovery
    from nmt.training import configs

    if model is not None:
        module = discovery.load(model).model
    else:
        resolved = configs.load_checked(config, set_ or [])
        module = build_model(resolved.model, resolved.tokenizer.vocab_size)
    model_parts = summarize(module)
    show(
        json.dumps([asdict(part) for part in model_parts], indent=2)
        if json_
        else format_summary(module, model_parts)
    )


def format_summary(model: Seq2Seq, model_parts: list[LayerSummary]) -> str:
    """Return a table of the parts of a model. Identical layers are one row."""
    from nmt.model.build import count_parameters

    total = count_parameters(model)
    rows = [["part", "weight", "output", "parameters", "share", ""]]
    repeats: list[int] = []
    for part in model_parts:
        repeats = [*repeats[: part.depth], part.times]
        count = part.parameters * math.prod(repeats)
        repeated = f"{part.times} x {part.parameters:,}" if part.times > 1 else ""
        rows.append(
            [
                "  " * part.depth + part.name,
                " x ".join(map(str, part.weight)),
                _format_shape(part.output),
                f"{count:,}",
                f"{count / total:.1%}",
                "  ".join(filter(None, (part.kind, repeated))),
            ]
        )
    totals = f"{total:,} parameters, {format_bytes(4 * total)} in float32"
    if model.layer_sharing > 1:
        num_layers = max(model.config.encoder_layers, model.config.decoder_layers)
        uses = min(model.layer_sharing, num_layers)
        totals += f"; each layer is applied up to {uses} times"
    return "\n".join([*format_table(rows, optional=(5, 4, 2)), "", *wrap(totals)])


def _format_shape(shape: tuple[int | str, ...]) -> str:
    return f"[{', '.join(map(str, shape))}]" if shape else ""
