"""Data loader: the sequence of batches and updates, starting at any position of an epoch.

Noise is a pure function of (seed, epoch, pair), the sample of each corpus of (seed, epoch), the order of (seed, epoch)
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
from nmt.data.batching import Batch, Ids, collate, plan_batches
from nmt.data.mixing import Mix, PreparedCorpus, SampledCorpus, sample_pairs
from nmt.data.noise import SourceNoise
from nmt.data.sources import CorpusOptions
from nmt.data.store import Store
from nmt.data.subword_regularization import SubwordSampler
from nmt.data.tokenizer import Tokenizer
from nmt.errors import DataError

CHUNK_SIZE = 10_000
"""Sentences tokenized at a time."""
NOISE_STREAM = 0x6E6F697365
"""Distinguishes the random numbers of source noise from those of batches and samples."""


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
    """Group the batches of a store into updates. An epoch has a sample of the pairs of each corpus."""

    def __init__(
        self,
        store: Store,
        tokenizer: Tokenizer,
        config: TrainConfig,
        seed: int,
        rank: int = 0,
        world_size: int = 1,
        mix: Mix | None = None,
        *,
        source_eos: bool = True,
    ) -> None:
        """Select the pairs within `train.max_length`; each rank loads its share of the batches of every update.

        Args:
            store: the text and token ids of all corpora.
            tokenizer: the tokenizer of the store.
            config: the options of batches, noise and segmentation.
            seed: seed of the run.
            rank: index of this process.
            world_size: number of processes.
            mix: the corpora of the store; None: a single one, all of whose pairs are used in each epoch.
            source_eos: whether sources end with the end token.

        Raises:
            DataError: no training pair, or no replay pair, has at most `train.max_length` tokens.
            ConfigError: `train.subword_regularization` requires another type of tokenizer.
        """
        self.tokenizer, self.config, self.seed = tokenizer, config, seed
        self.rank, self.world_size, self.source_eos = rank, world_size, source_eos
        self.noise = SourceNoise(config.source_noise) if config.source_noise else None
        spec = config.subword_regularization
        self.subword_sampler = SubwordSampler(spec, tokenizer, seed) if spec else None
        self._store, self._all_lengths_N2 = store, store.lengths_N2.copy()
        self._is_tagged_N = np.zeros(len(store), bool)
        self._epoch_pairs: tuple[int, NDArray[np.int64], NDArray[np.integer]] | None = None
        self._epoch_noise: tuple[int, NDArray[np.bool_]] | None = None
        self.corpora = self._select(mix or Mix([PreparedCorpus("", len(store), CorpusOptions())]))
        self.num_pairs = sum(each.pairs_per_epoch for each in self.corpora)
        """Number of pairs of an epoch."""
        self.num_too_long = len(store) - sum(len(each.pair_ids_N) for each in self.corpora)

    def _select(self, mix: Mix) -> list[SampledCorpus]:
        """Mark the pairs with tags, and return those within `train.max_length` of each corpus."""
        max_length, start, pair_ids = self.config.max_length, 0, []
        for corpus in mix.corpora:
            end = start + corpus.num_pairs
            self._is_tagged_N[start:end] = corpus.options.tag
            self._all_lengths_N2[start:end, 0] += corpus.options.tag
            is_short_N = (self._all_lengths_N2[start:end] < max_length).all(axis=1)  # < because of EOS
            pair_ids.append(start + np.flatnonzero(is_short_N))
            start = end
        for label, is_replay in (("training", False), ("replay", True)):
            counts = [len(ids) for ids, c in zip(pair_ids, mix.corpora, strict=True) if c.is_replay == is_replay]
            if counts and not sum(counts):
                raise DataError(f"no {label} pair has at most {max_length} tokens", "increase train.max_length")
        counts = mix.pairs_per_epoch(list(map(len, pair_ids)))
        return list(map(SampledCorpus, mix.corpora, pair_ids, counts))

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
        batches = self.batch_indices(epoch)
        update_size = self.config.grad_accumulation * self.world_size
        for start in range(skip, len(batches), update_size):
            update = batches[start : start + update_size]
            tokens = sum(int(lengths_N2[indices, 1].sum()) + len(indices) for indices in update)
            share = [self._load(pair_ids_N[indices], epoch) for indices in update[self.rank :: self.world_size]]
            yield Update(share, tokens, epoch, start + len(update))

    def batch_indices(self, epoch: int) -> list[NDArray[np.int64]]:
        """Return the batches of an epoch on all ranks, each as indices into the pairs of the epoch."""
        return plan_batches(self.lengths_N2(epoch), self.config.batch_tokens, self.seed, epoch)

    def worst_case_batches(self) -> list[Batch]:
        """Return the batches of the first epoch that need most memory: the largest and that with the longest pair."""
        (pair_ids_N, lengths_N2), batches = self._pairs(0), self.batch_indices(0)
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
            samples = [
                each.pair_ids_N[sample_pairs(len(each.pair_ids_N), each.pairs_per_epoch, self.seed, i, epoch)]
                for i, each in enumerate(self.corpora)
            ]
            pair_ids_N = np.concatenate(samples)
            lengths_N2 = self._all_lengths_N2[pair_ids_N]
            if self.noise:
                self._update_noisy_lengths(lengths_N2, pair_ids_N, epoch)
            self._epoch_pairs = epoch, pair_ids_N, lengths_N2
        return self._epoch_pairs[1:]

    def _update_noisy_lengths(self, lengths_N2: NDArray[np.integer], pair_ids_N: NDArray[np.int64], epoch: int) -> None:
        """Replace the source lengths of the pairs with noise."""
        with progress(len(lengths_N2), "applying source noise", " pairs") as bar:
            for start in range(0, len(lengths_N2), CHUNK_SIZE):
                pair_ids = pair_ids_N[start : start + CHUNK_SIZE].tolist()
                for n, row in self._noisy_ids(pair_ids, epoch).items():
                    length = len(row) + self._is_tagged_N[pair_ids[n]]
                    if length < self.config.max_length:  # otherwise `_replace_too_long` applies
                        lengths_N2[start + n, 0] = length
                bar.update(len(pair_ids))

    def _load(self, pair_ids_N: NDArray[np.int64], epoch: int) -> Batch:
        pair_ids = pair_ids_N.tolist()
        sources = self._with_tags([self._store.src.ids(i) for i in pair_ids], pair_ids)
        targets: list[Ids] = [self._store.tgt.ids(i) for i in pair_ids]
        if self.subword_sampler:
            rng = np.random.default_rng((self.seed, epoch, pair_ids[0]))
            src_sample = self.subword_sampler.encode_batch([self._noisy_source(i, epoch) for i in pair_ids], rng)
            tgt_sample = self.subword_sampler.encode_batch([self._store.tgt.text(i) for i in pair_ids], rng)
            sources = self._replace_too_long(self._with_tags(src_sample, pair_ids), sources)
            targets = self._replace_too_long(tgt_sample, targets)
        elif self.noise:
            for n, row in self._noisy_ids(pair_ids, epoch).items():
                [sources[n]] = self._replace_too_long(self._with_tags([row], [pair_ids[n]]), [sources[n]])
        return collate(list(zip(sources, targets, strict=True)), pair_ids, source_eos=self.source_eos)

    def _with_tags(self, rows: Sequence[Ids], pair_ids: Sequence[int]) -> list[Ids]:
        """Begin the sources of tagged corpora with the tag."""
        tag = self.tokenizer.tag_id
        return [[tag, *row] if self._is_tagged_N[i] else row for row, i in zip(rows, pair_ids, strict=True)]  # type: ignore[list-item]  # not None: see prepare

    def _noisy_ids(self, pair_ids: list[int], epoch: int) -> dict[int, list[int]]:
        """Return the token ids of the sources with noise, without tags, by index in `pair_ids`."""
        noisy = np.flatnonzero(self._noise_NK(epoch)[pair_ids].any(axis=1)).tolist()
        rows = self.tokenizer.encode_batch([self._noisy_source(pair_ids[n], epoch) for n in noisy])
        return dict(zip(noisy, rows, strict=True))

    def _noisy_source(self, i: int, epoch: int) -> str:
        text = self._store.src.text(i)
        if not self.noise or not (is_chosen_K := self._noise_NK(epoch)[i]).any():
            return text
        token = self.tokenizer.language_token(text)
        return token + self.noise.apply(text[len(token) :], is_chosen_K, Random(f"{self.seed} {epoch} {i}"))

    def _noise_NK(self, epoch: int) -> NDArray[np.bool_]:
        """Return which noise functions apply to each pair of the store in an epoch."""
        if self._epoch_noise is None or self._epoch_noise[0] != epoch:
            assert self.noise
            rng = np.random.default_rng((self.seed, NOISE_STREAM, epoch))
            chosen = [rng.random(len(self._store), np.float32) < p for p in self.noise.probabilities]
            self._epoch_noise = epoch, np.stack(chosen, axis=1)
        return self._epoch_noise[1]

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
