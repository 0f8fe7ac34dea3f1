"""Length ratios of sentence pairs. Shape suffix: N pairs."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from nmt.data.arrays import Bools, Doubles, Integers

NUM_BINS, MIN_BIN_SIZE = 12, 200
"""Maximum number of length bins, and minimum number of pairs per bin."""
MAX_SAMPLE = 1_000_000
"""Pairs from which the bins are estimated; more are sampled at equal distances."""


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


class LengthRatios:
    """Median and spread of the length ratio as functions of the length, because the ratios of short
    sentences vary more."""

    def __init__(self, chars_N2: Integers, mask_N: Bools) -> None:
        """Estimate them from the pairs in `mask_N`, of large corpora from a sample."""
        usable = np.flatnonzero(mask_N)
        step = 1 + len(usable) // MAX_SAMPLE
        chars_M2 = chars_N2[usable[::step]]
        size_M = _size(chars_M2)
        num_bins = len(size_M) // MIN_BIN_SIZE
        num_bins = max(1, min(NUM_BINS, num_bins))
        quantiles = np.linspace(0, 1, num_bins + 1)
        edges = np.quantile(size_M, quantiles)
        bins = []
        for low, high in pairwise(edges):
            is_inside_M = size_M >= low
            is_inside_M &= size_M <= high
            center = np.median(size_M[is_inside_M])
            median, spread = ratio_statistics(chars_M2[is_inside_M])
            bins.append((center, median, spread))
        self.centers, self.medians, self.spreads = np.transpose(bins)

    def deviations(self, chars_N2: Integers) -> tuple[Doubles, Doubles]:
        """Return the deviation of each log length ratio from the median, and the spread of the
        ratio."""
        size_N = _size(chars_N2)
        median_N = np.interp(size_N, self.centers, self.medians)
        spread_N = np.interp(size_N, self.centers, self.spreads)
        deviation_N = log_length_ratio(*chars_N2.T) - median_N
        return deviation_N, spread_N


def _size(chars_N2: Integers) -> Doubles:
    """Return the logarithm of the smoothed lengths of both sides together."""
    log_N2 = np.log(chars_N2 + 5.0)
    size_N: Doubles = log_N2.sum(1)
    return size_N
