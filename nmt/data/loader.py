"""Data loader: the sequence of batches and updates, starting at any position of an epoch.

Noise is a pure function of (seed, epoch, pair), the sample of each corpus of (seed, epoch), the
order of (seed, epoch) and the lengths after noise, and subword regularization of (seed, epoch,
first pair of the batch). The epoch and the number of batches consumed therefore determine the state
of the loader, and resumed training continues identically.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import lru_cache
from random import Random

import numpy as np

from nmt.core.config import TrainConfig
from nmt.core.console import progress
from nmt.core.errors import DataError
from nmt.data.arrays import Bools, Indices, Integers
from nmt.data.batching import Batch, Ids, collate, plan_batches
from nmt.data.mixing import Mix, PreparedCorpus, SampledCorpus, sample_pairs
from nmt.data.noise import SourceNoise
from nmt.data.sources import CorpusOptions
from nmt.data.store import Store
from nmt.data.subword_regularization import SubwordSampler
from nmt.text.tokenizer import Tokenizer

CHUNK_SIZE = 10_000
"""Sentences tokenized at a time."""
NOISE_STREAM = 0x6E6F697365
"""Distinguishes the random numbers of source noise from those of batches and samples."""


@dataclass(frozen=True)
class Update:
    """The batches of one update on one rank."""

    batches: list[Batch]
    tokens: int
    """Target tokens of the update on all ranks, which normalize the loss; an estimate with subword
    regularization."""
    epoch: int
    position: int
    """Number of batches of the epoch consumed after this update, over all ranks."""


class Loader:
    """Group the batches of a store into updates. An epoch has a sample of the pairs of each
    corpus."""

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
        """Select the pairs within `train.max_length`; each rank loads its share of the batches of
        every update.

        Args:
            store: the text and token ids of all corpora.
            tokenizer: the tokenizer of the store.
            config: the options of batches, noise and segmentation.
            seed: seed of the run.
            rank: index of this process.
            world_size: number of processes.
            mix: the corpora of the store; None: a single one, all of whose pairs are used in each
                epoch.
            source_eos: whether sources end with the end token.

        Raises:
            DataError: no training pair, or no replay pair, has at most `train.max_length` tokens.
            ConfigError: `train.subword_regularization` requires another type of tokenizer.
        """
        self.tokenizer = tokenizer
        self.config = config
        self.seed = seed
        self.rank = rank
        self.world_size = world_size
        self.source_eos = source_eos
        self.noise = SourceNoise(config.source_noise) if config.source_noise else None
        spec = config.subword_regularization
        self.subword_sampler = SubwordSampler(spec, tokenizer, seed) if spec else None
        self._store = store
        self._all_lengths_N2 = store.lengths_N2.copy()
        self._tag_id = tokenizer.tag_id
        self._is_tagged_N = np.zeros(len(store), bool)
        self._pairs = lru_cache(maxsize=1)(self._sample_pairs)
        self._noise_NK = lru_cache(maxsize=1)(self._choose_noise)
        single_corpus = PreparedCorpus("", len(store), CorpusOptions())
        self.corpora = self._select(mix or Mix([single_corpus]))
        self.num_pairs = sum(each.pairs_per_epoch for each in self.corpora)
        """Number of pairs of an epoch."""
        num_short = sum(len(each.pair_ids_N) for each in self.corpora)
        self.num_too_long = len(store) - num_short

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

    def stream(self, epoch: int, skip: int) -> Iterator[Update]:
        """Yield the updates of `epoch` after the first `skip` batches, and of all following
        epochs."""
        while True:
            yield from self.updates(epoch, skip)
            epoch += 1
            skip = 0

    def updates(self, epoch: int, skip: int = 0) -> Iterator[Update]:
        """Yield this rank's share of each update of an epoch after the first `skip` batches.

        All ranks compute the same plan, so they know the tokens of an update without communication.
        A rank's share of the last update of an epoch may be empty.
        """
        pair_ids_N, lengths_N2 = self._pairs(epoch)
        batches = self.batch_indices(epoch)
        update_size = self.config.grad_accumulation * self.world_size
        for start in range(skip, len(batches), update_size):
            update = batches[start : start + update_size]
            target_lengths_N = lengths_N2[np.concatenate(update), 1]
            tokens = int(target_lengths_N.sum()) + len(target_lengths_N)
            share = update[self.rank :: self.world_size]
            loaded = [self._load(pair_ids_N[indices], epoch) for indices in share]
            yield Update(loaded, tokens, epoch, start + len(update))

    def batch_indices(self, epoch: int) -> list[Indices]:
        """Return the batches of an epoch on all ranks, each as indices into the pairs of the
        epoch."""
        lengths_N2 = self.lengths_N2(epoch)
        return plan_batches(lengths_N2, self.config.batch_tokens, self.seed, epoch)

    def worst_case_batches(self) -> list[Batch]:
        """Return the batches of the first epoch that need most memory: the largest and that with
        the longest pair."""
        pair_ids_N, lengths_N2 = self._pairs(0)
        batches = self.batch_indices(0)
        max_lengths = [lengths_N2[indices].max() for indices in batches]
        longest_B = np.array(max_lengths) + 1
        num_pairs_B = np.array(list(map(len, batches)))
        largest = int(np.argmax(num_pairs_B * longest_B))
        longest = int(np.argmax(longest_B))
        worst = sorted({largest, longest})
        pair_ids = [pair_ids_N[batches[b]] for b in worst]
        return [self._load(ids_N, 0) for ids_N in pair_ids]

    def lengths_N2(self, epoch: int) -> Integers:
        """Return the lengths of the pairs of an epoch after its noise, without BOS and EOS.

        Noise can change lengths considerably: all caps need several times the pieces.
        """
        return self._pairs(epoch)[1]

    def _sample_pairs(self, epoch: int) -> tuple[Indices, Integers]:
        """Return the pair ids of an epoch, [N], and their lengths after noise, [N, 2]."""
        samples = []
        for i, corpus in enumerate(self.corpora):
            num_available = len(corpus.pair_ids_N)
            sample = sample_pairs(num_available, corpus.pairs_per_epoch, self.seed, i, epoch)
            samples.append(corpus.pair_ids_N[sample])
        pair_ids_N = np.concatenate(samples)
        lengths_N2 = self._all_lengths_N2[pair_ids_N]
        if self.noise:
            self._update_noisy_lengths(lengths_N2, pair_ids_N, epoch)
        return pair_ids_N, lengths_N2

    def _update_noisy_lengths(self, lengths_N2: Integers, pair_ids_N: Indices, epoch: int) -> None:
        """Replace the source lengths of the pairs with noise."""
        with progress(len(lengths_N2), "applying source noise", " pairs") as bar:
            for start in range(0, len(lengths_N2), CHUNK_SIZE):
                pair_ids = pair_ids_N[start : start + CHUNK_SIZE].tolist()
                for n, row in self._noisy_ids(pair_ids, epoch).items():
                    if len(row) < self.config.max_length:  # otherwise `_replace_too_long` applies
                        lengths_N2[start + n, 0] = len(row)
                bar.update(len(pair_ids))

    def _load(self, pair_ids_N: Indices, epoch: int) -> Batch:
        """Return the batch of some pairs, with noise and sampled segmentations."""
        pair_ids = pair_ids_N.tolist()
        sources = list(map(self._source_ids, pair_ids))
        targets: list[Ids] = list(map(self._store.tgt.ids, pair_ids))
        if self.subword_sampler:
            rng = np.random.default_rng((self.seed, epoch, pair_ids[0]))
            texts = [self._noisy_source(i, epoch) for i in pair_ids]
            rows = self.subword_sampler.encode_batch(texts, rng)
            tagged = map(self._with_tag, rows, pair_ids)
            sources = list(map(self._unless_too_long, tagged, sources))
            texts = [self._store.tgt.text(i) for i in pair_ids]
            rows = self.subword_sampler.encode_batch(texts, rng)
            targets = list(map(self._unless_too_long, rows, targets))
        elif self.noise:
            for n, noisy in self._noisy_ids(pair_ids, epoch).items():
                sources[n] = self._unless_too_long(noisy, sources[n])
        pairs = list(zip(sources, targets, strict=True))
        return collate(pairs, pair_ids, source_eos=self.source_eos)

    def _unless_too_long(self, row: Ids, original: Ids) -> Ids:
        """Return a row, or if it is above `train.max_length`, the ids without noise and sampling,
        which are shorter."""
        return row if len(row) < self.config.max_length else original

    def _source_ids(self, i: int) -> Ids:
        ids = self._store.src.ids(i)
        return self._with_tag(ids, i)

    def _with_tag(self, row: Ids, i: int) -> Ids:
        """Begin a source of a tagged corpus with the tag."""
        if not self._is_tagged_N[i]:
            return row
        assert self._tag_id is not None  # checked by prepare
        return [self._tag_id, *row]

    def _noisy_ids(self, pair_ids: list[int], epoch: int) -> dict[int, Ids]:
        """Return the token ids of the sources with noise by index in `pair_ids`."""
        is_noisy = self._noise_NK(epoch)[pair_ids].any(axis=1)
        noisy = np.flatnonzero(is_noisy).tolist()
        noisy_pairs = [pair_ids[n] for n in noisy]
        texts = [self._noisy_source(i, epoch) for i in noisy_pairs]
        rows = self.tokenizer.encode_batch(texts)
        tagged = map(self._with_tag, rows, noisy_pairs)
        return dict(zip(noisy, tagged, strict=True))

    def _noisy_source(self, i: int, epoch: int) -> str:
        text = self._store.src.text(i)
        if not self.noise:
            return text
        is_chosen_K = self._noise_NK(epoch)[i]
        if not is_chosen_K.any():
            return text
        token = self.tokenizer.language_token(text)
        rng = Random(f"{self.seed} {epoch} {i}")
        rest = text.removeprefix(token)
        return token + self.noise.apply(rest, is_chosen_K, rng)

    def _choose_noise(self, epoch: int) -> Bools:
        """Return which noise functions apply to each pair of the store in an epoch."""
        assert self.noise
        rng = np.random.default_rng((self.seed, NOISE_STREAM, epoch))
        chosen = []
        for probability in self.noise.probabilities:
            draws_N = rng.random(len(self._store), np.float32)
            chosen.append(draws_N < probability)
        return np.stack(chosen, axis=1)


def prefetch(updates: Iterator[Update], num_prefetched: int = 2) -> Iterator[Update]:
    """Yield `updates`, loading the next ones in a thread and in pinned memory while the GPU
    computes."""

    def load() -> Update | None:
        update = next(updates, None)
        if update is None:
            return None
        return replace(update, batches=[batch.pin_memory() for batch in update.batches])

    with ThreadPoolExecutor(1) as thread:
        pending = deque(thread.submit(load) for _ in range(num_prefetched))
        while update := pending.popleft().result():
            pending.append(thread.submit(load))
            yield update
