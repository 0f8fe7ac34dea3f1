"""Length score: how likely the lengths of both sides are. Shape suffixes: N pairs, B bins."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nmt.data.arrays import Floats, Indices
from nmt.data.check.lengths import LengthBins
from nmt.data.filter.scorer import Arrays
from nmt.data.pairs import Pair


class LengthScorer:
    """The log-likelihood of the ratio of the numbers of characters, relative to that of the most
    likely ratio of pairs of this size.

    The logarithm of the ratio has a normal distribution, whose parameters depend on the size.
    """

    def __init__(self, bins: LengthBins) -> None:
        self.bins = bins

    @classmethod
    def fit(cls, pairs: Sequence[Pair]) -> LengthScorer:
        """Estimate the distribution."""
        return cls(LengthBins.fit(_count_characters(pairs)))

    def score(self, pairs: Sequence[Pair]) -> Floats:
        """Return the log-likelihood of each pair, [N], at most 0."""
        deviation_N, spread_N = self.bins.deviations(_count_characters(pairs))
        z_N = deviation_N / spread_N
        score_N = -(z_N**2) / 2
        return score_N.astype(np.float32)

    @classmethod
    def from_arrays(cls, arrays: Arrays) -> LengthScorer:
        """Return the scorer with these parameters."""
        return cls(LengthBins(*arrays["bins"]))

    def to_arrays(self) -> Arrays:
        """Return the parameters."""
        bins = self.bins
        return {"bins": np.stack([bins.center_B, bins.median_B, bins.spread_B])}


def _count_characters(pairs: Sequence[Pair]) -> Indices:
    chars_N2 = np.zeros((len(pairs), 2), np.int64)
    for i, (source, target) in enumerate(pairs):
        source = source.strip()
        target = target.strip()
        chars_N2[i] = len(source), len(target)
    return chars_N2
