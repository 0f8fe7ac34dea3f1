"""Restores the brackets and quotation marks of a source in its translation, by word alignment."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from nmt.text.spans import apply_edits
from nmt.translation.alignment import best_run
from nmt.translation.content import BRACKETS, QUOTE, bracket_pairs, unbalanced_marks

ASCII_QUOTES = ('"', '"')
_QUOTES_BY_FIRST = {
    "„": ("„", "“"),
    "“": ("“", "”"),
    "”": ("“", "”"),
    "»": ("»", "«"),
    "«": ("«", "»"),
}
"""The pair of quotation marks that a text uses, by the first mark in it."""


class MarkedWords(NamedTuple):
    """The words of a source between two marks."""

    opening: str
    closing: str
    first_word: int
    last_word: int
    """Indices of words separated by whitespace."""

    def contains(self, word: int) -> bool:
        """Return whether a word is between the marks."""
        return self.first_word <= word <= self.last_word


def restore_marks(source: str, text: str, alignment: Iterable[tuple[int, int]]) -> str:
    """Return the translation with the unbalanced marks of the source around the words that are
    aligned with theirs.

    Marks around words that the translation does not have are left out.

    Args:
        source: the source.
        text: its translation.
        alignment: pairs of source word and target word.
    """
    pairs = list(alignment)
    for mark in unbalanced_marks(source, text):
        if mark == '"':
            marks = _quotes_of(text)
            places = _quote_pairs(source)
            text = QUOTE.sub("", text)
        else:
            marks = (mark, BRACKETS[mark])
            places = bracket_pairs(source, *marks)
            for bracket in marks:
                text = text.replace(bracket, "")
        marked = [_marked_words(source, *place, marks) for place in places]
        text = _with_marks(text, marked, pairs)
    return text


def _quotes_of(text: str) -> tuple[str, str]:
    """Return the kind of quotation marks that a text uses; ASCII ones if it has none."""
    first = QUOTE.search(text)
    if first is None:
        return ASCII_QUOTES
    return _QUOTES_BY_FIRST.get(first[0], ASCII_QUOTES)


def _quote_pairs(source: str) -> list[tuple[int, int]]:
    offsets = [match.start() for match in QUOTE.finditer(source)]
    opening = offsets[::2]
    closing = offsets[1::2]
    return list(zip(opening, closing, strict=True))


def _marked_words(source: str, start: int, end: int, marks: tuple[str, str]) -> MarkedWords:
    words_to_opening = source[: start + 1].split()
    words_to_closing = source[:end].split()
    return MarkedWords(*marks, len(words_to_opening) - 1, len(words_to_closing) - 1)


def _with_marks(text: str, marked: Iterable[MarkedWords], alignment: list[tuple[int, int]]) -> str:
    """Return a text without marks with those of the source."""
    words = [match.span() for match in re.finditer(r"\S+", text)]
    edits: list[tuple[int, int, str]] = []
    for each in marked:
        aligned = {target for word, target in alignment if each.contains(word)}
        gains = {word: 1.0 for word in range(len(words)) if word in aligned}
        run = best_run(gains, lambda _: 1, gap_cost=1)
        if run is None:
            continue
        first, last = run
        start, _ = words[first]
        _, end_of_word = words[last]
        end = _end_without_punctuation(text[:end_of_word], each.closing)
        edits.append((start, start, each.opening))
        edits.append((end, end, each.closing))
    return apply_edits(text, edits)


def _end_without_punctuation(text: str, closing: str) -> int:
    """Return the length of a text without final punctuation; that of a sentence stays inside
    quotation marks."""
    is_bracket = closing in BRACKETS.values()
    return len(text.rstrip(".,;:!?" if is_bracket else ",;:"))
