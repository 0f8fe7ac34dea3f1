"""The stream of updates: which batches, in which order, from a position in an epoch on.

Noise is a pure function of (seed, epoch, pair number), order of (seed, epoch) and the lengths that noise leaves, and
subword sampling of (seed, epoch, first pair of the batch). Two integers, the epoch and the batches used of it,
therefore say where training stands, and resuming continues exactly.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from random import Random

import numpy as np
from numpy.typing import NDArray

from nmt.config import TrainConfig
from nmt.console import progress
from nmt.data.batching import Batch, Ids, collate, plan
from nmt.data.noise import compose
from nmt.data.store import Store
from nmt.data.subword_regularization import Sampler
from nmt.data.tokenizer import Tokenizer
from nmt.errors import DataError

CHUNK = 10_000
"""Sentences that are given to the tokenizer at a time."""


@dataclass(frozen=True)
class Update:
    """One rank's share of an update."""

    batches: list[Batch]
    tokens: int
    """Target tokens of all ranks' batches, by which the loss is divided; with subword sampling only planned."""
    epoch: int
    position: int
    """Batches of the epoch that are used up with this update, over all ranks."""


class Loader:
    """Batches of a store, grouped into updates."""

    def __init__(
        self, store: Store, tokenizer: Tokenizer, config: TrainConfig, seed: int, rank: int = 0, world: int = 1
    ) -> None:
        """Choose the pairs that fit; of every update, `rank` of `world` ranks takes its share of batches.

        Raises:
            DataError: no pair is within `train.max_length` tokens.
            ConfigError: the subword sampling is not for this kind of tokenizer.
        """
        self.store, self.tokenizer, self.config, self.seed = store, tokenizer, config, seed
        self.rank, self.world = rank, world
        self.noise = compose(config.source_noise) if config.source_noise else None
        self.sampler = (
            Sampler(config.subword_regularization, tokenizer, seed) if config.subword_regularization else None
        )
        self._noisy: tuple[int, NDArray[np.integer]] | None = None
        lengths_N2 = store.lengths_N2
        self._fitting = np.flatnonzero((lengths_N2 < config.max_length).all(axis=1))  # < leaves room for </s>
        self.lengths_N2 = lengths_N2[self._fitting]
        self.too_long = len(store) - len(self._fitting)
        if not len(self._fitting):
            raise DataError(f"no training pair has at most {config.max_length} tokens", "set train.max_length higher")

    def stream(self, epoch: int, skip: int) -> Iterator[Update]:
        """Yield updates without end, epoch after epoch, from a position on."""
        while True:
            yield from self.updates(epoch, skip)
            epoch, skip = epoch + 1, 0

    def updates(self, epoch: int, skip: int = 0) -> Iterator[Update]:
        """Yield this rank's share of each update of an epoch, from the batch after the first `skip` on.

        Every rank sees the same plan, so all know an update's tokens without asking. At the end of an epoch a rank's
        share may be empty.
        """
        batches = self.batches(epoch)
        size = self.config.grad_accumulation * self.world
        for first in range(skip, len(batches), size):
            whole = batches[first : first + size]
            tokens = sum(int(self.lengths_N2[numbers, 1].sum()) + len(numbers) for numbers in whole)
            share = [self._batch(self._fitting[numbers], epoch) for numbers in whole[self.rank :: self.world]]
            yield Update(share, tokens, epoch, first + len(whole))

    def batches(self, epoch: int) -> list[NDArray[np.int64]]:
        """Return which of the pairs that fit make each batch of an epoch, for all ranks."""
        return plan(self._lengths_in(epoch), self.config.batch_tokens, self.seed, epoch)

    def _lengths_in(self, epoch: int) -> NDArray[np.integer]:
        """Return the lengths of an epoch's pairs, [N, 2], with the noise that it will have.

        A shouted sentence has several times the pieces: beside others of its old length they would all be padded.
        """
        if not self.noise:
            return self.lengths_N2
        if self._noisy is None or self._noisy[0] != epoch:
            self._noisy = epoch, self._noisy_lengths(epoch)
        return self._noisy[1]

    def _noisy_lengths(self, epoch: int) -> NDArray[np.integer]:
        lengths_N2 = self.lengths_N2.copy()
        with progress(len(lengths_N2), "noise of this epoch", " pairs") as bar:
            for first in range(0, len(lengths_N2), CHUNK):
                numbers = self._fitting[first : first + CHUNK].tolist()
                texts = [(self.store.src.text(i), self._source(i, epoch)) for i in numbers]
                changed = [n for n, (text, noisy) in enumerate(texts) if noisy != text]
                rows = self.tokenizer.encode_all([texts[n][1] for n in changed])
                for n, row in zip(changed, rows, strict=True):
                    if len(row) < self.config.max_length:  # see _where_short
                        lengths_N2[first + n, 0] = len(row)
                bar.update(len(numbers))
        return lengths_N2

    def worst_case_batches(self) -> list[Batch]:
        """Return the batches of the first epoch that need most memory: the largest, and that of the longest pairs."""
        batches, lengths_N2 = self.batches(0), self._lengths_in(0)
        longest = [int(lengths_N2[numbers].max()) + 1 for numbers in batches]
        largest = max(range(len(batches)), key=lambda b: len(batches[b]) * longest[b])
        chosen = {largest, max(range(len(batches)), key=lambda b: longest[b])}
        return [self._batch(self._fitting[batches[b]], 0) for b in sorted(chosen)]

    def _batch(self, batch: NDArray[np.int64], epoch: int) -> Batch:
        numbers = batch.tolist()
        sources: list[Ids] = [self.store.src.ids(i) for i in numbers]
        targets: list[Ids] = [self.store.tgt.ids(i) for i in numbers]
        if self.sampler:
            rng = np.random.default_rng((self.seed, epoch, numbers[0]))
            sources = self._where_short(self.sampler.encode([self._source(i, epoch) for i in numbers], rng), sources)
            targets = self._where_short(self.sampler.encode([self.store.tgt.text(i) for i in numbers], rng), targets)
        elif self.noise:
            sources = self._where_short(self.tokenizer.encode_all([self._source(i, epoch) for i in numbers]), sources)
        return collate(list(zip(sources, targets, strict=True)), numbers)

    def _source(self, i: int, epoch: int) -> str:
        text = self.store.src.text(i)
        return self.noise(text, Random(f"{self.seed} {epoch} {i}")) if self.noise else text

    def _where_short(self, rows: Sequence[Ids], clean: Sequence[Ids]) -> list[Ids]:
        """Odd spellings and segmentations have more pieces; past the limit the text as it was prepared is used."""
        return [row if len(row) < self.config.max_length else was for row, was in zip(rows, clean, strict=True)]


def prefetch(updates: Iterator[Update], ahead: int = 2) -> Iterator[Update]:
    """Yield `updates`, of which a thread makes the next ones, in pinned memory, while a GPU computes."""

    def make() -> Update | None:
        update = next(updates, None)
        return update and replace(update, batches=[batch.pin_memory() for batch in update.batches])

    with ThreadPoolExecutor(1) as thread:
        waiting = deque(thread.submit(make) for _ in range(ahead))
        while update := waiting.popleft().result():
            waiting.append(thread.submit(make))
            yield update
