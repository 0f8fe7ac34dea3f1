"""Mixing of corpora: how many pairs of each corpus an epoch has.

An epoch has w·n pairs of a corpus with weight w and n pairs; with the default weight of 1, each
pair once. A temperature T above 1 repeats the pairs of corpora that are smaller than the largest
one, so that corpus i has a share proportional to w_i·n_i^(1/T) (Arivazhagan et al. 2019, section
4). Replay corpora have a fixed share of all pairs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nmt.data.sources import CorpusOptions


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
