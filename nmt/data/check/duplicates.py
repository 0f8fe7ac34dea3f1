"""Detection of duplicates. Shape suffixes: N pairs, M candidates."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nmt.data.check.features import Records
from nmt.data.check.minhash import band_keys

BANDS = tuple((start, 6) for start in range(0, 59, 3))
"""First hash value and width of each band. Two pairs are compared only if all hash values of a band agree. Of pairs
with a Jaccard similarity of 0.8, 98% agree in one of these 20 overlapping bands."""
MIN_SIMILARITY = 0.75
"""Minimum estimated Jaccard similarity of near duplicates: 0.8 minus one standard error (0.05) of the estimate."""
CHUNK_SIZE = 1 << 16
"""Candidates compared at a time."""


@dataclass(frozen=True)
class Duplicates:
    """For each pair, the index of the earlier pair that it duplicates, or -1."""

    exact_N: NDArray[np.int64]
    near_N: NDArray[np.int64]
    same_source_N: NDArray[np.int64]
    """The earlier pair has the same source and another target."""


def find_duplicates(records: Records, mask_N: NDArray[np.bool_]) -> Duplicates:
    """Find exact duplicates, near duplicates and repeated sources among the pairs in `mask_N`."""
    exact_N = _first_occurrence(records["pair"], mask_N)
    unique_N = mask_N & (exact_N < 0)
    near_N = np.full(len(records), -1)
    for band in BANDS:
        first_N = _first_occurrence(band_keys(records["digest"], band), unique_N & (near_N < 0))
        candidates = np.flatnonzero(first_N >= 0)
        for start in range(0, len(candidates), CHUNK_SIZE):
            index_M = candidates[start : start + CHUNK_SIZE]
            similarity_M = (records["digest"][index_M] == records["digest"][first_N[index_M]]).mean(1)
            index_M = index_M[similarity_M >= MIN_SIMILARITY]
            near_N[index_M] = first_N[index_M]
    same_source_N = _first_occurrence(records["source"], unique_N)
    same_source_N[near_N >= 0] = -1  # the target is not a different one
    return Duplicates(exact_N, near_N, same_source_N)


def _first_occurrence(key_N: NDArray[np.uint64], mask_N: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return the first index in `mask_N` with the same key, or -1 for the first one and outside the mask."""
    indices = np.flatnonzero(mask_N)
    key_M = key_N[indices]
    order = np.argsort(key_M, kind="stable")
    sorted_M = key_M[order]
    is_first_M = np.r_[True, sorted_M[1:] != sorted_M[:-1]] if len(order) else np.empty(0, bool)
    first_M = order[np.maximum.accumulate(np.where(is_first_M, np.arange(len(order)), 0))]
    earlier_N = np.full(len(key_N), -1)
    earlier_N[indices[order[~is_first_M]]] = indices[first_M[~is_first_M]]
    return earlier_N
