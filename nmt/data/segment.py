"""Cutting input that is longer than a model ever saw, at sentence, then clause, then word boundaries.

Nothing is lost: pieces are places in the text, and what stands between them is white space.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

Span = tuple[int, int]
"""Where a piece begins and ends."""

_AFTER_CLAUSE = re.compile(r"(?<=[,;:–—)])\s+")
_SPACE = re.compile(r"\s+")
_INSIDE = re.compile(r"[.!?…。！？።។॥।؟۔][^\w\s]*\s*\w")
"""Something that may end a sentence, and something behind it."""


def segments(text: str, language: str, fits: Callable[[str], bool]) -> list[Span]:
    """Cut `text` into pieces that fit, as few and as natural as possible.

    Args:
        text: one line.
        language: its ISO code, for the sentence rules.
        fits: says whether a piece is short enough to be translated as one.

    Returns:
        Pieces without white space at their ends, in order; none of blank text.
    """
    return _cut(text, _trim(text, (0, len(text))), language, fits)


def sentences(text: str, language: str) -> list[Span]:
    """Return where the sentences of `text` stand, without white space at their ends."""
    from sentencex import segment

    spans, end = [], 0
    for sentence in segment(language, text):
        start = text.find(sentence, end)
        if start < 0:  # the package changed the text
            return list(_trim(text, (0, len(text))))
        end = start + len(sentence)
        spans += _trim(text, (start, end))
    return spans


def count_sentences(text: str, language: str) -> int:
    """Count the sentences of a text; one where nothing in it looks like the end of a sentence."""
    return len(sentences(text, language)) if _INSIDE.search(text) else 1


def _cut(text: str, spans: Sequence[Span], language: str, fits: Callable[[str], bool]) -> list[Span]:
    return [small for span in spans for small in _cut_one(text, span, language, fits)]


def _cut_one(text: str, span: Span, language: str, fits: Callable[[str], bool]) -> list[Span]:
    start, end = span
    piece = text[start:end]
    if fits(piece):
        return [span]
    for cut in (lambda t: sentences(t, language), _AFTER_CLAUSE, _SPACE):
        parts = [(start + a, start + b) for a, b in (_split(cut, piece) if isinstance(cut, re.Pattern) else cut(piece))]
        if len(parts) > 1:
            return _pack(text, _cut(text, parts, language, fits), fits)
    half = start + len(piece) // 2  # one endless word
    return [span] if len(piece) < 2 else _cut(text, [(start, half), (half, end)], language, fits)


def _split(separator: re.Pattern[str], text: str) -> list[Span]:
    ends = [(match.start(), match.end()) for match in separator.finditer(text)]
    starts = [0, *(end for _, end in ends)]
    return [
        s for span in zip(starts, [*(start for start, _ in ends), len(text)], strict=True) for s in _trim(text, span)
    ]


def _trim(text: str, span: Span) -> list[Span]:
    """Return the span without white space at its ends, or none if nothing is left."""
    piece = text[slice(*span)]
    start, end = span[0] + len(piece) - len(piece.lstrip()), span[0] + len(piece.rstrip())
    return [(start, end)] if start < end else []


def _pack(text: str, spans: Iterable[Span], fits: Callable[[str], bool]) -> list[Span]:
    """Join neighbors while they fit: a clause is translated better with its company."""
    packed: list[Span] = []
    for start, end in spans:
        if packed and fits(text[packed[-1][0] : end]):
            packed[-1] = (packed[-1][0], end)
        else:
            packed.append((start, end))
    return packed
