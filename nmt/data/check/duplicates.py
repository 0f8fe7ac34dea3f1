"""Detection of duplicates. Shape suffixes: N pairs, M candidates, P hash functions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from nmt.core.console import progress
from nmt.data.arrays import Bools, Bytes, Hashes, Indices
from nmt.data.check import checks, minhash
from nmt.data.check.checks import Check
from nmt.data.check.feature_files import Features
from nmt.data.check.minhash import Band
from nmt.data.first_occurrences import Keys, find_repeated

BANDS = tuple((start, 6) for start in range(0, 59, 3))
"""First hash value and width of each band. Two pairs are compared only if all hash values of a band
agree. Of pairs with a Jaccard similarity of 0.8, 98% agree in one of these 20 overlapping bands."""
MIN_SIMILARITY = 0.75
"""Minimum estimated Jaccard similarity of near duplicates: 0.8 minus one standard error (0.05) of
the estimate."""
CHUNK_SIZE = 1 << 13
"""Candidates compared at a time. Linux maps 64 KB of the digests for each of them."""
PART_SIZE = 1 << 20
"""Pairs whose keys are in memory at a time."""


@dataclass(frozen=True)
class Repetition:
    """Pairs that repeat an earlier one."""

    pair_M: Indices
    """The pairs in ascending order."""
    first_M: Indices
    """The earlier pair of each."""

    def first(self, pair: int) -> int:
        """Return the earlier pair of a pair."""
        place = np.searchsorted(self.pair_M, pair)
        return int(self.first_M[place])


def find_duplicates(
    features: Features, mask_N: Bools, ignored: Set[str], scratch: Path
) -> dict[Check, Repetition]:
    """Find exact duplicates, near duplicates, and repeated sources with another target, by check.

    Args:
        features: the features of all pairs.
        mask_N: the pairs that are compared.
        ignored: names of checks to skip.
        scratch: path of a temporary database.
    """
    is_near_ignored = ignored >= checks.NEAR_DUPLICATE_CHECKS
    bands = () if is_near_ignored else BANDS
    num_steps = 2 * len(mask_N) * (2 + len(bands))
    with progress(num_steps, "searching duplicates", " steps", unit_scale=True) as bar:
        find = _Search(features, scratch, bar.update)
        exact = _join(find(features["pair"].__getitem__, mask_N))
        rest_N = mask_N.copy()
        rest_N[exact.pair_M] = False
        near = _find_near(features, rest_N, bands, find)
        same_source = _join(find(features["source"].__getitem__, rest_N))
    # The target of a near duplicate is not a different one.
    is_near_M = np.isin(same_source.pair_M, near.pair_M, assume_unique=True)
    is_other_M = ~is_near_M
    pair_M = same_source.pair_M[is_other_M]
    first_M = same_source.first_M[is_other_M]
    features.release()
    return {
        checks.DUPLICATE: exact,
        checks.NEAR_DUPLICATE: near,
        checks.MULTIPLE_TARGETS: Repetition(pair_M, first_M),
    }


@dataclass(frozen=True)
class _Search:
    """Searches pairs with equal keys."""

    features: Features
    scratch: Path
    report: Callable[[int], object]

    def __call__(
        self, key: Callable[[slice], Hashes], mask_N: Bools
    ) -> Iterator[tuple[Indices, Indices]]:
        """Yield the pairs in `mask_N` whose key is that of an earlier one, and the first such pair;
        `key` returns the keys of consecutive pairs."""
        num_keys = int(mask_N.sum())
        parts = self._parts(key, mask_N)
        yield from find_repeated(parts, num_keys, self.scratch, self.report)
        num_left_out = len(mask_N) - num_keys
        self.report(2 * num_left_out)

    def _parts(self, key: Callable[[slice], Hashes], mask_N: Bools) -> Iterator[Keys]:
        """Yield the positions and keys of the pairs in `mask_N`."""
        for start in range(0, len(mask_N), PART_SIZE):
            part = slice(start, start + PART_SIZE)
            inside = np.flatnonzero(mask_N[part])
            keys = key(part)[inside]
            self.features.release()
            yield start + inside, keys


def _find_near(
    features: Features, mask_N: Bools, bands: Sequence[Band], find: _Search
) -> Repetition:
    """Return the pairs that agree with an earlier one in a band and are similar to the first such
    pair (Broder 1997)."""
    digest_NP = features["digest"]
    remaining_N = mask_N.copy()
    found: list[tuple[Indices, Indices]] = []
    for band in bands:
        band_keys = partial(_band_keys, digest_NP, band)
        candidates = find(band_keys, remaining_N)
        near = [_similar(features, *chunk) for chunk in _chunks(candidates)]
        for pair_M, _ in near:
            remaining_N[pair_M] = False
        found += near
    return _join(found)


def _chunks(candidates: Iterable[tuple[Indices, Indices]]) -> Iterator[tuple[Indices, Indices]]:
    """Divide candidates into chunks."""
    for pair_M, first_M in candidates:
        for start in range(0, len(pair_M), CHUNK_SIZE):
            end = start + CHUNK_SIZE
            yield pair_M[start:end], first_M[start:end]


def _similar(features: Features, pair_M: Indices, first_M: Indices) -> tuple[Indices, Indices]:
    """Return the candidates that are similar to the earlier pair."""
    digest_NP = features["digest"]
    # The fraction of equal hash values estimates the Jaccard similarity.
    is_equal_MP = digest_NP[pair_M] == digest_NP[first_M]
    similarity_M = is_equal_MP.mean(1)
    is_near_M = similarity_M >= MIN_SIMILARITY
    features.release()
    return pair_M[is_near_M], first_M[is_near_M]


def _band_keys(digest_NP: Bytes, band: Band, part: slice) -> Hashes:
    return minhash.band_keys(digest_NP[part], band)


def _join(parts: Iterable[tuple[Indices, Indices]]) -> Repetition:
    """Join pieces, and sort them by pair."""
    pairs = [np.zeros(0, np.int64)]
    firsts = [np.zeros(0, np.int64)]
    for pair_M, first_M in parts:
        pairs.append(pair_M)
        firsts.append(first_M)
    pair_M = np.concatenate(pairs)
    first_M = np.concatenate(firsts)
    order_M = np.argsort(pair_M)
    return Repetition(pair_M[order_M], first_M[order_M])
