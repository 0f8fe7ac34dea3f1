"""The stream of updates: which batches, in which order, from a position in an epoch on.

Order is a pure function of (seed, epoch), and noise of (seed, epoch, pair number). Two integers, the epoch and the
batches used of it, therefore say where training stands, and resuming continues exactly.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

import numpy as np
from numpy.typing import NDArray

from nmt.config import TrainConfig
from nmt.data.batching import Batch, Ids, collate, plan
from nmt.data.noise import compose
from nmt.data.store import Store
from nmt.errors import DataError
from nmt.tokenizer import Tokenizer


@dataclass(frozen=True)
class Update:
    """One rank's share of an update."""

    batches: list[Batch]
    tokens: int
    """Target tokens of all ranks' batches, by which the loss is divided."""
    consumed: int
    """Batches of all ranks."""


class Loader:
    """Batches of a store, grouped into updates."""

    def __init__(
        self, store: Store, tokenizer: Tokenizer, config: TrainConfig, seed: int, rank: int = 0, world: int = 1
    ) -> None:
        """Choose the pairs that fit; of every update, `rank` of `world` ranks takes its share of batches.

        Raises:
            DataError: no pair is within `train.max_length` tokens.
        """
        self.store, self.tokenizer, self.config, self.seed = store, tokenizer, config, seed
        self.rank, self.world = rank, world
        self.noise = compose(config.noise) if config.noise else None
        self._fitting = np.flatnonzero((store.lengths_N2 < config.max_length).all(axis=1))  # < leaves room for </s>
        self.too_long = len(store) - len(self._fitting)
        if not len(self._fitting):
            raise DataError(f"no training pair has at most {config.max_length} tokens", "set train.max_length higher")

    def updates(self, epoch: int, skip: int = 0) -> Iterator[Update]:
        """Yield this rank's share of each update of an epoch, from the batch after the first `skip` on.

        Every rank sees the same plan, so all know an update's tokens without asking. At the end of an epoch a rank's
        share may be empty.
        """
        lengths_N2 = self.store.lengths_N2[self._fitting]
        batches = plan(lengths_N2, self.config.batch_tokens, self.seed, epoch)
        size = self.config.accumulate * self.world
        for first in range(skip, len(batches), size):
            whole = batches[first : first + size]
            tokens = sum(int(lengths_N2[numbers, 1].sum()) + len(numbers) for numbers in whole)
            share = [self._batch(self._fitting[numbers], epoch) for numbers in whole[self.rank :: self.world]]
            yield Update(share, tokens, len(whole))

    def _batch(self, numbers: NDArray[np.int64], epoch: int) -> Batch:
        return collate([self._pair(int(i), epoch) for i in numbers], [int(i) for i in numbers])

    def _pair(self, i: int, epoch: int) -> tuple[Ids, Ids]:
        src, tgt = self.store[i]
        if self.noise is None:
            return src, tgt
        text = self.store.src.text(i)
        noisy = self.noise(text, Random(f"{self.seed} {epoch} {i}"))
        if noisy == text:
            return src, tgt
        ids = self.tokenizer.encode(noisy)
        # Odd spellings split into more pieces; past the limit the clean sentence is used.
        return (ids, tgt) if len(ids) < self.config.max_length else (src, tgt)
