"""Length ratios of sentence pairs. Shape suffix: N pairs."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from nmt.data.arrays import Bools, Doubles, Integers

NUM_BINS, MIN_BIN_SIZE = 12, 200
"""Maximum number of length bins, and minimum number of pairs per bin."""


def log_length_ratio(source_N: Integers, target_N: Integers) -> Doubles:
    """Return the log of the smoothed length ratio; the smoothing moves the ratio of short sentences
    toward 1."""
    ratio_N = np.log((target_N + 5.0) / (source_N + 5.0))
    return ratio_N


def ratio_statistics(chars_N2: Integers) -> tuple[float, float]:
    """Return the median and the spread (a robust standard deviation) of the log length ratio."""
    ratio_N = log_length_ratio(*chars_N2.T)
    median = float(np.median(ratio_N))
    deviation_N = np.abs(ratio_N - median)
    spread = 1.4826 * float(np.median(deviation_N)) + 0.02
    return median, spread


def length_deviations(chars_N2: Integers, mask_N: Bools) -> tuple[Doubles, Doubles]:
    """Return the deviation of each log length ratio from the median, and the spread of the ratio.

    Median and spread are estimated from the pairs in `mask_N` as functions of the length, because
    the ratios of short sentences vary more.
    """
    size_N = np.log(chars_N2 + 5.0).sum(1)
    num_bins = max(1, min(NUM_BINS, int(mask_N.sum()) // MIN_BIN_SIZE))
    quantiles = np.linspace(0, 1, num_bins + 1)
    edges = np.quantile(size_N[mask_N], quantiles)
    bins = []
    for low, high in pairwise(edges):
        inside_N = mask_N & (size_N >= low) & (size_N <= high)
        center = np.median(size_N[inside_N])
        statistics = ratio_statistics(chars_N2[inside_N])
        bins.append((center, *statistics))
    centers, medians, spreads = np.transpose(bins)
    median_N = np.interp(size_N, centers, medians)
    spread_N = np.interp(size_N, centers, spreads)
    deviation_N = log_length_ratio(*chars_N2.T) - median_N
    return deviation_N, spread_N
