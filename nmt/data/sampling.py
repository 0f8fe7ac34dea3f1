"""Which pairs of a corpus an epoch has, and in which order, from shards that do not fit in memory.

Shape suffix: N pairs.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nmt.core.console import counted
from nmt.data.arrays import Indices
from nmt.data.mixing import PreparedCorpus
from nmt.data.store import Store

SAMPLING_STREAM = 0x6D6978
"""Distinguishes the random numbers of this module from those of batches and segmentations."""
GROUP_SIZE = 4
"""Shards whose pairs are shuffled together, so that sentences that were neighbors in the corpus are
far apart. Token ids of as many million pairs are read in random order."""


class UsablePairs:
    """The pairs of a corpus that are within `train.max_length`."""

    def __init__(self, store: Store, shards: Sequence[int], max_length: int, tag: bool) -> None:
        """Count the pairs of the shards with these indices that have less than `max_length` tokens
        on both sides, with a tag before sources if `tag` is set."""
        self._store = store
        self._shards = shards
        self._max_length = max_length
        self._tag = tag
        self._sizes = []
        for shard in shards:
            pairs = self._of_shard(shard)
            self._sizes.append(len(pairs))
            store.shards[shard].release()

    def __len__(self) -> int:
        return sum(self._sizes)

    def _of_shard(self, shard: int) -> Indices:
        """Return the numbers of the usable pairs of a shard in the store."""
        lengths_N2 = self._store.shards[shard].lengths_N2()
        lengths_N2[:, 0] += self._tag
        longest_N = lengths_N2.max(axis=1)
        is_usable_N = longest_N < self._max_length  # < because of EOS
        first = self._store.starts[shard]
        return first + np.flatnonzero(is_usable_N)

    def all(self) -> Indices:
        """Return all pairs in the order of the corpus, [N]."""
        return _join(map(self._of_shard, self._shards))

    def spread(self, max_pairs: int) -> list[int]:
        """Return at most `max_pairs` pairs at equal distances."""
        step = len(self) // max_pairs + 1
        pairs: list[int] = []
        num_before = 0
        for shard, size in zip(self._shards, self._sizes, strict=True):
            first = -num_before % step
            if first < size:
                of_shard = self._of_shard(shard)
                pairs += of_shard[first::step].tolist()
            num_before += size
        return pairs

    def sample(self, start: int, end: int, key: tuple[int, ...]) -> Indices:
        """Return the pairs at some places of an endless sequence of shuffles of all pairs: a pure
        function of the arguments.

        A shuffle orders the shards, and then the pairs of each group of consecutive shards.

        Args:
            start: first place.
            end: place after the last one.
            key: seed and number of the corpus.
        """
        size = len(self)
        is_whole_shuffle = start % size == 0 and end - start == size
        if is_whole_shuffle:
            return self.all()  # the batches are shuffled anyway
        sampled: list[Indices] = []
        first_shuffle = start // size
        last_shuffle = (end - 1) // size
        for shuffle in range(first_shuffle, last_shuffle + 1):
            offset = shuffle * size
            part = self._part_of_shuffle(start - offset, end - offset, (*key, shuffle))
            sampled += part
        return _join(sampled)

    def _part_of_shuffle(self, start: int, end: int, key: tuple[int, ...]) -> Iterator[Indices]:
        """Yield the pairs at the places of a shuffle from `start`, which may be negative, to
        `end`."""
        shards = np.arange(len(self._shards))
        order = _shuffled(shards, key).tolist()
        group_end = 0
        for first in range(0, len(order), GROUP_SIZE):
            group = order[first : first + GROUP_SIZE]
            group_start = group_end
            group_end += sum(self._sizes[i] for i in group)
            if group_end <= start or group_start >= end:
                continue  # only the groups that are needed are read
            pairs = _join(self._of_shard(self._shards[i]) for i in group)
            shuffled = _shuffled(pairs, (*key, first))
            first_place = max(0, start - group_start)
            part = shuffled[first_place : end - group_start]
            yield part.copy()  # without the rest of the group


def _shuffled(items: Indices, key: tuple[int, ...]) -> Indices:
    rng = np.random.default_rng((SAMPLING_STREAM, *key))
    return rng.permutation(items)


def _join(parts: Any) -> Indices:
    return np.concatenate([np.zeros(0, np.int64), *parts])


@dataclass(frozen=True)
class SampledCorpus:
    """The pairs of a corpus that training uses, and how many of them an epoch has."""

    corpus: PreparedCorpus
    pairs: UsablePairs
    pairs_per_epoch: int

    def sample(self, epoch: int, window: int, num_windows: int, key: tuple[int, ...]) -> Indices:
        """Return the pairs of one of the windows of an epoch.

        Consecutive epochs take consecutive places of the sequence of shuffles, so that all pairs
        are used before one repeats. An epoch may have fewer pairs than there are, or more.
        """
        num_pairs = self.pairs_per_epoch
        first = epoch * num_pairs
        start = first + window * num_pairs // num_windows
        end = first + (window + 1) * num_pairs // num_windows
        if start == end:
            return np.zeros(0, np.int64)
        return self.pairs.sample(start, end, key)

    def describe(self) -> str:
        """Return a description, such as `100 of 360 pairs of mine/train`."""
        available = len(self.pairs)
        text = f"{counted(available, 'pair')} of {self.corpus.name}"
        if self.corpus.is_replay:
            text += " (replay)"
        if self.pairs_per_epoch < available:
            return f"{self.pairs_per_epoch:,} of {text}"
        if self.pairs_per_epoch > available:
            return f"{text}, repeated to {self.pairs_per_epoch:,}"
        return text


def describe(corpora: Sequence[SampledCorpus]) -> str:
    """Return the pairs of an epoch as text: their number, or those of each corpus if they are
    sampled."""
    if all(each.pairs_per_epoch == len(each.pairs) for each in corpora):
        return counted(sum(each.pairs_per_epoch for each in corpora), "pair")
    parts = " and ".join(each.describe() for each in corpora)
    return f"{parts} per epoch"


def usable_pairs(
    store: Store, corpora: Sequence[PreparedCorpus], max_length: int
) -> Iterator[UsablePairs]:
    """Yield the usable pairs of each corpus of a store, which has the corpora one after the
    other."""
    end = 0
    end_shard = 0
    for corpus in corpora:
        end += corpus.num_pairs
        first_shard = end_shard
        end_shard = bisect_right(store.starts, end) - 1
        shards = range(first_shard, end_shard)
        yield UsablePairs(store, shards, max_length, corpus.options.tag)
