"""Options that several commands share."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from nmt.errors import UsageError
from nmt.registry import compose, parse

if TYPE_CHECKING:
    from nmt.config import DataConfig
    from nmt.evaluate.test_sets import TestSet

ConfigOption = Annotated[
    str, typer.Option("--config", "-c", help="A YAML file, or the name of a shipped one: quickstart, multi30k, ...")
]
SetOption = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change an option: --set train.steps=1000.")
]
ModelOption = Annotated[
    Path | None,
    typer.Option(
        "--model",
        "-m",
        help="A run, one of its step-N folders, or en-de-small, de-en-small.",
        show_default="the newest under runs/",
    ),
]
ModelsOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--model", "-m",
        help="A run, one of its step-N folders, or en-de-small, de-en-small; several translate together.",
        show_default="the newest under runs/",
    ),
]  # fmt: skip
DeviceOption = Annotated[str, typer.Option(help="auto, cpu or cuda.")]
SearchPrecisionOption = Annotated[
    str, typer.Option("--precision", help="auto, fp32, bf16, fp16 or int8: auto takes what is fast here.")
]
PrecisionOption = Annotated[str, typer.Option(help="auto, fp32, bf16 or fp16: auto takes what is fast here.")]
SearchOption = Annotated[
    str,
    typer.Option(
        help="Search in full: greedy, beam(beam_size=4, top_beams=1, length_penalty=1.0).", show_default=False
    ),
]
SourceOption = Annotated[Path | None, typer.Option(help="Source file of a test set of your own.")]
ReferencesOption = Annotated[
    list[Path] | None, typer.Option("--ref", help="Its reference translations; several for several references.")
]
TestsOption = Annotated[
    list[str] | None,
    typer.Option("--test", show_default="the model's own",
                 help="A test set that sacrebleu knows (wmt14, ...), or of a corpus (tatoeba); several one by one."),
]  # fmt: skip
ResamplesOption = Annotated[int, typer.Option(min=0, max=1_000_000, help="Draws for confidence intervals; 0 for none.")]
ErrorsOption = Annotated[str, typer.Option("--encoding-errors", help="On invalid UTF-8: strict or replace.")]


def check_errors(value: str) -> None:
    """Raise a UsageError unless `value` is a way to treat invalid UTF-8."""
    if value not in ("strict", "replace"):
        raise UsageError(f"--encoding-errors must be strict or replace, got '{value}'")


def check_test_options(src: Path | None, refs: list[Path] | None, tests: list[str] | None) -> None:
    """Raise a UsageError unless the options name test sets in one way."""
    if (src is None) != (not refs):
        raise UsageError("--src and --ref go together")
    if src is not None and tests:
        raise UsageError("give --src and --ref, or --test, not both")


def open_test_sets(
    data: DataConfig, src: Path | None, refs: list[Path] | None, tests: list[str] | None, errors: str
) -> list[TestSet]:
    """Return the test sets that the options name: files, names, or the corpus's own."""
    from nmt.evaluate import test_sets

    if src is not None:
        return [test_sets.file_test_set(src, refs or [], errors)]
    if tests:
        return [test_sets.named_test_set(name, data.src, data.tgt) for name in tests]
    return [test_sets.default_test_set(data)]


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
    asked = {"beam_size": beam_size, "top_beams": top_beams, "length_penalty": length_penalty}
    asked = {key: value for key, value in asked.items() if value is not None}
    spec = given or default
    name, options = parse(spec)
    if name not in ("beam", "diverse", "constrained"):
        if not asked or (
            name == "greedy" and asked.keys() <= {"beam_size", "top_beams"} and set(asked.values()) == {1}
        ):
            return spec
        if given:
            raise UsageError(f"--search {given} is no beam search", "leave out --search, or the options of a beam")
        name, options = "beam", {}
    options |= asked
    if top_beams and beam_size is None:
        from nmt.search import SEARCHES

        groups = options.get("groups", 2) if name == "diverse" else 1
        size = options.get("beam_size", cast(Any, SEARCHES[name]).beam_size)
        if top_beams > size:
            options["beam_size"] = -(-top_beams // groups) * groups
    return compose(name, options)
