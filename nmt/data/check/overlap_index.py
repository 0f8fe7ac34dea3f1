"""Index of test sentences, to find training pairs that overlap with a test set.

Shape suffixes: N pairs, L pairs with a long side, T test sentences, P hash functions, C candidates:
a pair and a test sentence.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from nmt.data.arrays import Bytes, Doubles, Hashes, Indices
from nmt.data.check.minhash import (
    NUM_HASHES,
    Band,
    Side,
    band_keys,
    hash_word_pair,
    hash_words,
)
from nmt.data.pairs import Pair
from nmt.text.normalization import estimate_num_words
from nmt.text.words import Words

BANDS = tuple((start, 4) for start in range(0, NUM_HASHES - 3, 2))
"""First hash value and width of each band. Test sets are small, so many narrow bands are
affordable."""
MIN_SIDE_SIMILARITY = 0.7
"""Minimum estimated Jaccard similarity of one side. It is below that of near duplicates, because
one letter changed in a sentence of ten words already reduces the similarity to about 0.7."""
MIN_PAIR_SIMILARITY = 0.45
"""Minimum similarity of both sides. Two words changed in a sentence of ten words leave a similarity
of about 0.55."""
MIN_EXACT_WORDS = 4
"""Minimum number of words of one overlapping side; shorter sentences ("Thank you") overlap by
chance."""
NUM_SLOTS = 1 << 16
"""Slots of a table of the keys that test sentences may have, one for each value of the lowest 16
bits. It fits in the cache of a processor."""
CHUNK_SIZE = 1 << 16
"""Candidates compared at a time."""

Candidates = tuple[Indices, Indices]
"""Indices of pairs, [C], and of the test sentences to compare them with, [C]."""
Matches = dict[int, tuple[float, int]]
"""For each pair, the similarity and index of the most similar test sentence."""


class _Band:
    """The keys of test sentences in one band, in ascending order."""

    def __init__(self, tests: Side, distinct: Indices, band: Band) -> None:
        """Take the long ones of the sentences `distinct`."""
        self.band = band
        is_long_T = tests.is_long_N[distinct]
        long_T = distinct[is_long_T]
        digest_TP = tests.digest_NP[long_T]
        key_T = band_keys(digest_TP, band)
        order_T = np.argsort(key_T, kind="stable")
        self.key_T = key_T[order_T]
        self.index_T = long_T[order_T]
        """Index of the sentence of each key."""
        self.is_used = np.zeros(NUM_SLOTS, bool)
        """Whether a test sentence has a key with this slot."""
        self.is_used[_slots(key_T)] = True

    def candidates(self, pair_L: Indices, digest_LP: Bytes) -> Iterator[Candidates]:
        """Yield parts of all candidates that agree in the band.

        Args:
            pair_L: indices of pairs whose sides are long.
            digest_LP: digests of these sides.
        """
        key_L = band_keys(digest_LP, self.band)
        # Most keys are those of no test sentence, and a binary search costs more than the table.
        is_candidate_L = self.is_used[_slots(key_L)]
        pair_L = pair_L[is_candidate_L]
        key_L = key_L[is_candidate_L]
        start_L = np.searchsorted(self.key_T, key_L, "left")
        end_L = np.searchsorted(self.key_T, key_L, "right")
        count_L = end_L - start_L
        # The candidates of a pair come after those of the pairs before it; they are the keys from
        # its start on.
        num_before_L = np.cumsum(count_L) - count_L
        pair_C = np.repeat(pair_L, count_L)
        offset_L = start_L - num_before_L
        offset_C = np.repeat(offset_L, count_L)
        place_C = offset_C + np.arange(len(offset_C))
        test_C = self.index_T[place_C]
        for start in range(0, len(pair_C), CHUNK_SIZE):
            end = start + CHUNK_SIZE
            yield pair_C[start:end], test_C[start:end]


class _SideIndex:
    """One side of the test sentences."""

    def __init__(self, tests: Side, distinct: Indices) -> None:
        """Index all sentences for exact overlap, and the sentences `distinct` for near overlap."""
        self.tests = tests
        self.bands = [_Band(tests, distinct, band) for band in BANDS]
        self.hashes: dict[int, int] = {}
        """Map from the hash of a sentence to its index."""
        for i, words in enumerate(tests.sentences):
            if words:
                self.hashes.setdefault(hash_words(words), i)

    def find(self, words: Words) -> int:
        """Return the index of the sentence with these words, or -1."""
        if not words:
            return -1
        return self.hashes.get(hash_words(words), -1)

    def candidates(self, side: Side) -> Iterator[Candidates]:
        """Yield the candidates of all bands, whose sides are long."""
        pair_L = np.flatnonzero(side.is_long_N)
        digest_LP = side.digest_NP[pair_L]
        for band in self.bands:
            yield from band.candidates(pair_L, digest_LP)

    def similarity_C(self, side: Side, candidates: Candidates) -> Doubles:
        """Return the similarities of this side of pairs and test sentences; 0 if one of them is
        short."""
        pair_C, test_C = candidates
        pair_digest_CP = side.digest_NP[pair_C]
        test_digest_CP = self.tests.digest_NP[test_C]
        is_equal_CP = pair_digest_CP == test_digest_CP
        is_long_C = side.is_long_N[pair_C]
        is_long_C &= self.tests.is_long_N[test_C]
        similarity_C = is_equal_CP.mean(1)
        return np.where(is_long_C, similarity_C, 0.0)


class OverlapIndex:
    """The sentences of all test sets.

    Each side is matched separately, because a test sentence with a different translation is
    contamination as well.
    """

    def __init__(self, test_sets: Sequence[tuple[str, Sequence[Pair]]]) -> None:
        """Index test sets, each given as its name and pairs."""
        self.places: list[str] = []
        """Line and test set of each sentence."""
        all_pairs: list[Pair] = []
        for name, pairs in test_sets:
            all_pairs += pairs
            for number, _ in enumerate(pairs, 1):
                self.places.append(f"line {number:,} of {name}")
        if not all_pairs:  # nothing is looked up
            return
        source = Side(all_pairs, 0)
        target = Side(all_pairs, 1)
        pair_hashes = map(hash_word_pair, source.sentences, target.sentences)
        self.pair_hashes = set(pair_hashes)
        # Sentences that differ only in numbers have equal digests; the first one represents all.
        is_long_T2 = np.stack([source.is_long_N, target.is_long_N], axis=1)
        digests = (source.digest_NP, target.digest_NP)
        features = np.hstack([*digests, is_long_T2])
        _, distinct = np.unique(features, axis=0, return_index=True)
        distinct.sort()
        self.source = _SideIndex(source, distinct)
        self.target = _SideIndex(target, distinct)

    def place(self, pair: Pair) -> str:
        """Return the place of the test sentence that overlaps with a pair; empty if none does."""
        source = Side([pair], 0)
        target = Side([pair], 1)
        overlaps = self.find_exact(source, target) or self.find_near(source, target)
        return self.places[overlaps[0]] if overlaps else ""

    def find_exact(self, source: Side, target: Side) -> dict[int, int]:
        """Map each pair that is equal to a test sentence, on a long side or on both sides, to this
        sentence."""
        if not self.places:
            return {}
        matches = {}
        for i, words in enumerate(zip(source.sentences, target.sentences, strict=True)):
            match = self._find_equal(*words)
            if match >= 0:
                matches[i] = match
        return matches

    def _find_equal(self, source: Words, target: Words) -> int:
        """Return the index of the test sentence that overlaps with a pair, or -1."""
        source_match = self.source.find(source)
        if source_match >= 0 and _is_long(source):
            return source_match
        target_match = self.target.find(target)
        if target_match >= 0 and _is_long(target):
            return target_match
        if source_match < 0 or target_match < 0:
            return -1
        is_test_pair = hash_word_pair(source, target) in self.pair_hashes
        return source_match if is_test_pair else -1

    def find_near(self, source: Side, target: Side) -> dict[int, int]:
        """Map each pair that is similar to a test sentence, on one side or on both, to the most
        similar one."""
        if not self.places:
            return {}
        matches: Matches = {}
        for index, side in ((self.source, source), (self.target, target)):
            for candidates in index.candidates(side):
                self._compare(source, target, candidates, matches)
        return {pair: test for pair, (_, test) in matches.items()}

    def _compare(
        self, source: Side, target: Side, candidates: Candidates, matches: Matches
    ) -> None:
        """Add the candidates that are near to `matches`, if they are better."""
        source_C = self.source.similarity_C(source, candidates)
        target_C = self.target.similarity_C(target, candidates)
        higher_C = np.maximum(source_C, target_C)
        lower_C = np.minimum(source_C, target_C)
        is_side_near_C = higher_C >= MIN_SIDE_SIMILARITY
        is_pair_near_C = lower_C >= MIN_PAIR_SIMILARITY
        similarity_C = source_C + target_C
        pair_C, test_C = candidates
        for i in np.flatnonzero(is_side_near_C | is_pair_near_C):
            pair = int(pair_C[i])
            similarity = float(similarity_C[i])
            match = (similarity, int(test_C[i]))
            matches[pair] = max(match, matches.get(pair, match))


def _slots(keys: Hashes) -> NDArray[np.uint16]:
    return keys.astype(np.uint16)


def _is_long(words: Words) -> bool:
    return estimate_num_words(words) >= MIN_EXACT_WORDS
