"""Data loader: the sequence of batches and updates, starting at any position of an epoch.

Noise is a pure function of (seed, epoch, pair), the order of (seed, epoch) and the lengths after noise, and subword
regularization of (seed, epoch, first pair of the batch). The epoch and the number of batches consumed therefore
determine the state of the loader, and resumed training continues identically.
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
from nmt.data.subword_regularization import SubwordSampler
from nmt.data.tokenizer import Tokenizer
from nmt.errors import DataError

CHUNK_SIZE = 10_000
"""Sentences tokenized at a time."""


@dataclass(frozen=True)
class Update:
    """The microbatches of one update on one rank."""

    batches: list[Batch]
    tokens: int
    """Target tokens of the update on all ranks, which normalize the loss; an estimate with subword regularization."""
    epoch: int
    position: int
    """Number of batches of the epoch consumed after this update, over all ranks."""


class Loader:
    """Group the batches of a store into updates."""

    def __init__(
        self,
        store: Store,
        tokenizer: Tokenizer,
        config: TrainConfig,
        seed: int,
        rank: int = 0,
        world_size: int = 1,
        *,
        source_eos: bool = True,
    ) -> None:
        """Select the pairs within `train.max_length`; each rank loads its share of the batches of every update.

        Raises:
            DataError: no pair has at most `train.max_length` tokens.
            ConfigError: `train.subword_regularization` requires another type of tokenizer.
        """
        self.store, self.tokenizer, self.config, self.seed = store, tokenizer, config, seed
        self.rank, self.world_size, self.source_eos = rank, world_size, source_eos
        self.noise = compose(config.source_noise) if config.source_noise else None
        spec = config.subword_regularization
        self.sampler = SubwordSampler(spec, tokenizer, seed) if spec else None
        self._noisy_lengths: tuple[int, NDArray[np.integer]] | None = None
        self._selected = np.flatnonzero((store.lengths_N2 < config.max_length).all(axis=1))  # < because of EOS
        self.lengths_N2 = store.lengths_N2[self._selected]
        self.num_too_long = len(store) - len(self._selected)
        if not len(self._selected):
            raise DataError(f"no training pair has at most {config.max_length} tokens", "increase train.max_length")

    def stream(self, epoch: int, skip: int) -> Iterator[Update]:
        """Yield the updates of `epoch` after the first `skip` batches, and of all following epochs."""
        while True:
            yield from self.updates(epoch, skip)
            epoch, skip = epoch + 1, 0

    def updates(self, epoch: int, skip: int = 0) -> Iterator[Update]:
        """Yield this rank's share of each update of an epoch after the first `skip` batches.

        All ranks compute the same plan, so they know the tokens of an update without communication. A rank's share of
        the last update of an epoch may be empty.
        """
        batches = self.batches(epoch)
        update_size = self.config.grad_accumulation * self.world_size
        for start in range(skip, len(batches), update_size):
            update = batches[start : start + update_size]
            tokens = sum(int(self.lengths_N2[indices, 1].sum()) + len(indices) for indices in update)
            share = [self._load(self._selected[indices], epoch) for indices in update[self.rank :: self.world_size]]
            yield Update(share, tokens, epoch, start + len(update))

    def batches(self, epoch: int) -> list[NDArray[np.int64]]:
        """Return the batches of an epoch on all ranks, each as indices into the selected pairs."""
        return plan(self._epoch_lengths(epoch), self.config.batch_tokens, self.seed, epoch)

    def worst_case_batches(self) -> list[Batch]:
        """Return the batches of the first epoch that need most memory: the largest and that with the longest pair."""
        batches, lengths_N2 = self.batches(0), self._epoch_lengths(0)
        max_lengths = [int(lengths_N2[indices].max()) + 1 for indices in batches]
        largest = max(range(len(batches)), key=lambda b: len(batches[b]) * max_lengths[b])
        longest = max(range(len(batches)), key=lambda b: max_lengths[b])
        return [self._load(self._selected[batches[b]], 0) for b in sorted({largest, longest})]

    def _epoch_lengths(self, epoch: int) -> NDArray[np.integer]:
        """Return the lengths of the pairs after the noise of an epoch, [N, 2].

        Noise can change lengths considerably: all caps need several times the pieces.
        """
        if not self.noise:
            return self.lengths_N2
        if self._noisy_lengths is None or self._noisy_lengths[0] != epoch:
            self._noisy_lengths = epoch, self._compute_noisy_lengths(epoch)
        return self._noisy_lengths[1]

    def _compute_noisy_lengths(self, epoch: int) -> NDArray[np.integer]:
        lengths_N2 = self.lengths_N2.copy()
        with progress(len(lengths_N2), "applying source noise", " pairs") as bar:
            for start in range(0, len(lengths_N2), CHUNK_SIZE):
                pair_ids = self._selected[start : start + CHUNK_SIZE].tolist()
                texts = ((n, self.store.src.text(i), self._source(i, epoch)) for n, i in enumerate(pair_ids))
                noisy = {n: noisy for n, clean, noisy in texts if noisy != clean}
                for n, row in zip(noisy, self.tokenizer.encode_batch([*noisy.values()]), strict=True):
                    if len(row) < self.config.max_length:  # otherwise `_replace_too_long` applies
                        lengths_N2[start + n, 0] = len(row)
                bar.update(len(pair_ids))
        return lengths_N2

    def _load(self, pair_ids_N: NDArray[np.int64], epoch: int) -> Batch:
        pair_ids = pair_ids_N.tolist()
        sources: list[Ids] = [self.store.src.ids(i) for i in pair_ids]
        targets: list[Ids] = [self.store.tgt.ids(i) for i in pair_ids]
        if self.sampler:
            rng = np.random.default_rng((self.seed, epoch, pair_ids[0]))
            src_sample = self.sampler.encode_batch([self._source(i, epoch) for i in pair_ids], rng)
            tgt_sample = self.sampler.encode_batch([self.store.tgt.text(i) for i in pair_ids], rng)
            sources, targets = self._replace_too_long(src_sample, sources), self._replace_too_long(tgt_sample, targets)
        elif self.noise:
            noisy = self.tokenizer.encode_batch([self._source(i, epoch) for i in pair_ids])
            sources = self._replace_too_long(noisy, sources)
        return collate(list(zip(sources, targets, strict=True)), pair_ids, source_eos=self.source_eos)

    def _source(self, i: int, epoch: int) -> str:
        text = self.store.src.text(i)
        return self.noise(text, Random(f"{self.seed} {epoch} {i}")) if self.noise else text

    def _replace_too_long(self, rows: Sequence[Ids], originals: Sequence[Ids]) -> list[Ids]:
        """Replace rows above `train.max_length` with the ids without noise and sampling, which are shorter."""
        max_length = self.config.max_length
        return [row if len(row) < max_length else original for row, original in zip(rows, originals, strict=True)]


def prefetch(updates: Iterator[Update], num_prefetched: int = 2) -> Iterator[Update]:
    """Yield `updates`, loading the next ones in a thread and in pinned memory while the GPU computes."""

    def load() -> Update | None:
        update = next(updates, None)
        return update and replace(update, batches=[batch.pin_memory() for batch in update.batches])

    with ThreadPoolExecutor(1) as thread:
        pending = deque(thread.submit(load) for _ in range(num_prefetched))
        while update := pending.popleft().result():
            pending.append(thread.submit(load))
            yield update
