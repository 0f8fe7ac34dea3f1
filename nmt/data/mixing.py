"""Mixing of corpora: how many pairs of each corpus an epoch has, and which. Shape suffix: N pairs.

An epoch has w·n pairs of a corpus with weight w and n pairs; with the default weight of 1, each
pair once. A temperature T above 1 repeats the pairs of corpora that are smaller than the largest
one, so that corpus i has a share proportional to w_i·n_i^(1/T) (Arivazhagan et al. 2019, section
4). Replay corpora have a fixed share of all pairs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from nmt.core.console import counted
from nmt.data.arrays import Indices
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

    @property
    def role(self) -> str:
        """`training` or `replay`."""
        return "replay" if self.is_replay else "training"


@dataclass(frozen=True)
class Mix:
    """The corpora of a training run and the options that mix them."""

    corpora: Sequence[PreparedCorpus]
    temperature: float = 1.0
    replay_share: float = 0.0
    """Share of the pairs of an epoch that come from replay corpora."""

    def pairs_per_epoch(self, num_pairs: Sequence[int]) -> list[int]:
        """Return the number of pairs of each corpus in an epoch, given the number of each that can
        be used."""
        sizes = list(zip(self.corpora, num_pairs, strict=True))
        largest = max(size for corpus, size in sizes if not corpus.is_replay)
        counts = [self._upsampled(corpus, size, largest) for corpus, size in sizes]
        # Scale the replay corpora together, so that they have their share r of all pairs: r / (1 -
        # r) of the new pairs.
        num_replayed = sum(
            count for corpus, count in zip(self.corpora, counts, strict=True) if corpus.is_replay
        )
        if num_replayed:
            num_new_pairs = sum(counts) - num_replayed
            odds = self.replay_share / (1 - self.replay_share)
            scale = num_new_pairs * odds / num_replayed
            for i, corpus in enumerate(self.corpora):
                if corpus.is_replay:
                    counts[i] *= scale
        return [max(1, round(count)) if count else 0 for count in counts]

    def _upsampled(self, corpus: PreparedCorpus, size: int, largest: int) -> float:
        """Return the pairs of a corpus after upsampling (Arivazhagan et al. 2019), before replay is
        scaled to its share."""
        if not size:
            return 0.0
        exponent = 1 - 1 / self.temperature
        factor: float = (largest / size) ** exponent
        return corpus.options.weight * size * factor


@dataclass(frozen=True)
class SampledCorpus:
    """The pairs of a corpus that training uses, and how many of them an epoch has."""

    corpus: PreparedCorpus
    pair_ids_N: Indices
    pairs_per_epoch: int

    def describe(self) -> str:
        """Return a description, such as `100 of 360 pairs of mine/train`."""
        available = len(self.pair_ids_N)
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
    if all(each.pairs_per_epoch == len(each.pair_ids_N) for each in corpora):
        return counted(sum(each.pairs_per_epoch for each in corpora), "pair")
    parts = " and ".join(each.describe() for each in corpora)
    return f"{parts} per epoch"


def sample_pairs(
    num_available: int, num_sampled: int, seed: int, corpus: int, epoch: int
) -> Indices:
    """Return the indices of the pairs of a corpus in an epoch: a pure function of the arguments.

    The epochs take consecutive parts of an infinite sequence of shuffles of all pairs, so that all
    pairs are used before one repeats. `num_sampled`, the number of pairs per epoch, may exceed
    `num_available`.
    """
    if num_sampled == num_available:
        return np.arange(num_available)
    # Draw the shuffles that contain the places start to end of the sequence.
    start = epoch * num_sampled
    end = start + num_sampled
    first_shuffle = start // num_available
    last_shuffle = (end - 1) // num_available
    order = []
    for i in range(first_shuffle, last_shuffle + 1):
        rng = np.random.default_rng((seed, MIXING_STREAM, corpus, i))
        order.append(rng.permutation(num_available))
    offset = start - first_shuffle * num_available
    return np.concatenate(order)[offset : offset + num_sampled]
