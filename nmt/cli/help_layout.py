"""Help texts that are readable in 80 columns: short names of types, paragraphs without the line
breaks of the source, and examples that continue in the next line."""

from __future__ import annotations

import re
import shutil
import textwrap
from copy import copy
from typing import Any

MARGIN = len(" " + "  " + " \\ ")
"""Of an example: the margins and the indentation of the help text, and the end of its line."""

TYPES = {
    "bool": "",
    "int": "INT",
    "float": "FLOAT",
    "str": "TEXT",
    "text": "TEXT",
    "path": "PATH",
}
"""Names of types in help texts, by how their names in Typer begin; a flag has none."""

NUMBERS = {"int": "whole number", "float": "number"}
"""Names of numbers in errors, by how their names in Typer begin."""


def prepare(command: Any) -> None:
    """Change the help of a command, which Typer has made."""
    first, *others = (command.help or "").split("\n\n")
    # Typer removes the indentation of all lines after the first of the others: so that is empty.
    paragraphs = [first, "", *others]
    command.help = _escaped("\n\n".join(map(_reflowed, paragraphs)))
    for parameter in command.params:
        if parameter.help:
            parameter.help = _escaped(parameter.help)
        if parameter.param_type_name == "argument":  # its name and help say what it is
            parameter.type = copy(parameter.type)  # Typer shares types
            parameter.type.get_metavar = lambda param, ctx: ""
        elif parameter.metavar is None:
            _shorten_type(parameter)


def _escaped(text: str) -> str:
    """Return a text whose brackets are no markup of Rich, which would remove `[serve]`."""
    return text.replace("[", "\\[")


def _reflowed(paragraph: str) -> str:
    """Return a paragraph in one line; examples keep their lines, or continue in the next one."""
    first, *lines = paragraph.split("\n")
    if not any(line.startswith(" ") for line in lines):
        return " ".join([first, *lines])
    wrapper = _ExampleWrapper(
        max(1, shutil.get_terminal_size().columns - MARGIN),
        subsequent_indent="    ",
        break_long_words=False,
        break_on_hyphens=False,
    )
    wrapped = [first]
    for line in lines:
        wrapped.append("  " + " \\\n  ".join(wrapper.wrap(line.strip())))
    return "\n".join(wrapped)


class _ExampleWrapper(textwrap.TextWrapper):
    """Breaks commands before options, but not inside quotes."""

    wordsep_simple_re = re.compile(r'(\s+(?=-(?:[^"]*"[^"]*")*[^"]*$))')


def _shorten_type(option: Any) -> None:
    """Set `metavar` to a short name, or to a range, and let errors say "is not a valid whole
    number" instead of "int range"."""
    option.type = copy(option.type)  # Typer shares types
    limits = getattr(option.type, "min", None), getattr(option.type, "max", None)
    if limits == (None, None):
        option.metavar = _short_name(option.type.name)
    else:
        option.type._describe_range = lambda: _range(*limits)  # in errors, too
        option.metavar = ""
    for start, name in NUMBERS.items():
        if option.type.name.startswith(start):
            option.type.name = name


def _short_name(name: str) -> str | None:
    for start, short in TYPES.items():
        if name.startswith(start):
            return short
    return None


def _range(minimum: float | None, maximum: float | None) -> str:
    if minimum is None:
        return "" if maximum is None else f"≤{maximum}"
    return f"≥{minimum}" if maximum is None else f"{minimum}-{maximum}"
