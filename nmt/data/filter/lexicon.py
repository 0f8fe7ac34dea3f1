"""Word translation probabilities in both directions (IBM model 1, Brown et al. 1993).

Shape suffixes: C cells, U units of a side of all pairs, V vocabulary, K entries of the lexicon,
which are pairs of units that occur together in several sentence pairs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nmt.data.arrays import Doubles, Floats, Indices
from nmt.data.filter.units import Block, Vocabulary, blocks
from nmt.data.pairs import Pair

Int32s = NDArray[np.int32]
MAX_TRAINING_CELLS = 10_000_000
"""Maximum number of cells to learn from, which take about 300 MB."""
NUM_ITERATIONS = 5
NULL_PROBABILITY = 1e-3
"""Probability of each unit, given none of the other side."""
DISCOUNT = 1.0
"""Subtracted from the expected count of each entry (absolute discounting), so that a pair is no
evidence for itself. Otherwise, rare words would translate each other in pairs that are no
translations."""


@dataclass(frozen=True)
class Lexicon:
    """Translation probabilities of pairs of units."""

    keys_K: Indices
    """Source unit times the size of the vocabulary, plus target unit, ascending."""
    target_K: Floats
    """Probability of the target unit, given the source unit."""
    source_K: Floats
    """Probability of the source unit, given the target unit."""
    vocab_size: int

    @classmethod
    def fit(cls, pairs: Sequence[Pair], vocabulary: Vocabulary) -> Lexicon:
        """Learn the probabilities by expectation maximization."""
        cells = _TrainingCells(pairs, vocabulary)
        source_unit_K, target_unit_K = np.divmod(cells.keys_K, len(vocabulary))
        target_K = cells.learn(source_unit_K, cells.target)
        source_K = cells.learn(target_unit_K, cells.source)
        is_kept_K = (target_K > 0) | (source_K > 0)
        return cls(
            cells.keys_K[is_kept_K],
            target_K[is_kept_K].astype(np.float32),
            source_K[is_kept_K].astype(np.float32),
            len(vocabulary),
        )

    def find(self, block: Block) -> tuple[Indices, Indices]:
        """Return the cells of a block that have an entry, and these entries."""
        return _find_keys(self.keys_K, *_frequent_keys(block, self.vocab_size))


@dataclass
class _Side:
    """The units of one side of the training pairs."""

    unit_C: Int32s
    """Index of the unit of each cell."""
    num_units: int = 0


class _TrainingCells:
    """The cells of the training pairs that have an entry."""

    def __init__(self, pairs: Sequence[Pair], vocabulary: Vocabulary) -> None:
        self.vocab_size = len(vocabulary)
        all_keys_C = _sorted_keys(pairs, vocabulary)
        self.keys_K = _repeated(all_keys_C)
        num_cells = len(all_keys_C)
        del all_keys_C
        self.entries_C = np.empty(num_cells, np.int32)
        self.source = _Side(np.empty(num_cells, np.int32))
        self.target = _Side(np.empty(num_cells, np.int32))
        start = 0
        for block in _limited_blocks(pairs, vocabulary):
            frequent = _frequent_keys(block, self.vocab_size)
            cells_C, entries_C = _find_keys(self.keys_K, *frequent)
            end = start + len(cells_C)
            self.entries_C[start:end] = entries_C
            source_C = block.source_C[cells_C]
            target_C = block.target_C[cells_C]
            self.source.unit_C[start:end] = source_C + self.source.num_units
            self.target.unit_C[start:end] = target_C + self.target.num_units
            self.source.num_units += len(block.source.ids_U)
            self.target.num_units += len(block.target.ids_U)
            start = end
        self.entries_C = self.entries_C[:start]
        self.source.unit_C = self.source.unit_C[:start]
        self.target.unit_C = self.target.unit_C[:start]

    def learn(self, given_K: Indices, side: _Side) -> Doubles:
        """Return the probability of the unit on a side of each entry, given the unit on the other
        side, [K]."""
        num_entries = len(self.keys_K)
        # At first, all units of the other side explain a unit equally well.
        probability_K: Doubles = np.ones(num_entries)
        count_K: Doubles = probability_K
        total_K: Doubles = probability_K
        for _ in range(NUM_ITERATIONS):
            # Expectation: the share of each unit of the other side in explaining a unit.
            probability_C = probability_K[self.entries_C]
            sum_U = np.bincount(side.unit_C, probability_C, side.num_units)
            explained_U = sum_U + NULL_PROBABILITY
            share_C = probability_C / explained_U[side.unit_C]
            # Maximization: relative frequencies.
            count_K = np.bincount(self.entries_C, share_C, num_entries).astype(np.float64)
            total_V = np.bincount(given_K, count_K, self.vocab_size)
            total_K = np.maximum(total_V[given_K], 1.0)
            probability_K = count_K / total_K
        discounted_K = np.maximum(count_K - DISCOUNT, 0.0)
        learned_K: Doubles = discounted_K / total_K
        return learned_K


def _frequent_keys(block: Block, vocab_size: int) -> tuple[Indices, Indices]:
    """Return the cells whose units are both in the vocabulary, and their keys."""
    source_C = block.source.ids_U[block.source_C]
    target_C = block.target.ids_U[block.target_C]
    is_frequent_C = (source_C < vocab_size) & (target_C < vocab_size)
    cells_C = np.flatnonzero(is_frequent_C)
    keys_C = source_C[cells_C] * vocab_size + target_C[cells_C]
    return cells_C, keys_C


def _find_keys(keys_K: Indices, cells_C: Indices, keys_C: Indices) -> tuple[Indices, Indices]:
    """Return the cells whose key is one of `keys_K`, and its index."""
    if not len(keys_K):
        return cells_C[:0], cells_C[:0]
    entries_C = np.searchsorted(keys_K, keys_C)
    entries_C = np.minimum(entries_C, len(keys_K) - 1)
    is_known_C = keys_K[entries_C] == keys_C
    return cells_C[is_known_C], entries_C[is_known_C]


def _sorted_keys(pairs: Sequence[Pair], vocabulary: Vocabulary) -> Indices:
    """Return the keys of all training cells, ascending."""
    keys_C = np.empty(MAX_TRAINING_CELLS, np.int64)
    num_cells = 0
    for block in _limited_blocks(pairs, vocabulary):
        _, block_keys_C = _frequent_keys(block, len(vocabulary))
        end = num_cells + len(block_keys_C)
        keys_C[num_cells:end] = block_keys_C
        num_cells = end
    keys_C = keys_C[:num_cells]
    keys_C.sort()
    return keys_C


def _repeated(keys_C: Indices) -> Indices:
    """Return the keys that occur at least twice, ascending, from sorted ones."""
    is_repeated_C = keys_C[1:] == keys_C[:-1]
    repeated_C = keys_C[1:][is_repeated_C]
    return np.unique(repeated_C)


def _limited_blocks(pairs: Sequence[Pair], vocabulary: Vocabulary) -> Iterator[Block]:
    """Yield blocks until they have `MAX_TRAINING_CELLS` cells."""
    num_cells = 0
    for block in blocks(pairs, vocabulary):
        num_cells += len(block.source_C)
        if num_cells > MAX_TRAINING_CELLS:
            return
        yield block
