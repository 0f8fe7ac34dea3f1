"""Alignment score: whether the words of both sides have counterparts on the other side.

Shape suffixes: N pairs, U units of a side of several pairs, C cells, V vocabulary and a last entry
for rare units.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from nmt.data.arrays import Doubles, Floats, Indices
from nmt.data.filter.lexicon import Lexicon
from nmt.data.filter.scorer import Arrays
from nmt.data.filter.units import (
    Block,
    Side,
    Vocabulary,
    blocks,
    starts,
    translated_pairs,
    units,
)
from nmt.data.pairs import Pair

FREQUENCY_SMOOTHING = 0.5
PRIOR_COUNT = 20.0
"""Number of average units that are added to the occurrences of a unit to estimate its expected
coverage."""
COVERAGE_SMOOTHING = 0.5
"""Added to the expected coverage of a side, so that short ones have no extreme scores."""


class AlignmentScorer:
    """1 minus the coverage that is missing in the worst part of a side, as a fraction of the
    coverage of the side; the minimum of both sides.

    The coverage of a unit is the probability that it translates a unit of the other side, and is
    not there by chance. It is compared with the average coverage of this unit in the corpus. So
    half of a sentence without counterpart counts more than single words here and there, which free
    translations have, too.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        lexicon: Lexicon,
        frequencies_2V: Floats,
        expectations_2V: Floats,
    ) -> None:
        """Create the scorer.

        Args:
            vocabulary: frequent units of both sides.
            lexicon: translation probabilities of these units.
            frequencies_2V: relative frequency of each unit on both sides.
            expectations_2V: average coverage of each unit on both sides.
        """
        self.vocabulary = vocabulary
        self.lexicon = lexicon
        self.frequencies_2V = frequencies_2V
        self.expectations_2V = expectations_2V

    @classmethod
    def fit(cls, pairs: Sequence[Pair]) -> AlignmentScorer:
        """Learn the lexicon and the average coverages."""
        pairs = translated_pairs(pairs)
        sentences = (units(text) for pair in pairs for text in pair)
        vocabulary = Vocabulary.fit(sentences)
        lexicon = Lexicon.fit(partial(blocks, pairs, vocabulary), len(vocabulary))
        frequencies_2V = _frequencies(pairs, vocabulary)
        unknown_2V = np.zeros_like(frequencies_2V)
        scorer = cls(vocabulary, lexicon, frequencies_2V, unknown_2V)
        scorer.expectations_2V = scorer._expectations(pairs)
        return scorer

    def score(self, pairs: Sequence[Pair]) -> Floats:
        """Return the score of each pair, [N], from 0 to 1; 0 if a side is blank."""
        scores = [np.zeros(0, np.float32)]
        for block in blocks(pairs, self.vocabulary):
            source, target = self._covered_sides(block)
            source_N = self._side_scores(source)
            target_N = self._side_scores(target)
            score_N: Doubles = np.minimum(source_N, target_N)
            scores.append(score_N.astype(np.float32))
        return np.concatenate(scores)

    @classmethod
    def from_arrays(cls, arrays: Arrays) -> AlignmentScorer:
        """Return the scorer with these parameters."""
        vocabulary = Vocabulary(arrays["units"].tolist())
        lexicon = Lexicon(
            arrays["keys"],
            arrays["target_probabilities"],
            arrays["source_probabilities"],
            len(vocabulary),
        )
        return cls(vocabulary, lexicon, arrays["frequencies"], arrays["expectations"])

    def to_arrays(self) -> Arrays:
        """Return the parameters."""
        return {
            "units": np.array(self.vocabulary.frequent, np.str_),
            "keys": self.lexicon.keys_K,
            "target_probabilities": self.lexicon.target_K,
            "source_probabilities": self.lexicon.source_K,
            "frequencies": self.frequencies_2V,
            "expectations": self.expectations_2V,
        }

    def _expectations(self, pairs: Sequence[Pair]) -> Floats:
        """Return the average coverage of each unit on both sides, [2, V]."""
        shape = self.frequencies_2V.shape
        sum_2V = np.zeros(shape)
        count_2V = np.zeros(shape)
        for block in blocks(pairs, self.vocabulary):
            for side in self._covered_sides(block):
                sum_V = np.bincount(side.unit_U, side.coverage_U, shape[1])
                count_V = np.bincount(side.unit_U, minlength=shape[1])
                sum_2V[side.index] += sum_V
                count_2V[side.index] += count_V
        total_21 = sum_2V.sum(1, keepdims=True)
        num_units_21 = count_2V.sum(1, keepdims=True)
        average_21 = total_21 / np.maximum(num_units_21, 1)
        sum_2V += PRIOR_COUNT * average_21
        count_2V += PRIOR_COUNT
        expectations_2V = sum_2V / count_2V
        return expectations_2V.astype(np.float32)

    def _covered_sides(self, block: Block) -> Iterator[_CoveredSide]:
        """Yield the source and the target side with their coverages."""
        cells_C, entries_C = self.lexicon.find(block)
        copies_C = self._find_copies(block)
        known_C = np.concatenate([cells_C, copies_C])
        copied_C = np.ones(len(copies_C), np.float32)
        probabilities = [self.lexicon.source_K, self.lexicon.target_K]
        units_of_sides = [block.source_C, block.target_C]
        sides = [block.source, block.target]
        for index, side in enumerate(sides):
            other = sides[1 - index]
            unit_C = units_of_sides[index][known_C]
            learned_C = probabilities[index][entries_C]
            probability_C = np.concatenate([learned_C, copied_C])
            yield self._cover(index, side, other, unit_C, probability_C)

    def _find_copies(self, block: Block) -> Indices:
        """Return the cells of equal rare words, such as names, which translate themselves."""
        source_C = block.source.ids_U[block.source_C]
        target_C = block.target.ids_U[block.target_C]
        is_rare_C = source_C >= len(self.vocabulary)
        is_equal_C = source_C == target_C
        return np.flatnonzero(is_rare_C & is_equal_C)

    def _cover(
        self, index: int, side: Side, other: Side, unit_C: Indices, probability_C: Floats
    ) -> _CoveredSide:
        """Return the coverage of the units of a side.

        Args:
            index: 0 for the source side, 1 for the target side.
            side: the units.
            other: the units of the other side.
            unit_C: indices of units that the other side may explain.
            probability_C: their probabilities, given a unit of the other side.
        """
        num_units = len(side.ids_U)
        num_others_U = other.lengths_N[side.pair_U]
        sum_U = np.bincount(unit_C, probability_C, num_units)
        explained_U = sum_U / np.maximum(num_others_U, 1)
        unit_U = np.minimum(side.ids_U, len(self.vocabulary))
        frequency_V = self.frequencies_2V[index]
        chance_U = frequency_V[unit_U]
        coverage_U = explained_U / (explained_U + chance_U)
        return _CoveredSide(index, side, unit_U, coverage_U)

    def _side_scores(self, covered: _CoveredSide) -> Doubles:
        """Return 1 minus the largest sum of missing coverage of consecutive units, relative to the
        sum of expected coverage, [N]."""
        side = covered.side
        num_pairs = len(side.lengths_N)
        expectation_V = self.expectations_2V[covered.index].astype(np.float64)
        expected_U = expectation_V[covered.unit_U]
        missing_U = expected_U - covered.coverage_U
        expected_N = np.bincount(side.pair_U, expected_U, num_pairs)
        part_N = _largest_sums(side.lengths_N, missing_U) / (expected_N + COVERAGE_SMOOTHING)
        score_N: Doubles = 1 - part_N
        score_N[side.lengths_N == 0] = 0
        return score_N


def _largest_sums(lengths_N: Indices, value_U: Doubles) -> Doubles:
    """Return the largest sum of consecutive values of each sentence, at least 0, [N] (Kadane's
    algorithm, for all sentences at once)."""
    first_N = starts(lengths_N)
    largest_N = np.zeros(len(lengths_N))
    ending_here_N = np.zeros(len(lengths_N))
    position = 0
    sentences = np.flatnonzero(lengths_N)
    while len(sentences):
        values = value_U[first_N[sentences] + position]
        # A negative sum before a value is left out.
        sums = np.maximum(ending_here_N[sentences], 0) + values
        ending_here_N[sentences] = sums
        largest_N[sentences] = np.maximum(largest_N[sentences], sums)
        position += 1
        is_longer = lengths_N[sentences] > position
        sentences = sentences[is_longer]
    return largest_N


@dataclass(frozen=True)
class _CoveredSide:
    """One side of several pairs, and the coverage of its units."""

    index: int
    """0 for the source side, 1 for the target side."""
    side: Side
    unit_U: Indices
    """Indices into the vocabulary; those of rare units are its size."""
    coverage_U: Doubles


def _frequencies(pairs: Sequence[Pair], vocabulary: Vocabulary) -> Floats:
    """Return the relative frequency of each unit on both sides, [2, V]; rare units have that of a
    unit that never occurs."""
    size = len(vocabulary) + 1
    count_2V = np.zeros((2, size))
    for block in blocks(pairs, vocabulary):
        for index, side in enumerate((block.source, block.target)):
            unit_U = np.minimum(side.ids_U, len(vocabulary))
            count_V = np.bincount(unit_U, minlength=size)
            count_2V[index] += count_V
    total_21 = count_2V.sum(1, keepdims=True)
    count_2V[:, -1] = 0
    smoothed_2V = count_2V + FREQUENCY_SMOOTHING
    frequency_2V: Doubles = smoothed_2V / np.maximum(total_21, 1)
    return frequency_2V.astype(np.float32)
