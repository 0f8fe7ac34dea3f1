"""Detection of duplicates. Shape suffixes: N pairs, M candidates."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nmt.data.arrays import Bools, Hashes, Indices
from nmt.data.check.features import Records
from nmt.data.check.minhash import band_keys

BANDS = tuple((start, 6) for start in range(0, 59, 3))
"""First hash value and width of each band. Two pairs are compared only if all hash values of a band
agree. Of pairs with a Jaccard similarity of 0.8, 98% agree in one of these 20 overlapping bands."""
MIN_SIMILARITY = 0.75
"""Minimum estimated Jaccard similarity of near duplicates: 0.8 minus one standard error (0.05) of
the estimate."""
CHUNK_SIZE = 1 << 16
"""Candidates compared at a time."""


@dataclass(frozen=True)
class Duplicates:
    """For each pair, the index of the earlier pair that it duplicates, or -1."""

    exact_N: Indices
    near_N: Indices
    same_source_N: Indices
    """The earlier pair has the same source and another target."""


def find_duplicates(records: Records, mask_N: Bools) -> Duplicates:
    """Find exact duplicates, near duplicates and repeated sources among the pairs in `mask_N`."""
    exact_N = _first_occurrence(records["pair"], mask_N)
    unique_N = mask_N & (exact_N < 0)
    near_N = _find_near(records["digest"], unique_N)
    same_source_N = _first_occurrence(records["source"], unique_N)
    same_source_N[near_N >= 0] = -1  # the target is not a different one
    return Duplicates(exact_N, near_N, same_source_N)


def _find_near(digest_NP: Records, mask_N: Bools) -> Indices:
    """Return the first pair that agrees with each pair in a band and is similar (Broder 1997), or
    -1."""
    near_N = np.full(len(mask_N), -1)
    for band in BANDS:
        keys_N = band_keys(digest_NP, band)
        first_N = _first_occurrence(keys_N, mask_N & (near_N < 0))
        candidates = np.flatnonzero(first_N >= 0)
        for start in range(0, len(candidates), CHUNK_SIZE):
            pair_M = candidates[start : start + CHUNK_SIZE]
            first_M = first_N[pair_M]
            # The fraction of equal hash values estimates the Jaccard similarity.
            is_equal_MP = digest_NP[pair_M] == digest_NP[first_M]
            is_near_M = is_equal_MP.mean(1) >= MIN_SIMILARITY
            near_N[pair_M[is_near_M]] = first_M[is_near_M]
    return near_N


def _first_occurrence(key_N: Hashes, mask_N: Bools) -> Indices:
    """Return the first index in `mask_N` with the same key, or -1 for the first one and outside the
    mask."""
    index_M = np.flatnonzero(mask_N)
    _, first, inverse_M = np.unique(key_N[index_M], return_index=True, return_inverse=True)
    first_M = index_M[first[inverse_M]]
    earlier_N = np.full(len(key_N), -1)
    earlier_N[index_M] = np.where(first_M < index_M, first_M, -1)
    return earlier_N
