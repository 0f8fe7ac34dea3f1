"""Data loader: the sequence of batches and updates, starting at any position of an epoch.

An epoch consists of windows of up to two million pairs, which have the corpora in the same
proportions. Only the pairs of a window are planned and sorted together, so memory use does not grow
with the corpus. All of it is a pure function: the pairs of a window of (seed, epoch, window), noise
of (seed, epoch, pair), the batches of the lengths after noise and (seed, epoch, window), subword
regularization of (seed, epoch, first pair of the batch). The epoch, the window and the number of
its batches consumed therefore determine the state of the loader, and resumed training continues
identically.

Shape suffixes: N pairs of a window or of a batch, K noise functions. Batches are planned as indices
into the pairs of a window; `pair_ids` are numbers of pairs in the store.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import lru_cache
from random import Random
from typing import Any

import numpy as np
import torch

from nmt.core.config import TrainConfig
from nmt.core.errors import DataError
from nmt.data.arrays import Bools, Indices, Integers
from nmt.data.batching import Ids, PaddedBatching
from nmt.data.mixing import Mix
from nmt.data.noise import SourceNoise
from nmt.data.packing import PackedBatching
from nmt.data.sampling import SampledCorpus, usable_pairs
from nmt.data.store import Store
from nmt.data.subword_regularization import SubwordSampler
from nmt.text.tokenizer import Tokenizer

WINDOW_SIZE = 2_000_000
"""Pairs that are planned together, in 130 MB. In batches of 25,000 tokens of Europarl that are
sorted by length, 1.3% of the source positions and 0.8% of the target positions are padding; 5.6%
and 2.6% in windows of 200,000 pairs."""
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
    window: int
    """Window of the epoch."""
    batches_in_window: int
    """Number of batches of the window consumed after this update, over all ranks."""


@dataclass(frozen=True)
class Window:
    """Pairs of an epoch that are planned together, and their batches."""

    epoch: int
    index: int
    pair_ids_N: Indices
    lengths_N2: Integers
    """Source and target lengths after noise, without BOS and EOS. Noise can change lengths
    considerably: all caps need several times the pieces."""
    noise_NK: Bools
    """Which noise functions apply to each pair."""
    batches: list[Indices]
    """The batches on all ranks, each as indices into the pairs of the window."""


@dataclass
class Loader:
    """Group the pairs of a store into updates. An epoch has a sample of the pairs of each corpus
    that are within `train.max_length`; each rank loads its share of the batches of every update.

    Raises:
        DataError: no training pair, or no replay pair, has at most `train.max_length` tokens,
            including the end token.
        ConfigError: `train.subword_regularization` requires another type of tokenizer.
    """

    store: Store
    """The token ids of all corpora."""
    tokenizer: Tokenizer
    config: TrainConfig
    """The options of batches, noise and segmentation."""
    seed: int
    rank: int = 0
    """Index of this process."""
    world_size: int = 1
    """Number of processes."""
    mix: Mix = field(kw_only=True)
    """The corpora of the store."""
    source_eos: bool = field(default=True, kw_only=True)
    """Whether sources end with the end token."""
    packed: bool = field(default=False, kw_only=True)
    """Whether batches are packed; not with subword regularization, which changes lengths after the
    batches are planned."""

    def __post_init__(self) -> None:
        self.noise = SourceNoise(self.config.source_noise)
        self.subword_sampler = None
        spec = self.config.subword_regularization
        if spec:
            self.subword_sampler = SubwordSampler(spec, self.tokenizer, self.seed)
        self._tag_id = self.tokenizer.tag_id
        self.corpora = self._select()
        sizes = [corpus.num_pairs for corpus in self.mix.corpora]
        self._ends_of_corpora = np.cumsum(sizes)
        tags = [corpus.options.tag for corpus in self.mix.corpora]
        self._is_tagged = np.array(tags)
        self.num_pairs = sum(each.pairs_per_epoch for each in self.corpora)
        """Number of pairs of an epoch."""
        pairs = [corpus.pairs for corpus in self.corpora]
        num_usable = sum(map(len, pairs))
        self.num_too_long = len(self.store) - num_usable
        self.num_windows = math.ceil(self.num_pairs / WINDOW_SIZE)
        """Number of windows of an epoch."""
        self.batching = self._choose_batching()
        self.window = lru_cache(maxsize=2)(self._plan_window)

    def _choose_batching(self) -> PaddedBatching | PackedBatching:
        config = self.config
        if not self.packed:
            return PaddedBatching(config.batch_tokens, self.source_eos)
        # The shape is that of all epochs, so it does not depend on noise, which differs.
        pair_ids_N = self._sample(0, 0)
        lengths_N2 = self._lengths_N2(pair_ids_N)
        return PackedBatching.of(
            lengths_N2, config.batch_tokens, config.max_length, self.source_eos
        )

    def _select(self) -> list[SampledCorpus]:
        """Return the pairs within `train.max_length` of each corpus."""
        max_length = self.config.max_length
        corpora = self.mix.corpora
        usable = list(usable_pairs(self.store, corpora, max_length))
        num_by_role: Counter[str] = Counter()
        for corpus, pairs in zip(corpora, usable, strict=True):
            num_by_role[corpus.role] += len(pairs)
        for role, num_pairs in num_by_role.items():
            if not num_pairs:
                raise DataError(
                    f"no {role} pair has at most {max_length} tokens", "increase train.max_length"
                )
        sizes = list(map(len, usable))
        counts = self.mix.pairs_per_epoch(sizes)
        return list(map(SampledCorpus, corpora, usable, counts))

    def stream(self, epoch: int, window: int, num_batches: int) -> Iterator[Update]:
        """Yield the updates after the first batches of a window of an epoch, and those of all later
        windows and epochs.

        A thread plans the next window while the second half of one is used.
        """
        thread = ThreadPoolExecutor(1)
        try:
            while True:
                following = (epoch, window + 1)
                if window + 1 >= self.num_windows:
                    following = (epoch + 1, 0)
                planning: Future[Window] | None = None
                total = len(self.window(epoch, window).batches)
                for update in self.updates(epoch, window, num_batches):
                    if not planning and 2 * update.batches_in_window >= total:
                        planning = thread.submit(self.window, *following)
                    yield update
                if planning:
                    planning.result()
                self.store.release()
                epoch, window = following
                num_batches = 0
        finally:
            thread.shutdown(wait=False, cancel_futures=True)

    def updates(self, epoch: int, index: int = 0, num_batches: int = 0) -> Iterator[Update]:
        """Yield this rank's share of each update of a window after its first batches.

        All ranks compute the same plan, so they know the tokens of an update without communication.
        A rank's share of the last update may be empty.
        """
        window = self.window(epoch, index)
        update_size = self.config.grad_accumulation * self.world_size
        for start in range(num_batches, len(window.batches), update_size):
            end = start + update_size
            batches = window.batches[start:end]
            indices_N = np.concatenate(batches)
            target_lengths_N = window.lengths_N2[indices_N, 1]
            tokens = int(target_lengths_N.sum())
            tokens += len(indices_N)
            share = batches[self.rank :: self.world_size]
            loaded = [self._load(window, indices) for indices in share]
            num_consumed = start + len(batches)
            yield Update(loaded, tokens, window.epoch, window.index, num_consumed)

    def num_positions(self, window: Window) -> int:
        """Return the number of target positions of a window, with padding."""
        return self.batching.num_positions(window.batches, window.lengths_N2)

    def worst_case_batches(self) -> list[Any]:
        """Return the batches of the first window that need most memory."""
        window = self.window(0, 0)
        worst = self.batching.worst_case(window.batches, window.lengths_N2)
        return [self._load(window, indices) for indices in worst]

    def _plan_window(self, epoch: int, index: int) -> Window:
        pair_ids_N = self._sample(epoch, index)
        lengths_N2 = self._lengths_N2(pair_ids_N)
        noise_NK = self._choose_noise(pair_ids_N, epoch)
        window = Window(epoch, index, pair_ids_N, lengths_N2, noise_NK, [])
        self._update_noisy_lengths(window)
        batches = self.batching.plan(lengths_N2, (self.seed, epoch, index))
        return replace(window, batches=batches)

    def _sample(self, epoch: int, index: int) -> Indices:
        """Return the pairs of a window, [N]."""
        samples = []
        for i, corpus in enumerate(self.corpora):
            sample = corpus.sample(epoch, index, self.num_windows, (self.seed, i))
            samples.append(sample)
        return np.concatenate(samples)

    def _lengths_N2(self, pair_ids_N: Indices) -> Integers:
        """Return the lengths of pairs without noise, with their tags."""
        lengths_N2 = self.store.lengths_of(pair_ids_N)
        lengths_N2[:, 0] += self._has_tag_N(pair_ids_N)
        return lengths_N2

    def _has_tag_N(self, pair_ids_N: Indices) -> Bools:
        corpus_N = np.searchsorted(self._ends_of_corpora, pair_ids_N, side="right")
        is_tagged_N: Bools = self._is_tagged[corpus_N]
        return is_tagged_N

    def _update_noisy_lengths(self, window: Window) -> None:
        """Replace the source lengths of the pairs with noise."""
        is_noisy_N = window.noise_NK.any(axis=1)
        noisy_N = np.flatnonzero(is_noisy_N)
        for start in range(0, len(noisy_N), NOISE_CHUNK_SIZE):
            end = start + NOISE_CHUNK_SIZE
            indices = noisy_N[start:end]
            for n, row in self._noisy_rows(window, indices):
                window.lengths_N2[indices[n], 0] = len(row)

    def _load(self, window: Window, indices_N: Indices) -> Any:
        """Return the batch of some pairs of a window, with noise and sampled segmentations."""
        pair_ids_N = window.pair_ids_N[indices_N]
        pair_ids = pair_ids_N.tolist()
        has_tag = self._has_tag_N(pair_ids_N).tolist()
        sources, targets = self._stored_rows(pair_ids, has_tag)
        if self.subword_sampler:
            key = (self.seed, window.epoch, pair_ids[0])
            rng = np.random.default_rng(key)
            noisy = self._noisy_sources(window, indices_N)
            sampled = self.subword_sampler.encode_batch(noisy, rng)
            rows = list(map(self._with_tag, sampled, has_tag))
            sources = self._unless_too_long(rows, sources)
            texts = list(map(self.store.target, pair_ids))
            sampled = self.subword_sampler.encode_batch(texts, rng)
            targets = self._unless_too_long(sampled, targets)
        else:
            for n, row in self._noisy_rows(window, indices_N):
                sources[n] = row
        pairs = list(zip(sources, targets, strict=True))
        return self.batching.make(pairs, pair_ids)

    def _stored_rows(
        self, pair_ids: Sequence[int], has_tag: Sequence[bool]
    ) -> tuple[list[Ids], list[Ids]]:
        """Return the stored token ids of sources, with their tags, and of targets."""
        sources: list[Ids] = []
        targets: list[Ids] = []
        for i, pair in enumerate(pair_ids):
            source, target = self.store[pair]
            tagged = self._with_tag(source, has_tag[i])
            sources.append(tagged)
            targets.append(target)
        return sources, targets

    def _unless_too_long(self, rows: Sequence[Ids], originals: Sequence[Ids]) -> list[Ids]:
        """Return rows, and instead of those above `train.max_length` the ids without noise and
        sampling, which are shorter."""
        chosen: list[Ids] = []
        for row, original in zip(rows, originals, strict=True):
            is_short = len(row) < self.config.max_length
            chosen.append(row if is_short else original)
        return chosen

    def _with_tag(self, row: Ids, is_tagged: bool) -> Ids:
        """Begin a source of a tagged corpus with the tag."""
        if not is_tagged:
            return row
        assert self._tag_id is not None  # checked by prepare
        return [self._tag_id, *row]

    def _noisy_rows(self, window: Window, indices_N: Indices) -> Iterator[tuple[int, Ids]]:
        """Yield the token ids of the sources with noise, each after its place in `indices_N`. A row
        above `train.max_length` is left out, so its source stays as it is."""
        is_noisy_N = window.noise_NK[indices_N].any(axis=1)
        noisy_N = np.flatnonzero(is_noisy_N)
        if not len(noisy_N):
            return
        noisy_indices_N = indices_N[noisy_N]
        has_tag_N = self._has_tag_N(window.pair_ids_N[noisy_indices_N])
        texts = self._noisy_sources(window, noisy_indices_N)
        rows = self.tokenizer.encode_batch(texts)
        for i, row in enumerate(rows):
            tagged = self._with_tag(row, bool(has_tag_N[i]))
            if len(tagged) < self.config.max_length:
                yield int(noisy_N[i]), tagged

    def _noisy_sources(self, window: Window, indices_N: Indices) -> list[str]:
        """Return the sources of some pairs of a window with its noise."""
        texts = []
        pair_ids = window.pair_ids_N[indices_N].tolist()
        for pair, is_chosen_K in zip(pair_ids, window.noise_NK[indices_N], strict=True):
            text = self.store.source(pair)
            if is_chosen_K.any():
                seed = f"{self.seed} {window.epoch} {pair}"
                token = self.tokenizer.language_token(text)
                rest = text.removeprefix(token)
                text = token + self.noise.apply(rest, is_chosen_K, Random(seed))
            texts.append(text)
        return texts

    def _choose_noise(self, pair_ids_N: Indices, epoch: int) -> Bools:
        """Return which noise functions apply to each pair in an epoch, [N, K]."""
        probabilities = self.noise.probabilities
        chosen_NK = np.zeros((len(pair_ids_N), len(probabilities)), bool)
        if not probabilities:
            return chosen_NK
        for shard, places_N, pairs_N in self.store.by_shard(pair_ids_N):
            key = (self.seed, NOISE_STREAM, epoch, shard)
            rng = np.random.default_rng(key)
            num_pairs = len(self.store.shards[shard])
            for k, probability in enumerate(probabilities):
                draws = rng.random(num_pairs, np.float32)
                is_chosen = draws < probability
                chosen_NK[places_N, k] = is_chosen[pairs_N]
        return chosen_NK


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
