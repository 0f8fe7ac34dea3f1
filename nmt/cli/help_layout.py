"""Help texts that are readable in 80 columns: short names of types, and paragraphs without the line
breaks of the source."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

TYPES: dict[Any, str] = {bool: "", int: "INT", float: "FLOAT", str: "TEXT", Path: "PATH"}
"""Names of types in help texts; a flag has none."""


def prepare(command: Any) -> None:
    """Change the help of a command, which Typer has made."""
    paragraphs = (command.help or "").split("\n\n")
    command.help = "\n\n".join(map(_reflowed, paragraphs))
    for option in command.params:
        if option.param_type_name != "option" or option.metavar is not None:
            continue
        annotation = option.type_descriptor.annotation
        (item_type,) = get_args(annotation) or (annotation,)
        option.metavar = _range(option.min, option.max) or TYPES.get(item_type)
        option._get_number_range_help_str = lambda: ""  # a part of `metavar`


def _reflowed(paragraph: str) -> str:
    """Return a paragraph in one line; examples keep their lines."""
    has_lines = "\n " in paragraph
    return paragraph if has_lines else paragraph.replace("\n", " ")


def _range(minimum: float | None, maximum: float | None) -> str:
    if minimum is None:
        return "" if maximum is None else f"≤{maximum}"
    return f"≥{minimum}" if maximum is None else f"{minimum}-{maximum}"
