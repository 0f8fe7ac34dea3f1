"""One score from several, without labels. Shape suffix: N pairs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from nmt.data.arrays import Doubles, Floats
from nmt.data.check.lengths import median_and_spread
from nmt.data.filter.scorer import Arrays

LOG_LIKELIHOODS = ("length", "ending")
"""Scores that are added as they are."""
PROBABILITIES = ("dual",)
"""Scores whose logarithm is standardized."""
MIN_PENALTY = -32.0
"""Minimum of the log-likelihood of a score: eight standard deviations."""
MIN_SPREAD = 1e-6
MIN_SCORE = 1e-30


@dataclass(frozen=True)
class Standardization:
    """Median of a score, and its spread (a robust standard deviation)."""

    median: float
    spread: float

    @classmethod
    def fit(cls, value_N: Doubles) -> Standardization:
        """Estimate both from the values of a sample."""
        median, spread = median_and_spread(value_N)
        return cls(median, max(spread, MIN_SPREAD))

    def penalties(self, value_N: Doubles) -> Doubles:
        """Return the log-likelihoods of values, relative to that of the median."""
        z_N = (value_N - self.median) / self.spread
        below_N = np.minimum(z_N, 0.0)
        penalty_N: Doubles = -(below_N**2) / 2
        return penalty_N


class Combination:
    """The sum of the log-likelihoods of all scores of a pair, if the pair is good.

    A score has a normal distribution with the median and the spread of the corpus; above the
    median, all values are equally good. So a pair must not make up for a bad score by a good one.
    """

    def __init__(self, standardizations: Mapping[str, Standardization]) -> None:
        self.standardizations = standardizations

    @classmethod
    def fit(cls, columns: Mapping[str, Floats]) -> Combination:
        """Estimate the distributions.

        Args:
            columns: scores of a sample, [N], by name, such as `alignment` or `dual`.
        """
        standardizations = {}
        for name, score_N in columns.items():
            value_N = _as_value(name, score_N)
            standardizations[name] = Standardization.fit(value_N)
        return cls(standardizations)

    @property
    def names(self) -> list[str]:
        """The names of the scores."""
        return list(self.standardizations)

    def combine(self, columns: Mapping[str, Floats]) -> Floats:
        """Return the combined score of each pair, [N], at most 0."""
        penalties = []
        for name in self.names:
            score_N = columns[name]
            penalties.append(self._penalties(name, score_N))
        sum_N: Doubles = np.sum(penalties, axis=0)
        return sum_N.astype(np.float32)

    @classmethod
    def from_arrays(cls, arrays: Arrays) -> Combination:
        """Return the combination with these parameters."""
        names = arrays["names"].tolist()
        rows = arrays["standardizations"].tolist()
        standardizations = {}
        for name, row in zip(names, rows, strict=True):
            standardizations[name] = Standardization(*row)
        return cls(standardizations)

    def to_arrays(self) -> Arrays:
        """Return the parameters."""
        rows = np.zeros((len(self.names), 2))
        for i, name in enumerate(self.names):
            standardization = self.standardizations[name]
            rows[i] = standardization.median, standardization.spread
        return {"names": np.array(self.names, np.str_), "standardizations": rows}

    def _penalties(self, name: str, score_N: Floats) -> Doubles:
        value_N = _as_value(name, score_N)
        if name not in LOG_LIKELIHOODS:
            value_N = self.standardizations[name].penalties(value_N)
        return np.maximum(value_N, MIN_PENALTY)


def _as_value(name: str, score_N: Floats) -> Doubles:
    """Return scores as values with approximately normal distributions."""
    value_N = score_N.astype(np.float64)
    if name in PROBABILITIES:
        value_N = np.log(np.maximum(value_N, MIN_SCORE))
    return value_N
