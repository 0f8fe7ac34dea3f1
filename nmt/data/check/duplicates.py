"""Detection of duplicates. Shape suffixes: N pairs, M candidates, P hash functions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from nmt.data.arrays import Bools, Bytes, Hashes, Indices
from nmt.data.check.feature_files import Features
from nmt.data.check.minhash import Band, band_keys
from nmt.data.first_occurrences import Keys, find_repeated

BANDS = tuple((start, 6) for start in range(0, 59, 3))
"""First hash value and width of each band. Two pairs are compared only if all hash values of a band
agree. Of pairs with a Jaccard similarity of 0.8, 98% agree in one of these 20 overlapping bands."""
MIN_SIMILARITY = 0.75
"""Minimum estimated Jaccard similarity of near duplicates: 0.8 minus one standard error (0.05) of
the estimate."""
CHUNK_SIZE = 1 << 16
"""Candidates compared at a time."""
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
        return int(self.first_M[np.searchsorted(self.pair_M, pair)])


@dataclass(frozen=True)
class Duplicates:
    """The duplicates of each kind."""

    exact: Repetition
    near: Repetition
    same_source: Repetition
    """The earlier pair has the same source and another target."""


def find_duplicates(features: Features, mask_N: Bools, scratch: Path) -> Duplicates:
    """Find exact duplicates, near duplicates and repeated sources among the pairs in `mask_N`;
    `scratch` is the path of a temporary database."""

    def find(key: Callable[[slice], Hashes], mask_N: Bools) -> Repetition:
        parts = _parts(key, mask_N)
        return _join(list(find_repeated(parts, int(mask_N.sum()), scratch)))

    pair_N = features["pair"]
    exact = find(lambda part: pair_N[part], mask_N)
    rest_N = mask_N.copy()
    rest_N[exact.pair_M] = False
    near = _find_near(features, rest_N, scratch)
    source_N = features["source"]
    same_source = find(lambda part: source_N[part], rest_N)
    # The target of a near duplicate is not a different one.
    is_near_M = np.isin(same_source.pair_M, near.pair_M, assume_unique=True)
    same_source = Repetition(same_source.pair_M[~is_near_M], same_source.first_M[~is_near_M])
    features.release()
    return Duplicates(exact, near, same_source)


def _parts(key: Callable[[slice], Hashes], mask_N: Bools) -> Iterator[Keys]:
    """Yield the positions and keys of the pairs in `mask_N`."""
    for start in range(0, len(mask_N), PART_SIZE):
        part = slice(start, start + PART_SIZE)
        inside = np.flatnonzero(mask_N[part])
        yield start + inside, key(part)[inside]


def _find_near(features: Features, mask_N: Bools, scratch: Path) -> Repetition:
    """Return the pairs that agree with an earlier one in a band and are similar to the first such
    pair (Broder 1997)."""
    digest_NP = features["digest"]
    remaining_N = mask_N.copy()
    found: list[tuple[Indices, Indices]] = []
    for band in BANDS:
        parts = _parts(partial(_band_keys, digest_NP, band), remaining_N)
        num_remaining = int(remaining_N.sum())
        found_in_band = []
        for pair_M, first_M in find_repeated(parts, num_remaining, scratch):
            for start in range(0, len(pair_M), CHUNK_SIZE):
                chunk = slice(start, start + CHUNK_SIZE)
                # The fraction of equal hash values estimates the Jaccard similarity.
                is_equal_MP = digest_NP[pair_M[chunk]] == digest_NP[first_M[chunk]]
                is_near_M = is_equal_MP.mean(1) >= MIN_SIMILARITY
                found_in_band.append((pair_M[chunk][is_near_M], first_M[chunk][is_near_M]))
                features.release()
        for pair_M, _ in found_in_band:
            remaining_N[pair_M] = False
        found += found_in_band
    return _join(found)


def _band_keys(digest_NP: Bytes, band: Band, part: slice) -> Hashes:
    return band_keys(digest_NP[part], band)


def _join(parts: list[tuple[Indices, Indices]]) -> Repetition:
    """Join pieces, and sort them by pair."""
    pair_M = np.concatenate([np.zeros(0, np.int64), *(pair for pair, _ in parts)])
    first_M = np.concatenate([np.zeros(0, np.int64), *(first for _, first in parts)])
    order_M = np.argsort(pair_M)
    return Repetition(pair_M[order_M], first_M[order_M])
