"""White space around a line and between its segments."""

from __future__ import annotations

import unicodedata


def _keepable(character: str) -> bool:
    """Say whether white space can stand in a line of output: a tab or a kind of space, but nothing that ends a line."""
    return character == "\t" or unicodedata.category(character) == "Zs"


def outer_space(line: str) -> tuple[str, str]:
    """Return the white space at the two ends of a line; all of a blank one stands at its beginning."""
    text = line.lstrip()
    before, after = line[: len(line) - len(text)], text[len(text.rstrip()) :]
    return "".join(filter(_keepable, before)), "".join(filter(_keepable, after))


def gap(text: str, end: int, start: int) -> str:
    """Return the white space that parts the piece of a line that ends at `end` and the one that begins at `start`."""
    between = text[end:start]
    needed = any(map(str.isspace, between)) or text[end - 1] in "。！？"  # scripts that part sentences without any
    return "".join(filter(_keepable, between)) or " " * needed
