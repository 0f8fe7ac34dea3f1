"""Data loader: the sequence of batches and updates, starting at any position of an epoch.

Noise is a pure function of (seed, epoch, pair), the sample of each corpus of (seed, epoch), the
order of (seed, epoch) and the lengths after noise, and subword regularization of (seed, epoch,
first pair of the batch). The epoch and the number of batches consumed therefore determine the state
of the loader, and resumed training continues identically.

Shape suffixes: N pairs of the store, of an epoch or of a batch, K noise functions. Batches are
planned as indices into the pairs of an epoch; `pair_ids` are indices into the store.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import lru_cache
from random import Random
from typing import Any

import numpy as np
import torch

from nmt.core.config import TrainConfig
from nmt.core.console import progress
from nmt.core.errors import DataError
from nmt.data.arrays import Bools, Indices, Integers
from nmt.data.batching import Ids, PaddedBatching
from nmt.data.mixing import Mix, PreparedCorpus, SampledCorpus, sample_pairs
from nmt.data.noise import SourceNoise
from nmt.data.packing import PackedBatching
from nmt.data.sources import CorpusOptions
from nmt.data.store import Store
from nmt.data.subword_regularization import SubwordSampler
from nmt.text.tokenizer import Tokenizer

NOISE_CHUNK_SIZE = 10_000
"""Pairs whose noise is applied at a time."""
NUM_PREFETCHED = 2
"""Updates that are loaded while the GPU computes."""
NOISE_STREAM = 0x6E6F697365
"""Distinguishes the random numbers of source noise from those of batches and samples."""


@dataclass(frozen=True)
class Update:
    """The batches of one update on one rank."""

    batches: list[Any]
    """`Batch`es, or `PackedBatch`es."""
    tokens: int
    """Target tokens of the update on all ranks, which normalize the loss; an estimate with subword
    regularization."""
    epoch: int
    batches_in_epoch: int
    """Number of batches of the epoch consumed after this update, over all ranks."""


@dataclass
class Loader:
    """Group the batches of a store into updates. An epoch has a sample of the pairs of each corpus
    that are within `train.max_length`; each rank loads its share of the batches of every update.

    Raises:
        DataError: no training pair, or no replay pair, has at most `train.max_length` tokens,
            including the end token.
        ConfigError: `train.subword_regularization` requires another type of tokenizer.
    """

    store: Store
    """The text and token ids of all corpora."""
    tokenizer: Tokenizer
    config: TrainConfig
    """The options of batches, noise and segmentation."""
    seed: int
    rank: int = 0
    """Index of this process."""
    world_size: int = 1
    """Number of processes."""
    mix: Mix | None = None
    """The corpora of the store; None: a single one, all of whose pairs are used in each epoch."""
    source_eos: bool = field(default=True, kw_only=True)
    """Whether sources end with the end token."""
    packed: bool = field(default=False, kw_only=True)
    """Whether batches are packed; not with subword regularization, which changes lengths after the
    batches are planned."""

    def __post_init__(self) -> None:
        num_available = len(self.store)
        self.noise = None
        if self.config.source_noise:
            self.noise = SourceNoise(self.config.source_noise)
        self.subword_sampler = None
        spec = self.config.subword_regularization
        if spec:
            self.subword_sampler = SubwordSampler(spec, self.tokenizer, self.seed)
        self._tag_id = self.tokenizer.tag_id
        self._all_lengths_N2 = self.store.lengths_N2.copy()
        self._is_tagged_N = np.zeros(num_available, bool)
        self.pairs = lru_cache(maxsize=1)(self._sample_pairs)
        self.noise_NK = lru_cache(maxsize=1)(self._choose_noise)
        self.corpora = self._select(self.mix or _single_corpus(num_available))
        self.num_pairs = sum(each.pairs_per_epoch for each in self.corpora)
        """Number of pairs of an epoch."""
        num_short = sum(len(each.pair_ids_N) for each in self.corpora)
        self.num_too_long = num_available - num_short
        self.batching = self._choose_batching()

    def _choose_batching(self) -> PaddedBatching | PackedBatching:
        config = self.config
        if not self.packed:
            return PaddedBatching(config.batch_tokens, self.source_eos)
        # The shape is that of all epochs, so it does not depend on noise, which differs.
        lengths_N2 = self._all_lengths_N2[self._sample_pair_ids(epoch=0)]
        return PackedBatching.of(
            lengths_N2, config.batch_tokens, config.max_length, self.source_eos
        )

    def _select(self, mix: Mix) -> list[SampledCorpus]:
        """Mark the pairs with tags, and return those within `train.max_length` of each corpus."""
        max_length = self.config.max_length
        num_by_role: Counter[str] = Counter()
        pair_ids: list[Indices] = []
        start = 0
        for corpus in mix.corpora:
            end = start + corpus.num_pairs
            lengths_N2 = self._all_lengths_N2[start:end]
            if corpus.options.tag:
                self._is_tagged_N[start:end] = True
                lengths_N2[:, 0] += 1
            is_short_N = (lengths_N2 < max_length).all(axis=1)  # < because of EOS
            short_N = start + np.flatnonzero(is_short_N)
            num_by_role[corpus.role] += len(short_N)
            pair_ids.append(short_N)
            start = end
        for role, num_pairs in num_by_role.items():
            if not num_pairs:
                raise DataError(
                    f"no {role} pair has at most {max_length} tokens", "increase train.max_length"
                )
        num_usable = list(map(len, pair_ids))
        counts = mix.pairs_per_epoch(num_usable)
        return list(map(SampledCorpus, mix.corpora, pair_ids, counts))

    def stream(self, epoch: int, batches_in_epoch: int) -> Iterator[Update]:
        """Yield the updates of an epoch after its first batches, and those of all later epochs."""
        while True:
            yield from self.updates(epoch, batches_in_epoch)
            epoch += 1
            batches_in_epoch = 0

    def updates(self, epoch: int, batches_in_epoch: int = 0) -> Iterator[Update]:
        """Yield this rank's share of each update of an epoch after its first batches.

        All ranks compute the same plan, so they know the tokens of an update without communication.
        A rank's share of the last update of an epoch may be empty.
        """
        pair_ids_N, lengths_N2 = self.pairs(epoch)
        batches = self.batch_indices(epoch)
        update_size = self.config.grad_accumulation * self.world_size
        for start in range(batches_in_epoch, len(batches), update_size):
            end = start + update_size
            update = batches[start:end]
            indices_N = np.concatenate(update)
            target_lengths_N = lengths_N2[indices_N, 1]
            tokens = int(target_lengths_N.sum())
            tokens += len(indices_N)
            share = update[self.rank :: self.world_size]
            loaded = [self._load(pair_ids_N[indices], epoch) for indices in share]
            batches_in_epoch = start + len(update)
            yield Update(loaded, tokens, epoch, batches_in_epoch)

    def batch_indices(self, epoch: int) -> list[Indices]:
        """Return the batches of an epoch on all ranks, each as indices into the pairs of the
        epoch."""
        return self.batching.plan(self.lengths_N2(epoch), self.seed, epoch)

    def num_positions(self, batches: Sequence[Indices]) -> int:
        """Return the number of target positions of batches of the first epoch, with padding."""
        return self.batching.num_positions(batches, self.lengths_N2(0))

    def worst_case_batches(self) -> list[Any]:
        """Return the batches of the first epoch that need most memory."""
        pair_ids_N, lengths_N2 = self.pairs(0)
        worst = self.batching.worst_case(self.batch_indices(0), lengths_N2)
        return [self._load(pair_ids_N[indices], 0) for indices in worst]

    def lengths_N2(self, epoch: int) -> Integers:
        """Return the lengths of the pairs of an epoch after its noise, without BOS and EOS.

        Noise can change lengths considerably: all caps need several times the pieces.
        """
        return self.pairs(epoch)[1]

    def _sample_pairs(self, epoch: int) -> tuple[Indices, Integers]:
        """Return the pair ids of an epoch, [N], and their lengths after noise, [N, 2]."""
        pair_ids_N = self._sample_pair_ids(epoch)
        lengths_N2 = self._all_lengths_N2[pair_ids_N]
        if self.noise:
            self._update_noisy_lengths(lengths_N2, pair_ids_N, epoch)
        return pair_ids_N, lengths_N2

    def _sample_pair_ids(self, epoch: int) -> Indices:
        samples = []
        for i, corpus in enumerate(self.corpora):
            num_available = len(corpus.pair_ids_N)
            num_sampled = corpus.pairs_per_epoch
            sample = sample_pairs(num_available, num_sampled, self.seed, i, epoch)
            samples.append(corpus.pair_ids_N[sample])
        return np.concatenate(samples)

    def _update_noisy_lengths(self, lengths_N2: Integers, pair_ids_N: Indices, epoch: int) -> None:
        """Replace the source lengths of the pairs with noise."""
        with progress(len(lengths_N2), "applying source noise", " pairs") as bar:
            for start in range(0, len(lengths_N2), NOISE_CHUNK_SIZE):
                end = start + NOISE_CHUNK_SIZE
                pair_ids = pair_ids_N[start:end].tolist()
                for n, row in self._noisy_rows(pair_ids, epoch):
                    lengths_N2[start + n, 0] = len(row)
                bar.update(len(pair_ids))

    def _load(self, pair_ids_N: Indices, epoch: int) -> Any:
        """Return the batch of some pairs, with noise and sampled segmentations."""
        pair_ids = pair_ids_N.tolist()
        ids = map(self.store.src.ids, pair_ids)
        sources = list(map(self._with_tag, ids, pair_ids))
        targets: list[Ids] = list(map(self.store.tgt.ids, pair_ids))
        if self.subword_sampler:
            rng = np.random.default_rng((self.seed, epoch, pair_ids[0]))
            texts = [self.noisy_source(i, epoch) for i in pair_ids]
            rows = self.subword_sampler.encode_batch(texts, rng)
            tagged = map(self._with_tag, rows, pair_ids)
            sources = list(map(self._unless_too_long, tagged, sources))
            texts = list(map(self.store.tgt.text, pair_ids))
            rows = self.subword_sampler.encode_batch(texts, rng)
            targets = list(map(self._unless_too_long, rows, targets))
        elif self.noise:
            for n, row in self._noisy_rows(pair_ids, epoch):
                sources[n] = row
        pairs = list(zip(sources, targets, strict=True))
        return self.batching.make(pairs, pair_ids)

    def _unless_too_long(self, row: Ids, original: Ids) -> Ids:
        """Return a row, or if it is above `train.max_length`, the ids without noise and sampling,
        which are shorter."""
        if len(row) < self.config.max_length:
            return row
        return original

    def _with_tag(self, row: Ids, i: int) -> Ids:
        """Begin a source of a tagged corpus with the tag."""
        if not self._is_tagged_N[i]:
            return row
        assert self._tag_id is not None  # checked by prepare
        return [self._tag_id, *row]

    def _noisy_rows(self, pair_ids: list[int], epoch: int) -> Iterator[tuple[int, Ids]]:
        """Yield the token ids of the sources with noise, each after its index in `pair_ids`. A row
        above `train.max_length` is left out, so its source stays as it is."""
        is_noisy = self.noise_NK(epoch)[pair_ids].any(axis=1)
        noisy = np.flatnonzero(is_noisy).tolist()
        texts = [self.noisy_source(pair_ids[n], epoch) for n in noisy]
        rows = self.tokenizer.encode_batch(texts)
        for n, row in zip(noisy, rows, strict=True):
            tagged = self._with_tag(row, pair_ids[n])
            if len(tagged) < self.config.max_length:
                yield n, tagged

    def noisy_source(self, i: int, epoch: int) -> str:
        """Return the source of a pair with the noise of an epoch."""
        text = self.store.src.text(i)
        if not self.noise:
            return text
        is_chosen_K = self.noise_NK(epoch)[i]
        if not is_chosen_K.any():
            return text
        seed = f"{self.seed} {epoch} {i}"
        rng = Random(seed)
        token = self.tokenizer.language_token(text)
        rest = text.removeprefix(token)
        noisy = self.noise.apply(rest, is_chosen_K, rng)
        return token + noisy

    def _choose_noise(self, epoch: int) -> Bools:
        """Return which noise functions apply to each pair of the store in an epoch."""
        assert self.noise
        seed = (self.seed, NOISE_STREAM, epoch)
        rng = np.random.default_rng(seed)
        chosen = []
        for probability in self.noise.probabilities:
            draws_N = rng.random(len(self.store), np.float32)
            chosen.append(draws_N < probability)
        return np.stack(chosen, axis=1)


def _single_corpus(num_pairs: int) -> Mix:
    return Mix([PreparedCorpus("", num_pairs, CorpusOptions())])


def prefetch(updates: Iterator[Update], device: torch.device) -> Iterator[Update]:
    """Yield `updates`, loading the next ones in a thread and in pinned memory while the GPU
    computes."""

    def load() -> Update | None:
        update = next(updates, None)
        if update is None:
            return None
        pinned = [batch.pin_memory() for batch in update.batches]
        return replace(update, batches=pinned)

    # The memory is pinned for the device of the thread.
    set_device = torch.cuda.set_device
    with ThreadPoolExecutor(1, initializer=set_device, initargs=(device,)) as thread:
        pending = deque(thread.submit(load) for _ in range(NUM_PREFETCHED))
        while update := pending.popleft().result():
            pending.append(thread.submit(load))
            yield update
