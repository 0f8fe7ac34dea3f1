"""Options that several commands share."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, cast

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
ModelsOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--model", "-m", help="A run, or one of its step-N folders; several translate together.",
        show_default="the newest under runs/",
    ),
]  # fmt: skip
DeviceOption = Annotated[str, typer.Option(help="auto, cpu or cuda.")]
SearchPrecisionOption = Annotated[
    str, typer.Option("--precision", help="auto, fp32, bf16, fp16 or int8: auto takes what is fast here.")
]
PrecisionOption = Annotated[str, typer.Option(help="auto, fp32, bf16 or fp16: auto takes what is fast here.")]
SearchOption = Annotated[
    str, typer.Option(help="Search in full: greedy, beam(size=4, top=1, length_penalty=1.0).", show_default=False)
]
ErrorsOption = Annotated[str, typer.Option(help="What invalid UTF-8 does: strict stops, replace puts U+FFFD.")]


def check_errors(value: str) -> None:
    """Raise a UsageError unless `value` is a way to treat invalid UTF-8."""
    if value not in ("strict", "replace"):
        raise UsageError(f"--errors must be strict or replace, got '{value}'")


def argument_lines(arguments: list[str], errors: str) -> Iterator[str]:
    """Yield the lines of sentences given on the command line; what of them is not UTF-8 arrives as surrogates."""
    from nmt.data.pairs import decode_lines

    raw = (line.encode("utf-8", "surrogateescape") for argument in arguments for line in argument.split("\n"))
    return decode_lines(raw, "the sentences given", errors)


def search_spec(
    given: str, default: str, beam_size: int | None, top_beams: int | None, length_penalty: float | None
) -> str:
    """Return the spec string of the search that the options ask for.

    Args:
        given: --search; it may be narrowed by the other options, but not turned into another search.
        default: what the model's config says; options of a beam search turn it into one.
        beam_size: --beam-size.
        top_beams: --top-beams.
        length_penalty: --length-penalty.

    Raises:
        UsageError: a length penalty that is no number, or options that the search given has not.
    """
    if length_penalty is not None and not math.isfinite(length_penalty):
        raise UsageError(f"--length-penalty must be a number, got {length_penalty}", "1.0 is usual")
    asked = {"size": beam_size, "top": top_beams, "length_penalty": length_penalty}
    asked = {key: value for key, value in asked.items() if value is not None}
    spec = given or default
    name, options = parse(spec)
    if name not in ("beam", "diverse", "constrained"):
        if not asked or (name == "greedy" and asked.keys() <= {"size", "top"} and set(asked.values()) == {1}):
            return spec
        if given:
            raise UsageError(f"--search {given} is no beam search", "leave out --search, or the options of a beam")
        name, options = "beam", {}
    options |= asked
    if top_beams and beam_size is None:
        from nmt.search import SEARCHES

        groups = options.get("groups", 2) if name == "diverse" else 1
        size = options.get("size", cast(Any, SEARCHES[name]).size)
        if top_beams > size:
            options["size"] = -(-top_beams // groups) * groups
    return f"{name}({', '.join(f'{key}={value!r}' for key, value in options.items())})"
