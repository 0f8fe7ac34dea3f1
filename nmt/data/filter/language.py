"""Language score: whether each side is in its language, which is learned from the corpus.

Shape suffixes: N pairs, U units of a side of several pairs, G hash values of letter n-grams.
"""

from __future__ import annotations

import math
import zlib
from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

from nmt.data.arrays import Doubles, Floats
from nmt.data.filter.scorer import Arrays
from nmt.data.filter.units import translated_pairs, units
from nmt.data.pairs import Pair

NUM_GRAMS = 1 << 16
"""Number of hash values of letter n-grams."""
GRAM_LENGTHS = (2, 3, 4)
GRAM_SMOOTHING = 0.5
GRAM_WEIGHT = 2.0
"""Weight of the mean log-odds of the n-grams of a unit: they are not independent, so a sum would be
too certain."""
PRIOR_COUNT = 2.0
"""Number of occurrences that the n-grams of a unit count for."""
MIN_PROBABILITY = 0.01
MAX_UNITS = 50_000
"""Maximum number of units that are counted; the others are judged by their n-grams."""
MAX_CACHED = 200_000


class LanguageScorer:
    """The mean log-odds that the words are in the language of their side, of the worse half of the
    worse side.

    The probability of a word comes from its occurrences on both sides and from its n-grams (naive
    Bayes). Names and numbers occur on both sides, so their log-odds are near 0.
    """

    def __init__(
        self,
        gram_odds_G: Floats,
        units: Sequence[str],
        unit_odds_U: Floats,
    ) -> None:
        """Create the scorer.

        Args:
            gram_odds_G: log-odds of the source language for each n-gram.
            units: frequent units.
            unit_odds_U: log-odds of the source language for each frequent unit.
        """
        self.gram_odds_G = gram_odds_G
        self.units = units
        self.unit_odds_U = unit_odds_U
        odds = unit_odds_U.tolist()
        self._odds = dict(zip(units, odds, strict=True))

    @classmethod
    def fit(cls, pairs: Sequence[Pair]) -> LanguageScorer:
        """Count the units of both sides."""
        translated = translated_pairs(pairs)
        source = _SideCounts(source for source, _ in translated)
        target = _SideCounts(target for _, target in translated)
        ratio_G = source.gram_probabilities() / target.gram_probabilities()
        gram_odds_G = np.log(ratio_G).astype(np.float32)
        all_counts = source.counts + target.counts
        frequent: list[str] = []
        odds: list[float] = []
        for unit, count in all_counts.most_common(MAX_UNITS):
            source_frequency = source.frequency(unit)
            target_frequency = target.frequency(unit)
            share = source_frequency / (source_frequency + target_frequency)
            prior = _probability(gram_odds_G, unit)
            num_source = count * share + PRIOR_COUNT * prior
            probability = num_source / (count + PRIOR_COUNT)
            unit_odds = _log_odds(probability)
            frequent.append(unit)
            odds.append(unit_odds)
        return cls(gram_odds_G, frequent, np.array(odds, np.float32))

    def score(self, pairs: Sequence[Pair]) -> Floats:
        """Return the score of each pair, [N]. A blank side has the score 0."""
        sources = [source for source, _ in pairs]
        targets = [target for _, target in pairs]
        source_N = self._side_scores(sources, 1)
        target_N = self._side_scores(targets, -1)
        score_N = np.minimum(source_N, target_N)
        return score_N.astype(np.float32)

    @classmethod
    def from_arrays(cls, arrays: Arrays) -> LanguageScorer:
        """Return the scorer with these parameters."""
        return cls(
            arrays["gram_odds"],
            arrays["units"].tolist(),
            arrays["unit_odds"],
        )

    def to_arrays(self) -> Arrays:
        """Return the parameters."""
        return {
            "gram_odds": self.gram_odds_G,
            "units": np.array(self.units, np.str_),
            "unit_odds": self.unit_odds_U,
        }

    def _side_scores(self, texts: Sequence[str], sign: int) -> Doubles:
        """Return the mean of the worse half of each sentence, [N]."""
        odds: list[float] = []
        lengths: list[int] = []
        for text in texts:
            sentence = units(text)
            odds.extend(map(self._unit_odds, sentence))
            lengths.append(len(sentence))
        odds_U = sign * np.array(odds, np.float64)
        length_N = np.array(lengths, np.int64)
        first_length_N = length_N // 2
        second_length_N = length_N - first_length_N
        half_N2 = np.column_stack([first_length_N, second_length_N])
        half_lengths = half_N2.ravel()
        num_halves = len(half_lengths)
        indices = np.arange(num_halves)
        half_U = np.repeat(indices, half_lengths)
        sums = np.bincount(half_U, odds_U, num_halves)
        means = sums / np.maximum(half_lengths, 1)
        first_N, second_N = means.reshape(-1, 2).T
        # The first half of a single word is empty.
        has_halves_N = first_length_N > 0
        first_N = np.where(has_halves_N, first_N, second_N)
        return np.minimum(first_N, second_N)

    def _unit_odds(self, unit: str) -> float:
        odds = self._odds.get(unit)
        if odds is None:
            odds = _log_odds(_probability(self.gram_odds_G, unit))
            if len(self._odds) < MAX_CACHED:
                self._odds[unit] = odds
        return odds


class _SideCounts:
    """The numbers of occurrences of the units of one side."""

    def __init__(self, texts: Iterable[str]) -> None:
        self.counts = Counter[str]()
        for text in texts:
            self.counts.update(units(text))
        total = self.counts.total()
        self.total = max(1, total)

    def frequency(self, unit: str) -> float:
        """Return the relative frequency of a unit."""
        return self.counts[unit] / self.total

    def gram_probabilities(self) -> Doubles:
        """Return the probability of each n-gram, [G]."""
        count_G = np.full(NUM_GRAMS, GRAM_SMOOTHING)
        for unit, count in self.counts.items():
            for gram in _grams(unit):
                count_G[gram] += count
        total = count_G.sum()
        probability_G: Doubles = count_G / total
        return probability_G


def _probability(gram_odds_G: Floats, unit: str) -> float:
    """Return the probability that a unit is in the source language, by its n-grams."""
    odds = gram_odds_G[_grams(unit)]
    mean = float(odds.mean())
    exponent = -GRAM_WEIGHT * mean
    return 1 / (1 + math.exp(exponent))


def _log_odds(probability: float) -> float:
    source = probability + MIN_PROBABILITY
    target = 1 - probability + MIN_PROBABILITY
    return math.log(source / target)


def _grams(unit: str) -> list[int]:
    """Return the hash values of the letter n-grams of a unit and its edges."""
    letters = f"<{unit}>"
    hashes = []
    for length in GRAM_LENGTHS:
        num_grams = len(letters) - length + 1
        for start in range(max(1, num_grams)):
            end = start + length
            gram = letters[start:end]
            encoded = gram.encode("utf-8", "replace")
            checksum = zlib.crc32(encoded)
            hashes.append(checksum % NUM_GRAMS)
    return hashes
