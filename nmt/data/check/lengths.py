"""Length ratios of sentence pairs. Shape suffix: N pairs."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

NUM_BINS, MIN_BIN_SIZE = 12, 200
"""Maximum number of length bins, and minimum number of pairs per bin."""


def log_length_ratio(
    source_N: NDArray[np.uint16], target_N: NDArray[np.uint16]
) -> NDArray[np.float64]:
    """Return the log of the smoothed length ratio; the smoothing moves the ratio of short sentences
    toward 1."""
    ratio_N: NDArray[np.float64] = np.log((target_N + 5.0) / (source_N + 5.0))
    return ratio_N


def ratio_statistics(chars_N2: NDArray[np.uint16]) -> tuple[float, float]:
    """Return the median and the spread (a robust standard deviation) of the log length ratio."""
    ratio_N = log_length_ratio(chars_N2[:, 0], chars_N2[:, 1])
    median = float(np.median(ratio_N))
    return median, 1.4826 * float(np.median(np.abs(ratio_N - median))) + 0.02


def length_deviations(
    chars_N2: NDArray[np.uint16], mask_N: NDArray[np.bool_]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the deviation of each log length ratio from the median, and the spread of the ratio.

    Median and spread are estimated from the pairs in `mask_N` as functions of the length, because
    the ratios of short sentences vary more.
    """
    size_N = np.log(chars_N2 + 5.0).sum(1)
    num_bins = max(1, min(NUM_BINS, int(mask_N.sum()) // MIN_BIN_SIZE))
    edges = np.quantile(size_N[mask_N], np.linspace(0, 1, num_bins + 1))
    centers, medians, spreads = [], [], []
    for low, high in pairwise(edges):
        inside_N = mask_N & (size_N >= low) & (size_N <= high)
        median, spread = ratio_statistics(chars_N2[inside_N])
        centers.append(float(np.median(size_N[inside_N])))
        medians.append(median)
        spreads.append(spread)
    deviation_N = log_length_ratio(chars_N2[:, 0], chars_N2[:, 1]) - np.interp(
        size_N, centers, medians
    )
    return deviation_N, np.interp(size_N, centers, spreads)
