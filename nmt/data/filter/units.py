"""Units of sentences that translate each other: the beginnings of words.

Shape suffixes: N pairs, U units of all sentences of one side, C cells, which are pairs of a source
unit and a target unit of the same sentence pair.
"""

from __future__ import annotations

import re
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np

from nmt.data.arrays import Indices
from nmt.data.pairs import Pair
from nmt.text.normalization import UNSPACED

UNIT_LENGTH = 6
"""Letters of a unit: enough to distinguish words, few enough that most inflected forms agree."""
MAX_UNITS = 200
"""Maximum number of units of a sentence; further ones are ignored."""
MAX_CELLS = 1 << 20
"""Maximum number of cells in a block of pairs, unless a single pair has more. Limits memory."""
Sentences = Sequence[Sequence[int]]
"""Sentences as ids of units."""
MAX_VOCAB_SIZE = 60_000
MIN_UNIT_COUNT = 2
NUM_RARE = 1 << 20
"""Number of ids of units that are not in the vocabulary, which share them by their hash values."""
MAX_SHARED_PART = 0.4
_PUNCTUATION = (
    r"""\x00-\x1f\x7f-\x9f!-/:-@\[-`{-~\u00a0-\u00bf\u2010-\u206f\u3000-\u3020\uff01-\uff0f"""
)
_WORD = re.compile(rf"[{UNSPACED}]|[^\s{_PUNCTUATION}{UNSPACED}]+")
"""A word, or a letter of a script without spaces."""


def units(text: str) -> list[str]:
    """Return the distinct units of a sentence in the order of their first occurrence."""
    text = text.casefold()
    beginnings = [word[:UNIT_LENGTH] for word in _WORD.findall(text)]
    distinct = list(dict.fromkeys(beginnings))
    return distinct[:MAX_UNITS]


def translated_pairs(pairs: Sequence[Pair]) -> list[Pair]:
    """Return the pairs whose sides share few units, without copies of the source.

    Names are shared by most translations, and related languages share many words; therefore, the
    limit depends on the median.
    """
    parts = [_shared_part(*pair) for pair in pairs]
    median = float(np.median(parts))
    limit = max(MAX_SHARED_PART, 2 * median)
    translated = []
    for pair, part in zip(pairs, parts, strict=True):
        if part <= limit:
            translated.append(pair)
    return translated


def _shared_part(source: str, target: str) -> float:
    """Return the number of units on both sides, as a fraction of the shorter side."""
    source_units = set(units(source))
    target_units = set(units(target))
    shorter = min(len(source_units), len(target_units))
    num_shared = len(source_units & target_units)
    return num_shared / max(1, shorter)


class Vocabulary:
    """Ids of units. Frequent units have their own, from 0; the others share `NUM_RARE` ids."""

    def __init__(self, frequent: Sequence[str]) -> None:
        self.frequent = frequent
        self._ids = {unit: i for i, unit in enumerate(frequent)}

    @classmethod
    def fit(cls, sentences: Iterable[Sequence[str]]) -> Vocabulary:
        """Select the units that occur in the most sentences."""
        counts = Counter[str]()
        for sentence in sentences:
            counts.update(sentence)
        most_common = counts.most_common(MAX_VOCAB_SIZE)
        return cls([unit for unit, count in most_common if count >= MIN_UNIT_COUNT])

    def __len__(self) -> int:
        return len(self.frequent)

    def encode(self, text: str) -> list[int]:
        """Return the ids of the units of a sentence."""
        ids = []
        for unit in units(text):
            i = self._ids.get(unit)
            if i is None:
                i = self._rare_id(unit)
            ids.append(i)
        return ids

    def _rare_id(self, unit: str) -> int:
        encoded = unit.encode("utf-8", "replace")
        checksum = zlib.crc32(encoded)
        return len(self) + checksum % NUM_RARE


@dataclass(frozen=True)
class Side:
    """The units of one side of several pairs."""

    ids_U: Indices
    pair_U: Indices
    """Index of the pair of each unit."""
    lengths_N: Indices

    @classmethod
    def of(cls, sentences: Sentences) -> Side:
        """Return the side with these sentences."""
        lengths = list(map(len, sentences))
        ids = list(chain.from_iterable(sentences))
        ids_U = np.array(ids, np.int64)
        lengths_N = np.array(lengths, np.int64)
        indices_N = np.arange(len(sentences))
        pair_U = np.repeat(indices_N, lengths_N)
        return cls(ids_U, pair_U, lengths_N)


@dataclass(frozen=True)
class Block:
    """The units of several pairs, and the cells of all their source and target units."""

    source: Side
    target: Side
    source_C: Indices
    """Index of the source unit of each cell, which are sorted by it."""
    target_C: Indices

    @classmethod
    def of(cls, sources: Sentences, targets: Sentences) -> Block:
        """Return the block of the pairs of these sentences, as ids."""
        source = Side.of(sources)
        target = Side.of(targets)
        # Each source unit has a cell for each target unit of its pair, which are contiguous.
        num_cells_U = target.lengths_N[source.pair_U]
        indices_U = np.arange(len(source.ids_U))
        source_C = np.repeat(indices_U, num_cells_U)
        first_target_N = starts(target.lengths_N)
        first_target_U = first_target_N[source.pair_U]
        offset_U = first_target_U - starts(num_cells_U)
        indices_C = np.arange(len(source_C))
        target_C = indices_C + offset_U[source_C]
        return cls(source, target, source_C, target_C)


def starts(lengths_N: Indices) -> Indices:
    """Return the start of each of several ranges, one after the other."""
    ends_N = np.cumsum(lengths_N)
    return ends_N - lengths_N


def blocks(pairs: Iterable[Pair], vocabulary: Vocabulary) -> Iterator[Block]:
    """Yield consecutive pairs in blocks; see `id_blocks`."""
    encoded = ((vocabulary.encode(source), vocabulary.encode(target)) for source, target in pairs)
    return id_blocks(encoded)


def id_blocks(pairs: Iterable[tuple[Sequence[int], Sequence[int]]]) -> Iterator[Block]:
    """Yield consecutive pairs of sentences, as ids, in blocks of at most `MAX_CELLS` cells."""
    sources: list[Sequence[int]] = []
    targets: list[Sequence[int]] = []
    num_cells = 0
    for source, target in pairs:
        size = len(source) * len(target)
        if sources and num_cells + size > MAX_CELLS:
            yield Block.of(sources, targets)
            sources = []
            targets = []
            num_cells = 0
        sources.append(source)
        targets.append(target)
        num_cells += size
    if sources:
        yield Block.of(sources, targets)
