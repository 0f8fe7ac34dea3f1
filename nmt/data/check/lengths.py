"""Length ratios of sentence pairs. Shape suffixes: N pairs, B bins of similar length."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from nmt.data.arrays import Doubles, Integers

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
    median, spread = median_and_spread(log_length_ratio(*chars_N2.T))
    return median, spread + 0.02


def median_and_spread(value_N: Doubles) -> tuple[float, float]:
    """Return the median of values and their spread."""
    median = float(np.median(value_N))
    deviation_N = np.abs(value_N - median)
    return median, 1.4826 * float(np.median(deviation_N))


@dataclass(frozen=True)
class LengthBins:
    """Median and spread of the log length ratio as functions of the length of pairs, [B].

    The ratios of short sentences vary more.
    """

    center_B: Doubles
    """Median log size of the pairs in a bin."""
    median_B: Doubles
    spread_B: Doubles

    @classmethod
    def fit(cls, chars_N2: Integers) -> LengthBins:
        """Estimate the functions from the numbers of characters of pairs, many of which are
        sampled."""
        step = 1 + len(chars_N2) // MAX_SAMPLE
        chars_N2 = chars_N2[::step]
        size_N = _log_size(chars_N2)
        num_bins = len(size_N) // MIN_BIN_SIZE
        num_bins = max(1, min(NUM_BINS, num_bins))
        quantiles = np.linspace(0, 1, num_bins + 1)
        edges = np.quantile(size_N, quantiles)
        bins = []
        for low, high in pairwise(edges):
            is_inside_N = size_N >= low
            is_inside_N &= size_N <= high
            center = np.median(size_N[is_inside_N])
            median, spread = ratio_statistics(chars_N2[is_inside_N])
            bins.append((center, median, spread))
        return cls(*np.transpose(bins))

    def deviations(self, chars_N2: Integers) -> tuple[Doubles, Doubles]:
        """Return the deviation of each log length ratio from the median of pairs of this size, and
        the spread of the ratio, [N]."""
        size_N = _log_size(chars_N2)
        median_N = np.interp(size_N, self.center_B, self.median_B)
        spread_N = np.interp(size_N, self.center_B, self.spread_B)
        deviation_N = log_length_ratio(*chars_N2.T) - median_N
        return deviation_N, spread_N


def _log_size(chars_N2: Integers) -> Doubles:
    """Return the log of the product of the smoothed lengths, [N]."""
    log_N2 = np.log(chars_N2 + 5.0)
    size_N: Doubles = log_N2.sum(1)
    return size_N
