"""Index of test sentences, to find training pairs that overlap with a test set.

Shape suffixes: N pairs, T test sentences, C candidates.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from nmt.data.check.minhash import NUM_HASHES, band_keys, hash_word_pair, hash_words, minhash, normalized_words
from nmt.data.normalization import estimate_num_words
from nmt.data.pairs import Pair

BANDS = tuple((start, 4) for start in range(0, NUM_HASHES - 3, 2))
"""First hash value and width of each band. Test sets are small, so many narrow bands are affordable."""
MIN_SIDE_SIMILARITY = 0.7
"""Minimum estimated Jaccard similarity of one side. It is below that of near duplicates, because one letter changed in
a sentence of ten words already reduces the similarity to about 0.7."""
MIN_PAIR_SIMILARITY = 0.45
"""Minimum similarity of both sides. Two words changed in a sentence of ten words leave a similarity of about 0.55."""
MIN_EXACT_WORDS, MIN_NEAR_WORDS = 4, 6
"""Minimum number of words of one overlapping side; shorter sentences ("Thank you") overlap by chance."""
CHUNK_SIZE = 1 << 16
"""Candidates compared at a time."""

Digests = NDArray[np.uint8]
Words = Sequence[Sequence[str]]
_Band = tuple[NDArray[np.uint64], NDArray[np.int64]]


class OverlapIndex:
    """The sentences of all test sets.

    Each side is matched separately, because a test sentence with a different translation is contamination as well.
    """

    def __init__(self, test_sets: Sequence[tuple[str, Sequence[Pair]]]) -> None:
        """Index test sets, each given as its name and pairs."""
        self.places = [f"line {number:,} of {name}" for name, pairs in test_sets for number, _ in enumerate(pairs, 1)]
        """Line and test set of each sentence."""
        if not self.places:  # nothing is looked up
            return
        pairs = [pair for _, pairs in test_sets for pair in pairs]
        sides = [[normalized_words(pair[side]) for pair in pairs] for side in (0, 1)]
        self.is_long_2T = _is_long(sides)
        """Whether each side has at least `MIN_NEAR_WORDS` words."""
        self.pair_hashes = set(map(hash_word_pair, *sides))
        self.digests = [minhash(sentences, side).astype(np.uint8) for side, sentences in enumerate(sides)]
        self.hashes: list[dict[int, int]] = [{}, {}]
        """For each side, a map from the hash of a sentence to its index."""
        self.bands: list[list[_Band]] = [[], []]
        """For each side and band, the sorted keys and the indices of their sentences."""
        # Sentences that differ only in numbers have equal digests; one of them represents all.
        _, distinct = np.unique(np.hstack((*self.digests, self.is_long_2T.T)), axis=0, return_index=True)
        for side, sentences in enumerate(sides):
            for i, words in enumerate(sentences):
                if words:
                    self.hashes[side].setdefault(hash_words(words), i)
            indices = np.sort(distinct[self.is_long_2T[side][distinct]])
            for band in BANDS:
                keys = band_keys(self.digests[side], band)[indices]
                order = np.argsort(keys, kind="stable")
                self.bands[side].append((keys[order], indices[order]))

    def find_exact(self, source: Sequence[str], target: Sequence[str]) -> int:
        """Return the index of the test sentence that overlaps with a pair on a long side or on both sides, or -1."""
        matches = [self._find_side(side, words) for side, words in enumerate((source, target))]
        for match, words in zip(matches, (source, target), strict=True):
            if match >= 0 and estimate_num_words(words) >= MIN_EXACT_WORDS:
                return match
        is_test_pair = min(matches) >= 0 and hash_word_pair(source, target) in self.pair_hashes
        return matches[0] if is_test_pair else -1

    def _find_side(self, side: int, words: Sequence[str]) -> int:
        return self.hashes[side].get(hash_words(words), -1) if words else -1

    def find_near(self, sides: Sequence[Words], digests: Sequence[Digests]) -> dict[int, int]:
        """Map each pair that is similar to a test sentence, on one side or on both, to the most similar one."""
        is_long_2N = _is_long(sides)
        best: dict[int, tuple[float, int]] = {}
        for side in (0, 1):
            for band, (keys_T, indices_T) in zip(BANDS, self.bands[side], strict=True):
                keys_N = band_keys(digests[side], band)
                start_N, end_N = (np.searchsorted(keys_T, keys_N, edge) for edge in ("left", "right"))
                counts_N = (end_N - start_N) * is_long_2N[side]
                pair_C = np.repeat(np.arange(len(keys_N)), counts_N)
                offset_C = np.repeat(np.cumsum(counts_N) - counts_N - start_N, counts_N)
                test_C = indices_T[np.arange(len(pair_C)) - offset_C]
                for start in range(0, len(pair_C), CHUNK_SIZE):
                    chunk = slice(start, start + CHUNK_SIZE)
                    self._compare(digests, is_long_2N, pair_C[chunk], test_C[chunk], best)
        return {pair: test for pair, (_, test) in best.items()}

    def _compare(
        self, digests: Sequence[Digests], is_long_2N: NDArray[np.bool_], pair_C: NDArray[np.int64],
        test_C: NDArray[np.int64], best: dict[int, tuple[float, int]],
    ) -> None:  # fmt: skip
        """Update `best`, the similarity and index of the most similar test sentence of each pair."""
        similarity_2C = np.stack([(digests[side][pair_C] == self.digests[side][test_C]).mean(1) for side in (0, 1)])
        similarity_2C *= is_long_2N[:, pair_C] & self.is_long_2T[:, test_C]
        is_side_near_C = similarity_2C.max(0) >= MIN_SIDE_SIMILARITY
        is_near_C = is_side_near_C | (similarity_2C.min(0) >= MIN_PAIR_SIMILARITY)
        near = (pair_C[is_near_C].tolist(), test_C[is_near_C].tolist(), similarity_2C.sum(0)[is_near_C].tolist())
        for pair, test, similarity in zip(*near, strict=True):
            best[pair] = max(best.get(pair, (0.0, -1)), (similarity, test))


def _is_long(sides: Sequence[Words]) -> NDArray[np.bool_]:
    """Return which sides have enough words for near overlap, [2, N]."""
    return np.array([[len(words) >= MIN_NEAR_WORDS for words in sentences] for sentences in sides], bool)
