"""Words without case and punctuation, to compare sentences."""

from __future__ import annotations

import functools
import unicodedata
from collections.abc import Sequence

from nmt.text.normalization import is_mark

Words = Sequence[str]
"""The normalized words of a sentence."""
MAX_CACHED_CHARACTERS = 40
"""Longer words are not cached, because a server would keep those of its clients."""

FREQUENT_PUNCTUATION = ".,:;!?()[]\"'„“”‚‘’«»–…-"
"""Characters that are removed from both ends of words without further tests."""
_ASCII_PUNCTUATION = str.maketrans(
    {c: None for c in map(chr, range(128)) if not c.isalnum() and not c.isspace()}
)


def normalized_words(text: str) -> list[str]:
    """Return the case-folded words of a text in Unicode NFC without punctuation."""
    if text.isascii():  # fast path
        return text.lower().translate(_ASCII_PUNCTUATION).split()
    words = []
    for word in unicodedata.normalize("NFC", text).casefold().split():
        if not word.isalnum():
            word = word.strip(FREQUENT_PUNCTUATION)
        if not word.isalnum():
            word = _alphanumeric(word)
        if word:
            words.append(word)
    return words


def _alphanumeric(word: str) -> str:
    if len(word) > MAX_CACHED_CHARACTERS:
        return _without_punctuation(word)
    return _cached_alphanumeric(word)


def _without_punctuation(word: str) -> str:
    """Remove all characters but letters, digits and marks, such as the vowel signs of Hindi."""
    kept = [c for c in word if c.isalnum() or is_mark(c)]
    return "".join(kept)


_cached_alphanumeric = functools.lru_cache(maxsize=1 << 16)(_without_punctuation)
