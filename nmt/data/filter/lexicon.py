"""Word translation probabilities in both directions (IBM model 1, Brown et al. 1993).

Shape suffixes: C cells, U units of a side of all pairs, V vocabulary, K entries of the lexicon,
which are pairs of units that occur together in several sentence pairs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from nmt.data.arrays import Doubles, Floats, Indices, Integers
from nmt.data.filter.units import Block

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
        keys_K = _repeated_keys(_limited(read_blocks(), max_cells), vocab_size)
        entries_C, source_C, target_C = _training_cells(
            _limited(read_blocks(), max_cells), keys_K, vocab_size
        )
        source_unit_K, target_unit_K = np.divmod(keys_K, vocab_size)
        target_K = _learn(entries_C, target_C, source_unit_K)
        source_K = _learn(entries_C, source_C, target_unit_K)
        has_target_K = target_K > 0
        has_source_K = source_K > 0
        kept_K = np.flatnonzero(has_target_K | has_source_K)
        target_K = target_K[kept_K]
        source_K = source_K[kept_K]
        return cls(
            keys_K[kept_K],
            target_K.astype(np.float32),
            source_K.astype(np.float32),
            vocab_size,
        )

    def find(self, block: Block) -> tuple[Indices, Indices]:
        """Return the cells of a block that have an entry, and these entries."""
        return _find_entries(block, self.keys_K, self.vocab_size)


def _training_cells(blocks: Iterable[Block], keys_K: Indices, vocab_size: int) -> Integers:
    """Return the entry of each cell that has one, and its source and target unit, numbered over
    all sentences, [3, C]."""
    cells = [np.zeros((3, 0), np.int32)]
    num_sources = 0
    num_targets = 0
    for block in blocks:
        cells_C, entries_C = _find_entries(block, keys_K, vocab_size)
        source_C = num_sources + block.source_C[cells_C]
        target_C = num_targets + block.target_C[cells_C]
        num_sources += len(block.source.ids_U)
        num_targets += len(block.target.ids_U)
        cells_3C = np.stack([entries_C, source_C, target_C])
        cells.append(cells_3C.astype(np.int32))
    return np.concatenate(cells, axis=1)


def _learn(entries_C: Integers, unit_C: Integers, given_K: Indices) -> Doubles:
    """Return the probability of the unit on a side of each entry, given the unit on the other side,
    [K].

    Args:
        entries_C: the entry of each cell.
        unit_C: its unit on the side, numbered over all sentences.
        given_K: the unit on the other side of each entry.
    """
    num_entries = len(given_K)
    # At first, all units of the other side explain a unit equally well.
    probability_K: Doubles = np.ones(num_entries)
    for iteration in range(NUM_ITERATIONS):
        # Expectation: the share of each unit of the other side in explaining a unit.
        probability_C = probability_K[entries_C]
        explained_U = np.bincount(unit_C, probability_C) + NULL_PROBABILITY
        share_C = probability_C / explained_U[unit_C]
        count_K = np.bincount(entries_C, share_C, num_entries)
        # Maximization: relative frequencies.
        total_V = np.bincount(given_K, count_K)
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


def _find_entries(block: Block, keys_K: Indices, vocab_size: int) -> tuple[Indices, Indices]:
    """Return the cells of a block whose key is one of `keys_K`, and its index."""
    cells_C, keys_C = _frequent_keys(block, vocab_size)
    if not len(keys_K):
        nothing = cells_C[:0]
        return nothing, nothing
    entries_C = np.searchsorted(keys_K, keys_C)
    last_entry = len(keys_K) - 1
    entries_C = np.minimum(entries_C, last_entry)
    is_known_C = keys_K[entries_C] == keys_C
    return cells_C[is_known_C], entries_C[is_known_C]


def _repeated_keys(blocks: Iterable[Block], vocab_size: int) -> Indices:
    """Return the keys that occur at least twice in the training cells, ascending."""
    keys = [np.zeros(0, np.int64)]
    for block in blocks:
        _, keys_C = _frequent_keys(block, vocab_size)
        keys.append(keys_C)
    all_keys_C = np.concatenate(keys)
    del keys  # to limit memory
    all_keys_C.sort()
    is_repeated_C = all_keys_C[1:] == all_keys_C[:-1]
    return np.unique(all_keys_C[1:][is_repeated_C])


def _limited(blocks: Iterable[Block], max_cells: int) -> Iterator[Block]:
    """Yield blocks until they have `max_cells` cells."""
    num_cells = 0
    for block in blocks:
        num_cells += len(block.source_C)
        if num_cells > max_cells:
            return
        yield block
