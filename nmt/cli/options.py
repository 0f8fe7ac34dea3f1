"""Options that several commands share."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated

import typer

from nmt.errors import UsageError
from nmt.registry import parse

ConfigOption = Annotated[
    str, typer.Option("--config", "-c", help="A YAML file, or the name of a shipped one: quickstart, multi30k, ...")
]
SetOption = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change an option: --set train.steps=1000.")
]
ModelOption = Annotated[
    Path | None,
    typer.Option("--model", "-m", help="A run, or one of its step-N folders.", show_default="the newest under runs/"),
]
DeviceOption = Annotated[str, typer.Option(help="auto, cpu or cuda.")]
SearchOption = Annotated[
    str, typer.Option(help="Search in full: greedy, beam(size=4, top=1, length_penalty=1.0).", show_default=False)
]
ErrorsOption = Annotated[str, typer.Option(help="What invalid UTF-8 does: strict stops, replace puts U+FFFD.")]


def check_errors(value: str) -> str:
    """Return `value` if it is a way to treat invalid UTF-8."""
    if value not in ("strict", "replace"):
        raise UsageError(f"--errors must be strict or replace, got '{value}'")
    return value


def search_spec(spec: str, beam_size: int | None, top_beams: int | None, length_penalty: float | None) -> str:
    """Return the search's spec string with the options of the command line put in.

    Raises:
        UsageError: a length penalty that is no number.
    """
    if length_penalty is not None and not math.isfinite(length_penalty):
        raise UsageError(f"--length-penalty must be a number, got {length_penalty}", "1.0 is usual")
    name, options = parse(spec)
    given = {"size": beam_size, "top": top_beams, "length_penalty": length_penalty}
    if name != "beam":
        if all(value is None or value == 1 for value in given.values()):
            return spec
        name, options = "beam", {}
    options |= {key: value for key, value in given.items() if value is not None}
    if top_beams and top_beams > 1 and beam_size is None:
        options["size"] = max(options.get("size", 4), top_beams)
    return f"{name}({', '.join(f'{key}={value!r}' for key, value in options.items())})"
