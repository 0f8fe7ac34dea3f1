"""Translation of texts with several lines. Line ends, blank lines and spaces are preserved."""

from __future__ import annotations

import re
from collections.abc import Sequence

from nmt.translation.result import Place, Translation, join

_LINE_END = re.compile(r"(\r\n|[\n\v\f\r\x1c-\x1f\x85\u2028\u2029])")
"""Everything that `str.splitlines` splits at, so that no control character is lost between or
inside of lines."""


def split_lines(text: str) -> list[str]:
    """Return the lines of a text; at least one."""
    return _LINE_END.split(text)[::2]


def join_lines(text: str, n_bests: Sequence[list[Translation]]) -> list[Translation]:
    """Return the n-best list of a text from those of its lines. A translation has the warnings of
    all lines."""
    places: list[Place] = []
    num_words = 0
    for line, line_end in zip(split_lines(text), ["", *_LINE_END.findall(text)], strict=True):
        places.append(Place(line_end, num_words))
        num_words += len(line.split())
    return join(n_bests, places)
