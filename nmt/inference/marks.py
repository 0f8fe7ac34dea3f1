"""Restores the brackets and quotation marks of a source in its translation, by word alignment."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from nmt.data.spans import apply_edits
from nmt.inference.content import BRACKETS, QUOTE, bracket_pairs, unbalanced_marks


@dataclass(frozen=True)
class MarkedRange:
    """The words of a text between two marks."""

    opening: str
    closing: str
    first_word: int
    last_word: int
    """Indices of words separated by whitespace."""


def restore_marks(source: str, text: str, alignment: Iterable[tuple[int, int]]) -> str:
    """Return the translation with the unbalanced marks of the source around the words that are aligned with theirs.

    Args:
        source: the source.
        text: its translation.
        alignment: pairs of source word and target word.
    """
    missing = unbalanced_marks(source, text)
    pairs = list(alignment)
    quotes = _target_quotes(text)
    for opening in missing:
        is_quote = opening == '"'
        closing = '"' if is_quote else BRACKETS[opening]
        offsets = _quote_pairs(source) if is_quote else bracket_pairs(source, opening, closing)
        ranges = [_marked_range(source, *pair) for pair in offsets]
        text = QUOTE.sub("", text) if is_quote else text.replace(opening, "").replace(closing, "")
        words = [match.span() for match in re.finditer(r"\S+", text)]
        if not words:
            return text
        edits: list[tuple[int, int, str]] = []
        for each in ranges:
            aligned = {target for word, target in pairs if each.first_word <= word <= each.last_word}
            first, last = _best_range(aligned, len(words)) or _same_share(each, len(source.split()), len(words))
            start = words[first][0]
            end = _end_without_punctuation(text, words[last][1], each.closing)
            marks = quotes if is_quote else (each.opening, each.closing)
            edits += [(start, start, marks[0]), (end, end, marks[1])]
        text = apply_edits(text, edits)
    return text


def _target_quotes(text: str) -> tuple[str, str]:
    """Return the kind of quotation marks that a translation uses; ASCII ones if it has none."""
    first = next(iter(QUOTE.findall(text)), '"')
    return {"„": ("„", "“"), "“": ("“", "”"), "”": ("“", "”"), "»": ("»", "«"), "«": ("«", "»")}.get(first, ('"', '"'))


def _quote_pairs(source: str) -> list[tuple[int, int]]:
    offsets = [match.start() for match in QUOTE.finditer(source)]
    return list(zip(offsets[::2], offsets[1::2], strict=True))


def _marked_range(source: str, start: int, end: int) -> MarkedRange:
    first_word = len(source[: start + 1].split()) - 1
    last_word = len(source[:end].split()) - 1
    return MarkedRange(source[start], source[end], first_word, last_word)


def _best_range(aligned: set[int], num_words: int) -> tuple[int, int] | None:
    """Return the contiguous words with the best balance of aligned and other words (maximum subarray, Kadane)."""
    best: tuple[int, int] | None = None
    best_balance = balance = start = 0
    for word in range(num_words):
        if balance <= 0:
            balance, start = 0, word
        balance += 1 if word in aligned else -1
        if balance > best_balance:
            best, best_balance = (start, word), balance
    return best


def _same_share(marked: MarkedRange, num_source_words: int, num_words: int) -> tuple[int, int]:
    """Return the words at the same relative place as in the source, for words that are aligned with none."""
    first = min(num_words - 1, marked.first_word * num_words // num_source_words)
    last = min(num_words - 1, marked.last_word * num_words // num_source_words)
    return first, last


def _end_without_punctuation(text: str, end: int, closing: str) -> int:
    """Return the end of a range without final punctuation, which stays outside of brackets."""
    is_bracket = closing in BRACKETS.values()
    return len(text[:end].rstrip(".,;:!?")) if is_bracket else len(text[:end].rstrip(",;:"))
