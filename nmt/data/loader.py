"""The stream of updates: which batches, in which order, from a position in an epoch on.

Order is a pure function of (seed, epoch), and noise of (seed, epoch, pair number). Two integers, the epoch and the
updates done in it, therefore say where training stands, and resuming continues exactly.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import numpy as np
from numpy.typing import NDArray

from nmt.config import TrainConfig
from nmt.data.batching import Batch, Ids, collate, plan
from nmt.data.noise import compose
from nmt.data.store import Store
from nmt.errors import DataError
from nmt.tokenizer import Tokenizer


class Loader:
    """Batches of a store, grouped into updates."""

    def __init__(self, store: Store, tokenizer: Tokenizer, config: TrainConfig, seed: int) -> None:
        """Choose the pairs that fit.

        Raises:
            DataError: no pair is within `train.max_length` tokens.
        """
        self.store, self.tokenizer, self.config, self.seed = store, tokenizer, config, seed
        self.noise = compose(config.noise) if config.noise else None
        self._fitting = np.flatnonzero((store.lengths_N2 < config.max_length).all(axis=1))  # < leaves room for </s>
        self.too_long = len(store) - len(self._fitting)
        if not len(self._fitting):
            raise DataError(f"no training pair has at most {config.max_length} tokens", "set train.max_length higher")

    def updates(self, epoch: int, skip: int = 0) -> Iterator[list[Batch]]:
        """Yield the batches of each update of an epoch after the first `skip` updates."""
        lengths_N2 = self.store.lengths_N2[self._fitting]
        batches = plan(lengths_N2, self.config.batch_tokens, self.seed, epoch)
        size = self.config.accumulate
        for first in range(skip * size, len(batches), size):
            yield [self._batch(self._fitting[numbers], epoch) for numbers in batches[first : first + size]]

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
