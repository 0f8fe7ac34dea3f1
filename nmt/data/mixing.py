"""Mixing of corpora: how many pairs of each corpus an epoch has, and which. Shape suffix: N pairs.

An epoch has w·n pairs of a corpus with weight w and n pairs; with the default weight of 1, each pair once. A
temperature T above 1 repeats the pairs of corpora that are smaller than the largest one, so that corpus i has a share
proportional to w_i·n_i^(1/T) (Arivazhagan et al. 2019, section 4). Replay corpora have a fixed share of all pairs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nmt.console import counted
from nmt.data.sources import CorpusOptions

MIXING_STREAM = 0x6D6978
"""Distinguishes the random numbers of this module from those of batches and segmentations."""


@dataclass(frozen=True)
class PreparedCorpus:
    """A corpus in the prepared training text, which has the corpora one after the other."""

    name: str
    num_pairs: int
    options: CorpusOptions
    is_replay: bool = False


@dataclass(frozen=True)
class Mix:
    """The corpora of a training run and the options that mix them."""

    corpora: Sequence[PreparedCorpus]
    temperature: float = 1.0
    replay_share: float = 0.0
    """Share of the pairs of an epoch that come from replay corpora."""

    def pairs_per_epoch(self, num_pairs: Sequence[int]) -> list[int]:
        """Return the number of pairs of each corpus in an epoch, given the number of each that can be used."""
        largest = max(n for corpus, n in zip(self.corpora, num_pairs, strict=True) if not corpus.is_replay)
        counts = [
            corpus.options.weight * n * (largest / n) ** (1 - 1 / self.temperature) if n else 0.0
            for corpus, n in zip(self.corpora, num_pairs, strict=True)
        ]
        replay = [i for i, corpus in enumerate(self.corpora) if corpus.is_replay]
        if replay:
            num_new = sum(counts) - (replayed := sum(counts[i] for i in replay))
            scale = num_new * self.replay_share / (1 - self.replay_share) / replayed
            counts = [count * scale if i in replay else count for i, count in enumerate(counts)]
        return [max(1, round(count)) if count else 0 for count in counts]


@dataclass(frozen=True)
class SampledCorpus:
    """The pairs of a corpus that training uses, and how many of them an epoch has."""

    corpus: PreparedCorpus
    pair_ids_N: NDArray[np.int64]
    pairs_per_epoch: int

    def describe(self) -> str:
        """Return a description, such as `100 of 360 pairs of mine/train`."""
        available, role = len(self.pair_ids_N), " (replay)" if self.corpus.is_replay else ""
        part = f"{self.pairs_per_epoch:,} of " if self.pairs_per_epoch < available else ""
        repeated = f", repeated to {self.pairs_per_epoch:,}" if self.pairs_per_epoch > available else ""
        return f"{part}{counted(available, 'pair')} of {self.corpus.name}{role}{repeated}"


def describe(corpora: Sequence[SampledCorpus]) -> str:
    """Return the pairs of an epoch as text: their number, or those of each corpus if they are sampled."""
    if all(each.pairs_per_epoch == len(each.pair_ids_N) for each in corpora):
        return counted(sum(each.pairs_per_epoch for each in corpora), "pair")
    return f"{' and '.join(each.describe() for each in corpora)} per epoch"


def sample_pairs(num_available: int, num_sampled: int, seed: int, corpus: int, epoch: int) -> NDArray[np.int64]:
    """Return the indices of the pairs of a corpus in an epoch: a pure function of the arguments.

    The epochs take consecutive parts of an infinite sequence of shuffles of all pairs, so that all pairs are used
    before one repeats. `num_sampled`, the number of pairs per epoch, may exceed `num_available`.
    """
    if num_sampled == num_available:
        return np.arange(num_available)
    start, end = epoch * num_sampled, (epoch + 1) * num_sampled
    shuffles = range(start // num_available, -(-end // num_available))
    order = [np.random.default_rng((seed, MIXING_STREAM, corpus, i)).permutation(num_available) for i in shuffles]
    offset = shuffles.start * num_available
    return np.concatenate(order)[start - offset : end - offset]
