"""Cutting input that is longer than a model ever saw, at sentence, then clause, then word boundaries.

Nothing is lost: the pieces and what stands between them, joined again, are the input.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

_AFTER_CLAUSE = re.compile(r"(?<=[,;:–—)])\s+")
_SPACE = re.compile(r"\s+")


def segments(text: str, language: str, fits: Callable[[str], bool]) -> list[str]:
    """Cut `text` into pieces that fit, as few and as natural as possible.

    Args:
        text: one line.
        language: its ISO code, for the sentence rules.
        fits: says whether a piece is short enough to be translated as one.

    Returns:
        Pieces without white space at their ends, in order.
    """
    if fits(text):
        return [text]
    for cut in (lambda t: _sentences(t, language), _AFTER_CLAUSE.split, _SPACE.split):
        parts = [part.strip() for part in cut(text)]
        parts = [part for part in parts if part]
        if len(parts) > 1:
            pieces = [piece for part in parts for piece in segments(part, language, fits)]
            return _pack(pieces, fits)
    half = len(text) // 2  # one endless word
    return [text] if half == 0 else segments(text[:half], language, fits) + segments(text[half:], language, fits)


def _sentences(text: str, language: str) -> list[str]:
    from sentencex import segment

    return list(segment(language, text))


def _pack(pieces: Iterable[str], fits: Callable[[str], bool]) -> list[str]:
    """Join neighbours while they fit: a clause is translated better with its company."""
    packed: list[str] = []
    for piece in pieces:
        if packed and fits(f"{packed[-1]} {piece}"):
            packed[-1] = f"{packed[-1]} {piece}"
        else:
            packed.append(piece)
    return packed
