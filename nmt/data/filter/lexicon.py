"""Word translation probabilities in both directions (IBM model 1, Brown et al. 1993).

Shape suffixes: C cells, U units of a side of all pairs, V vocabulary, K entries of the lexicon,
which are pairs of units that occur together in several sentence pairs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from nmt.data.arrays import Doubles, Floats, Indices, Integers
from nmt.data.filter.units import Block, Side

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
    def fit(
        cls,
        read_blocks: Callable[[], Iterator[Block]],
        vocab_size: int,
        max_cells: int = MAX_TRAINING_CELLS,
    ) -> Lexicon:
        """Learn the probabilities by expectation maximization.

        Args:
            read_blocks: returns the training pairs, each time it is called.
            vocab_size: units with higher ids are ignored.
            max_cells: number of cells to learn from.
        """
        cells = _TrainingCells(read_blocks, vocab_size, max_cells)
        source_unit_K, target_unit_K = np.divmod(cells.keys_K, vocab_size)
        target_K = cells.learn(source_unit_K, cells.target)
        source_K = cells.learn(target_unit_K, cells.source)
        has_target_K = target_K > 0
        has_source_K = source_K > 0
        kept_K = np.flatnonzero(has_target_K | has_source_K)
        target_K = target_K[kept_K]
        source_K = source_K[kept_K]
        return cls(
            cells.keys_K[kept_K],
            target_K.astype(np.float32),
            source_K.astype(np.float32),
            vocab_size,
        )

    def find(self, block: Block) -> tuple[Indices, Indices]:
        """Return the cells of a block that have an entry, and these entries."""
        frequent = _frequent_keys(block, self.vocab_size)
        return _find_keys(self.keys_K, *frequent)


class _Buffer:
    """An array to which other arrays are appended."""

    def __init__(self, max_size: int, dtype: type[np.integer[Any]]) -> None:
        self._array: Integers = np.empty(max_size, dtype)
        self._size = 0

    def append(self, values: Integers) -> None:
        """Append an array."""
        end = self._size + len(values)
        self._array[self._size : end] = values
        self._size = end

    def content(self) -> Integers:
        """Return what has been appended."""
        return self._array[: self._size]


class _Side:
    """The units of one side of the training pairs."""

    def __init__(self, max_cells: int) -> None:
        self._buffer = _Buffer(max_cells, np.int32)
        self.num_units = 0

    @property
    def unit_C(self) -> Integers:
        """Index of the unit of each cell."""
        return self._buffer.content()

    def append(self, side: Side, unit_C: Indices) -> None:
        """Append the cells of a block."""
        index_C = unit_C + self.num_units
        self._buffer.append(index_C)
        self.num_units += len(side.ids_U)


class _TrainingCells:
    """The cells of the training pairs that have an entry."""

    def __init__(
        self, read_blocks: Callable[[], Iterator[Block]], vocab_size: int, max_cells: int
    ) -> None:
        self.vocab_size = vocab_size
        all_keys_C = _sorted_keys(_limited(read_blocks(), max_cells), vocab_size, max_cells)
        self.keys_K = _repeated(all_keys_C)
        num_cells = len(all_keys_C)
        del all_keys_C  # to limit memory
        entries = _Buffer(num_cells, np.int32)
        self.source = _Side(num_cells)
        self.target = _Side(num_cells)
        for block in _limited(read_blocks(), max_cells):
            frequent = _frequent_keys(block, self.vocab_size)
            cells_C, entries_C = _find_keys(self.keys_K, *frequent)
            source_C = block.source_C[cells_C]
            target_C = block.target_C[cells_C]
            entries.append(entries_C)
            self.source.append(block.source, source_C)
            self.target.append(block.target, target_C)
        self.entries_C = entries.content()

    def learn(self, given_K: Indices, side: _Side) -> Doubles:
        """Return the probability of the unit on a side of each entry, given the unit on the other
        side, [K]."""
        num_entries = len(self.keys_K)
        unit_C = side.unit_C
        # At first, all units of the other side explain a unit equally well.
        probability_K: Doubles = np.ones(num_entries)
        for iteration in range(NUM_ITERATIONS):
            # Expectation: the share of each unit of the other side in explaining a unit.
            probability_C = probability_K[self.entries_C]
            sum_U = np.bincount(unit_C, probability_C, side.num_units)
            explained_U = sum_U + NULL_PROBABILITY
            share_C = probability_C / explained_U[unit_C]
            count_K = np.bincount(self.entries_C, share_C, num_entries)
            # Maximization: relative frequencies.
            total_V = np.bincount(given_K, count_K, self.vocab_size)
            total_V = np.maximum(total_V, 1.0)
            if iteration == NUM_ITERATIONS - 1:
                count_K = np.maximum(count_K - DISCOUNT, 0.0)
            probability_K = count_K / total_V[given_K]
        return probability_K


def _frequent_keys(block: Block, vocab_size: int) -> tuple[Indices, Indices]:
    """Return the cells whose units are both in the vocabulary, and their keys."""
    source_C = block.source.ids_U[block.source_C]
    target_C = block.target.ids_U[block.target_C]
    largest_C = np.maximum(source_C, target_C)
    cells_C = np.flatnonzero(largest_C < vocab_size)
    first_keys_C = source_C[cells_C] * vocab_size
    return cells_C, first_keys_C + target_C[cells_C]


def _find_keys(
    keys_K: Indices,
    cells_C: Indices,
    keys_C: Indices,
) -> tuple[Indices, Indices]:
    """Return the cells whose key is one of `keys_K`, and its index."""
    if not len(keys_K):
        nothing = cells_C[:0]
        return nothing, nothing
    entries_C = np.searchsorted(keys_K, keys_C)
    last_entry = len(keys_K) - 1
    entries_C = np.minimum(entries_C, last_entry)
    is_known_C = keys_K[entries_C] == keys_C
    return cells_C[is_known_C], entries_C[is_known_C]


def _sorted_keys(blocks: Iterable[Block], vocab_size: int, max_cells: int) -> Integers:
    """Return the keys of all training cells, ascending."""
    keys = _Buffer(max_cells, np.int64)
    for block in blocks:
        _, keys_C = _frequent_keys(block, vocab_size)
        keys.append(keys_C)
    all_keys_C = keys.content()
    all_keys_C.sort()
    return all_keys_C


def _repeated(keys_C: Integers) -> Indices:
    """Return the keys that occur at least twice, ascending, from sorted ones."""
    is_repeated_C = keys_C[1:] == keys_C[:-1]
    repeated_C = keys_C[1:][is_repeated_C]
    distinct_K = np.unique(repeated_C)
    return distinct_K.astype(np.int64)


def _limited(blocks: Iterable[Block], max_cells: int) -> Iterator[Block]:
    """Yield blocks until they have `max_cells` cells."""
    num_cells = 0
    for block in blocks:
        num_cells += len(block.source_C)
        if num_cells > max_cells:
            return
        yield block
