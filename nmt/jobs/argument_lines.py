"""Lines of text that are arguments of the command line."""

from __future__ import annotations

from collections.abc import Iterator

from nmt.text.decoding import decode_lines


def argument_lines(arguments: list[str], encoding_errors: str) -> Iterator[str]:
    """Yield the lines of command-line arguments. Python decodes their invalid UTF-8 to
    surrogates."""
    lines = "\n".join(arguments).split("\n") if arguments else []
    raw = (line.encode("utf-8", "surrogateescape") for line in lines)
    return decode_lines(raw, "the command line", encoding_errors)


def join_argument(argument: str, encoding_errors: str) -> str:
    """Return the lines of a command-line argument as one line."""
    return " ".join(argument_lines([argument], encoding_errors))
