"""Normalized words, hashes and MinHash digests of sentences. Shape suffixes: N sentences, P hash functions."""

from __future__ import annotations

import functools
import re
import unicodedata
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from nmt.data.normalization import is_mark
from nmt.data.pairs import hash_text

NUM_HASHES = 64
"""P: the standard error of an estimated similarity is at most 1 / (2 sqrt(P))."""

MAX_CACHED_CHARACTERS = 40
"""Longer words are not cached, because a server would keep those of its clients."""

_DIGITS = re.compile(r"\d+")


def normalized_words(text: str) -> list[str]:
    """Return the case-folded words of a text in Unicode NFC without punctuation."""
    text = text if text.isascii() else unicodedata.normalize("NFC", text)
    return list(filter(None, map(_alphanumeric, text.casefold().split())))


def _alphanumeric(word: str) -> str:
    return _cached_alphanumeric(word) if len(word) <= MAX_CACHED_CHARACTERS else _without_punctuation(word)


def _without_punctuation(word: str) -> str:
    """Remove all characters but letters, digits and marks, such as the vowel signs of Hindi."""
    return word if word.isalnum() else "".join(c for c in word if c.isalnum() or is_mark(c))


_cached_alphanumeric = functools.lru_cache(maxsize=1 << 16)(_without_punctuation)


def hash_words(words: Sequence[str]) -> int:
    """Return a 64-bit hash of the words of a sentence."""
    return hash_text(" ".join(words))


def hash_word_pair(source: Sequence[str], target: Sequence[str]) -> int:
    """Return a 64-bit hash of the words of a sentence pair."""
    return hash_text(f"{' '.join(source)}\t{' '.join(target)}")


def minhash(sentences: Sequence[Sequence[str]], side: int) -> NDArray[np.uint32]:
    """Return the MinHash digests of the words and word bigrams of sentences, [N, P].

    Equal words of different sides are different tokens. Numbers are replaced with 0, so that sentences that differ only
    in numbers are similar.
    """
    import rensa

    sentences = [[_DIGITS.sub("0", word) if word[0].isdigit() else word for word in words] for words in sentences]
    tokens = [
        [*(f"{side}{word}" for word in words), *(f"{side}{first} {second}" for first, second in pairwise(words))]
        for words in sentences
    ]
    return np.array(rensa.RMinHash.digests_from_token_sets(tokens, NUM_HASHES, 1), np.uint32)


def band_keys(digest_NP: NDArray[np.uint8], band: tuple[int, int]) -> NDArray[np.uint64]:
    """Return the hash values of a band of each digest as one integer."""
    start, width = band
    bytes_N8 = np.zeros((len(digest_NP), 8), np.uint8)
    bytes_N8[:, :width] = digest_NP[:, start : start + width]
    return bytes_N8.view(np.uint64)[:, 0]
