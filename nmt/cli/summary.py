"""`nmt summary`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nmt.cli.options import ConfigOption, SetOption
from nmt.cli.output import aligned, show
from nmt.errors import UsageError

if TYPE_CHECKING:
    from nmt.model.seq2seq import Seq2Seq
    from nmt.model.summary import LayerSummary


def summary(
    model: Annotated[
        Path | None, typer.Argument(help="A run or checkpoint.", show_default="what --config describes")
    ] = None,
    config: ConfigOption = "",
    set_: SetOption = None,
    json_: Annotated[bool, typer.Option("--json", help="Print the parts as JSON.")] = False,
) -> None:
    """Print what a model is made of: layers, shapes, parameters and their share.

    A config tells as much as a trained run; its tokenizer counts as having all the pieces it may have.

    Examples:
      nmt summary runs/quickstart
      nmt summary --config wmt14-base
      nmt summary --set model.position_encoding=shaw --set model.activation=swiglu
    """
    import json
    from dataclasses import asdict

    if model is not None and (config or set_):
        raise UsageError("give a model, or --config and --set", "nmt summary runs/quickstart")
    from nmt.model.summary import summarize

    made = _load(model) if model is not None else _make(config or "quickstart", set_ or [])
    found = summarize(made)
    show(json.dumps([asdict(part) for part in found], indent=2) if json_ else _table(made, found))


def _load(path: Path) -> Seq2Seq:
    from nmt.runs import discovery

    return discovery.load(path).model


def _make(name: str, changes: list[str]) -> Seq2Seq:
    from nmt.config import config_io
    from nmt.model.build import build_model

    config = config_io.load(config_io.find(name), changes)
    return build_model(config.model, config.tokenizer.vocab_size)


def _table(model: Seq2Seq, found: list[LayerSummary]) -> str:
    from nmt.model.build import count_parameters

    total = count_parameters(model)
    rows = [["part", "weight", "output", "parameters", "share", ""]]
    times: list[int] = []
    for part in found:
        times = [*times[: part.depth], part.times]
        count = part.parameters
        for each in times:
            count *= each
        of = f"{part.times} x {part.parameters:,}" if part.times > 1 else ""
        rows.append(
            [
                "  " * part.depth + part.name, " x ".join(map(str, part.weight)), _shape(part.output), f"{count:,}",
                f"{count / total:.1%}", "  ".join(filter(None, (part.kind, of))),
            ]
        )  # fmt: skip
    shared = model.config.layer_sharing if model.config.arch == "transformer" else 1
    last = f"{total:,} parameters, {4 * total / 1e6:,.1f} MB in float32"
    return "\n".join(
        [*aligned(rows), "", last + (f"; each layer runs up to {shared} times in a row" if shared > 1 else "")]
    )


def _shape(shape: tuple[int | str, ...]) -> str:
    return f"[{', '.join(map(str, shape))}]" if shape else ""
