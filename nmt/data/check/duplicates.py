"""Which pairs a text holds more than once. Letters: N pairs, P hash functions of a digest."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nmt.data.check.features import ALIKE, BANDS, Records, band_keys

CHUNK = 1 << 16


@dataclass(frozen=True)
class Repeats:
    """Of each pair, the number of an earlier one that it repeats, or -1."""

    same_N: NDArray[np.int64]
    near_N: NDArray[np.int64]
    source_N: NDArray[np.int64]
    """The source of an earlier pair, with another target."""


def repeats(records: Records, counts_N: NDArray[np.bool_]) -> Repeats:
    """Find pairs that are the same, almost the same, or share their source; those not in `counts_N` are left alone."""
    same_N = _earlier(records["pair"], counts_N)
    rest_N = counts_N & (same_N < 0)
    near_N = np.full(len(records), -1)
    for band in BANDS:
        first_N = _earlier(band_keys(records["digest"], band), rest_N & (near_N < 0))
        candidates = np.flatnonzero(first_N >= 0)
        for start in range(0, len(candidates), CHUNK):
            part = candidates[start : start + CHUNK]
            alike = (records["digest"][part] == records["digest"][first_N[part]]).mean(1)
            near_N[part[alike >= ALIKE]] = first_N[part[alike >= ALIKE]]
    return Repeats(same_N, near_N, _earlier_source(records, rest_N, near_N))


def _earlier_source(records: Records, rest_N: NDArray[np.bool_], near_N: NDArray[np.int64]) -> NDArray[np.int64]:
    found_N = _earlier(records["source"], rest_N)
    found_N[near_N >= 0] = -1  # its target is not another one
    return found_N


def _earlier(key_N: NDArray[np.uint64], counts_N: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return the first number with the same key, or -1 where a number is the first of its key."""
    numbers = np.flatnonzero(counts_N)
    key_M = key_N[numbers]
    order = np.argsort(key_M, kind="stable")
    sorted_M = key_M[order]
    begins = np.r_[True, sorted_M[1:] != sorted_M[:-1]] if len(order) else np.empty(0, bool)
    first_M = order[np.maximum.accumulate(np.where(begins, np.arange(len(order)), 0))]
    found_N = np.full(len(key_N), -1)
    found_N[numbers[order[~begins]]] = numbers[first_M[~begins]]
    return found_N
