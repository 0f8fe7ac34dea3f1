"""Hashes and MinHash digests of sentences. Shape suffixes: N sentences, P hash
functions."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from nmt.data.arrays import Bools, Bytes, Hashes
from nmt.data.pairs import Pair, hash_text
from nmt.text.lazy_pattern import lazy_pattern
from nmt.text.words import Words, normalized_words

NUM_HASHES = 64
"""P: the standard error of an estimated similarity is at most 1 / (2 sqrt(P))."""
MIN_NEAR_WORDS = 6
"""Minimum number of words of a sentence that may be almost equal to one of a test set."""
_DIGITS = lazy_pattern(r"\d+")

Band = tuple[int, int]
"""First hash value and number of hash values of a part of the digests."""


class Side:
    """One side of several pairs: the words of its sentences and their MinHash values."""

    def __init__(self, pairs: Sequence[Pair], side: int) -> None:
        """Normalize the words of a side, which is 0 for sources and 1 for targets."""
        texts = [pair[side] for pair in pairs]
        self.num_characters = list(map(len, texts))
        self.sentences: list[Words] = list(map(normalized_words, texts))
        self._side = side

    @functools.cached_property
    def hashes_NP(self) -> NDArray[np.uint32]:
        """The MinHash values of each sentence."""
        return minhash(self.sentences, self._side)

    @functools.cached_property
    def digest_NP(self) -> Bytes:
        """Lowest byte of each hash value (b-bit MinHash, Li and König 2010)."""
        return self.hashes_NP.astype(np.uint8)

    @functools.cached_property
    def is_long_N(self) -> Bools:
        """Whether each sentence has at least `MIN_NEAR_WORDS` words."""
        num_words_N = np.fromiter(map(len, self.sentences), np.int64)
        return num_words_N >= MIN_NEAR_WORDS


def hash_words(words: Words) -> int:
    """Return a 64-bit hash of the words of a sentence."""
    return hash_text(" ".join(words))


def hash_word_pair(source: Words, target: Words) -> int:
    """Return a 64-bit hash of the words of a sentence pair."""
    return hash_text(f"{' '.join(source)}\t{' '.join(target)}")


def minhash(sentences: Sequence[Words], side: int) -> NDArray[np.uint32]:
    """Return the MinHash values (Broder 1997) of the words and word bigrams of sentences, [N, P].

    Equal words of different sides are different tokens.
    """
    import rensa

    tokens = (_tokens(words, side) for words in sentences)
    hashes = rensa.RMinHash.digests_from_token_sets(tokens, NUM_HASHES, 1)
    return np.array(hashes, np.uint32)


def _tokens(words: Words, side: int) -> list[str]:
    if not "".join(words).isalpha():
        words = list(map(_without_number, words))
    prefix = str(side)
    unigrams = [prefix + word for word in words]
    bigrams = [f"{first} {second}" for first, second in zip(unigrams, words[1:], strict=False)]
    return unigrams + bigrams


def _without_number(word: str) -> str:
    """Replace a number with 0, so that sentences that differ only in numbers are similar."""
    if not word[0].isdigit():
        return word
    return _DIGITS.sub("0", word)


def band_keys(digest_NP: Bytes, band: Band) -> Hashes:
    """Return the hash values of a band of each digest as one integer."""
    start, width = band
    bytes_N8 = np.zeros((len(digest_NP), 8), np.uint8)
    end = start + width
    bytes_N8[:, :width] = digest_NP[:, start:end]
    keys_N1 = bytes_N8.view(np.uint64)
    return keys_N1[:, 0]
