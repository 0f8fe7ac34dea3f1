"""Whitespace around a line and between its segments."""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_right
from collections.abc import Iterable


def _is_inline(character: str) -> bool:
    """Return whether whitespace may occur within a line: a tab or a space separator, but no line
    separator."""
    return character == "\t" or unicodedata.category(character) == "Zs"


def inline(text: str) -> str:
    """Return a part of a line with spaces in place of line separators."""
    return "".join(" " if each.isspace() and not _is_inline(each) else each for each in text)


def surrounding_whitespace(line: str) -> tuple[str, str]:
    """Return the whitespace before and after the text of a line; for a blank line, all of it is
    before."""
    text = line.lstrip()
    before, after = line[: len(line) - len(text)], text[len(text.rstrip()) :]
    return "".join(filter(_is_inline, before)), "".join(filter(_is_inline, after))


def with_surrounding_whitespace(text: str, line: str) -> str:
    """Return a text with the whitespace around a line."""
    before, after = surrounding_whitespace(line)
    return f"{before}{text}{after}"


def separator(text: str, end: int, start: int) -> str:
    """Return the whitespace between the segment of a line that ends at `end` and the one that
    starts at `start`."""
    between = text[end:start]
    # No space follows these in the source.
    is_required = any(map(str.isspace, between)) or text[end - 1] in "。！？"
    return "".join(filter(_is_inline, between)) or " " * is_required


def word_indices_at(text: str, starts: Iterable[int]) -> list[int]:
    """Return the indices of the words at or after some offsets."""
    word_ends = [match.end() for match in re.finditer(r"\S+", text)]
    return [bisect_right(word_ends, start) for start in starts]
