"""Translation of texts with several lines. Line ends, blank lines and spaces are preserved."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate, chain

from nmt.inference.translation import Part, Translation, concatenate, n_best_of_line

_LINE_END = re.compile(r"(\r\n|[\n\v\f\r\x1c-\x1f\x85\u2028\u2029])")
"""Everything that `str.splitlines` splits at, so that no control character is lost between or inside of lines."""


def split_lines(text: str) -> list[str]:
    """Return the lines of a text; at least one."""
    return _LINE_END.split(text)[::2]


def join_lines(text: str, n_bests: Sequence[list[Translation]]) -> list[Translation]:
    """Return the n-best list of a text from those of its lines. A translation has the warnings of all lines."""
    line_ends = ["", *_LINE_END.findall(text)]
    # Index of the first word of each line.
    offsets = list(accumulate((len(line.split()) for line in split_lines(text)), initial=0))
    return [
        replace(
            concatenate(list(map(Part, translations, line_ends, offsets))),
            warnings=tuple(dict.fromkeys(chain.from_iterable(each.warnings for each in translations))),
        )
        for translations in n_best_of_line(n_bests)
    ]
