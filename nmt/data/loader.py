"""Data loader: the sequence of batches and updates, starting at any position of an epoch.

Noise is a pure function of (seed, epoch, pair), the sample of replay pairs of (seed, epoch), the order of (seed, epoch)
and the lengths after noise, and subword regularization of (seed, epoch, first pair of the batch). The epoch and the
number of batches consumed therefore determine the state of the loader, and resumed training continues identically.
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
from nmt.data.store import JoinedText, Store, TextStore
from nmt.data.subword_regularization import SubwordSampler
from nmt.data.tokenizer import Tokenizer
from nmt.errors import DataError

CHUNK_SIZE = 10_000
"""Sentences tokenized at a time."""
REPLAY_STREAM = 0x7265706C6179
"""Distinguishes the random numbers of the replay order from those of batches and segmentations."""


@dataclass(frozen=True)
class Update:
    """The batches of one update on one rank."""

    batches: list[Batch]
    tokens: int
    """Target tokens of the update on all ranks, which normalize the loss; an estimate with subword regularization."""
    epoch: int
    position: int
    """Number of batches of the epoch consumed after this update, over all ranks."""


class Loader:
    """Group the batches of a store into updates.

    An epoch has all training pairs and, for a fine-tuning run with replay, a sample of the replay pairs. Training pairs
    are numbered before replay pairs.
    """

    def __init__(
        self,
        store: Store,
        tokenizer: Tokenizer,
        config: TrainConfig,
        seed: int,
        rank: int = 0,
        world_size: int = 1,
        replay: Store | None = None,
        *,
        source_eos: bool = True,
    ) -> None:
        """Select the pairs within `train.max_length`; each rank loads its share of the batches of every update.

        Raises:
            DataError: no training pair, or no replay pair, has at most `train.max_length` tokens.
            ConfigError: `train.subword_regularization` requires another type of tokenizer.
        """
        self.tokenizer, self.config, self.seed = tokenizer, config, seed
        self.rank, self.world_size, self.source_eos = rank, world_size, source_eos
        self._src: TextStore | JoinedText = store.src
        self._tgt: TextStore | JoinedText = store.tgt
        self._all_lengths_N2 = store.lengths_N2
        self.noise = compose(config.source_noise) if config.source_noise else None
        spec = config.subword_regularization
        self.subword_sampler = SubwordSampler(spec, tokenizer, seed) if spec else None
        self._epoch_pairs: tuple[int, NDArray[np.int64], NDArray[np.integer]] | None = None
        self._train_ids_N = self._select(store, "training")
        self.num_pairs, self.num_replay_pairs, self.num_available_replay_pairs = len(self._train_ids_N), 0, 0
        """Pairs of an epoch from the training data and from the replay data, and all pairs of the replay data."""
        self.num_too_long = len(store) - len(self._train_ids_N)
        if replay:
            self._replay_ids_N = self._select(replay, "replay") + len(store)
            self.num_available_replay_pairs = len(self._replay_ids_N)
            self.num_too_long += len(replay) - len(self._replay_ids_N)
            self.num_replay_pairs = max(1, round(self.num_pairs * config.replay_share / (1 - config.replay_share)))
            self._src, self._tgt = JoinedText(store.src, replay.src), JoinedText(store.tgt, replay.tgt)
            self._all_lengths_N2 = np.concatenate((store.lengths_N2, replay.lengths_N2))

    def _select(self, store: Store, label: str) -> NDArray[np.int64]:
        """Return the indices of the pairs within `train.max_length`."""
        max_length = self.config.max_length
        pair_ids_N = np.flatnonzero((store.lengths_N2 < max_length).all(axis=1))  # < because of EOS
        if not len(pair_ids_N):
            raise DataError(f"no {label} pair has at most {max_length} tokens", "increase train.max_length")
        return pair_ids_N

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
        pair_ids_N, lengths_N2 = self._pairs(epoch)
        batches = self.batches(epoch)
        update_size = self.config.grad_accumulation * self.world_size
        for start in range(skip, len(batches), update_size):
            update = batches[start : start + update_size]
            tokens = sum(int(lengths_N2[indices, 1].sum()) + len(indices) for indices in update)
            share = [self._load(pair_ids_N[indices], epoch) for indices in update[self.rank :: self.world_size]]
            yield Update(share, tokens, epoch, start + len(update))

    def batches(self, epoch: int) -> list[NDArray[np.int64]]:
        """Return the batches of an epoch on all ranks, each as indices into the pairs of the epoch."""
        return plan(self.lengths_N2(epoch), self.config.batch_tokens, self.seed, epoch)

    def worst_case_batches(self) -> list[Batch]:
        """Return the batches of the first epoch that need most memory: the largest and that with the longest pair."""
        (pair_ids_N, lengths_N2), batches = self._pairs(0), self.batches(0)
        max_lengths = [int(lengths_N2[indices].max()) + 1 for indices in batches]
        largest = max(range(len(batches)), key=lambda b: len(batches[b]) * max_lengths[b])
        longest = max(range(len(batches)), key=lambda b: max_lengths[b])
        return [self._load(pair_ids_N[batches[b]], 0) for b in sorted({largest, longest})]

    def lengths_N2(self, epoch: int) -> NDArray[np.integer]:
        """Return the lengths of the pairs of an epoch after its noise, without BOS and EOS.

        Noise can change lengths considerably: all caps need several times the pieces.
        """
        return self._pairs(epoch)[1]

    def _pairs(self, epoch: int) -> tuple[NDArray[np.int64], NDArray[np.integer]]:
        """Return the pair ids of an epoch, [N], and their lengths after noise, [N, 2]."""
        if self._epoch_pairs is None or self._epoch_pairs[0] != epoch:
            pair_ids_N = self._train_ids_N
            if self.num_replay_pairs:
                sample = sample_replay(self.num_available_replay_pairs, self.num_replay_pairs, self.seed, epoch)
                pair_ids_N = np.concatenate((pair_ids_N, self._replay_ids_N[sample]))
            lengths_N2 = self._all_lengths_N2[pair_ids_N]
            if self.noise:
                self._apply_noise(lengths_N2, pair_ids_N, epoch)
            self._epoch_pairs = epoch, pair_ids_N, lengths_N2
        return self._epoch_pairs[1:]

    def _apply_noise(self, lengths_N2: NDArray[np.integer], pair_ids_N: NDArray[np.int64], epoch: int) -> None:
        """Replace the source lengths of the pairs that noise changes."""
        with progress(len(lengths_N2), "applying source noise", " pairs") as bar:
            for start in range(0, len(lengths_N2), CHUNK_SIZE):
                pair_ids = pair_ids_N[start : start + CHUNK_SIZE].tolist()
                texts = ((n, self._src.text(i), self._source(i, epoch)) for n, i in enumerate(pair_ids))
                noisy = {n: noisy for n, clean, noisy in texts if noisy != clean}
                for n, row in zip(noisy, self.tokenizer.encode_batch([*noisy.values()]), strict=True):
                    if len(row) < self.config.max_length:  # otherwise `_replace_too_long` applies
                        lengths_N2[start + n, 0] = len(row)
                bar.update(len(pair_ids))

    def _load(self, pair_ids_N: NDArray[np.int64], epoch: int) -> Batch:
        pair_ids = pair_ids_N.tolist()
        sources: list[Ids] = [self._src.ids(i) for i in pair_ids]
        targets: list[Ids] = [self._tgt.ids(i) for i in pair_ids]
        if self.subword_sampler:
            rng = np.random.default_rng((self.seed, epoch, pair_ids[0]))
            src_sample = self.subword_sampler.encode_batch([self._source(i, epoch) for i in pair_ids], rng)
            tgt_sample = self.subword_sampler.encode_batch([self._tgt.text(i) for i in pair_ids], rng)
            sources, targets = self._replace_too_long(src_sample, sources), self._replace_too_long(tgt_sample, targets)
        elif self.noise:
            noisy = self.tokenizer.encode_batch([self._source(i, epoch) for i in pair_ids])
            sources = self._replace_too_long(noisy, sources)
        return collate(list(zip(sources, targets, strict=True)), pair_ids, source_eos=self.source_eos)

    def _source(self, i: int, epoch: int) -> str:
        text = self._src.text(i)
        return self.noise(text, Random(f"{self.seed} {epoch} {i}")) if self.noise else text

    def _replace_too_long(self, rows: Sequence[Ids], originals: Sequence[Ids]) -> list[Ids]:
        """Replace rows above `train.max_length` with the ids without noise and sampling, which are shorter."""
        max_length = self.config.max_length
        return [row if len(row) < max_length else original for row, original in zip(rows, originals, strict=True)]


def sample_replay(num_available: int, num_sampled: int, seed: int, epoch: int) -> NDArray[np.int64]:
    """Return the indices of the replay pairs of an epoch: a pure function of the arguments.

    The epochs take consecutive parts of an infinite sequence of shuffles of all pairs, so that all pairs are used
    before one repeats.

    Args:
        num_available: number of replay pairs.
        num_sampled: number of replay pairs per epoch; may exceed `num_available`.
        seed: seed of the run.
        epoch: index of the epoch, from 0.
    """
    start, end = epoch * num_sampled, (epoch + 1) * num_sampled
    shuffles = range(start // num_available, -(-end // num_available))
    order = [np.random.default_rng((seed, REPLAY_STREAM, i)).permutation(num_available) for i in shuffles]
    offset = shuffles.start * num_available
    return np.concatenate(order)[start - offset : end - offset]


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
