"""Batches: assignment of pairs to batches, and collation into padded tensors.

Shape suffixes: B sentences, S source tokens, T target tokens, N pairs of the corpus or target positions without
padding.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nmt.data.tokenizer import BOS, EOS, PAD, encoder_input

POOL_SIZE = 2_000_000
"""Pairs that are sorted by length together, in 130 MB. In batches of 25,000 tokens of Europarl, 1.3% of the source
positions and 0.8% of the target positions are padding; 5.6% and 2.6% in pools of 200,000 pairs."""

Ids = Sequence[int] | NDArray[np.integer]


@dataclass(frozen=True)
class Batch:
    """Padded token ids of B pairs. Targets are shifted: the decoder input is <s> y and the labels are y </s>."""

    src_BS: Tensor
    src_mask_BS: Tensor
    tgt_in_BT: Tensor
    target_index_N: Tensor
    """Flat indices of the target positions without padding. A Boolean mask would require a GPU synchronization."""
    labels_N: Tensor
    """Labels at these positions."""
    pair_ids: tuple[int, ...] = ()
    """Indices of the pairs in the store, for error messages."""

    def to(self, device: torch.device) -> Batch:
        """Move the tensors to `device`."""
        return self.map(lambda tensor: tensor.to(device, non_blocking=True))

    def pin_memory(self) -> Batch:
        """Copy the tensors to pinned memory, for asynchronous transfers to a GPU."""
        return self.map(Tensor.pin_memory)

    def map(self, function: Callable[[Tensor], Tensor]) -> Batch:
        """Apply a function to every tensor."""
        names = ("src_BS", "src_mask_BS", "tgt_in_BT", "target_index_N", "labels_N")
        tensors: dict[str, Any] = {name: function(getattr(self, name)) for name in names}
        return replace(self, **tensors)

    @property
    def tokens(self) -> int:
        """Number of target tokens including EOS, without padding."""
        return len(self.labels_N)

    def split(self) -> tuple[Batch, Batch]:
        """Split the batch in two, for a batch that does not fit in memory; it must have at least two pairs."""
        middle = len(self.src_BS) // 2
        return self._slice(0, middle), self._slice(middle, len(self.src_BS))

    def _slice(self, start: int, end: int) -> Batch:
        columns = self.tgt_in_BT.shape[1]
        row_N, column_N = self.target_index_N // columns, self.target_index_N % columns
        inside_N = (row_N >= start) & (row_N < end)
        row_N, column_N = row_N[inside_N] - start, column_N[inside_N]
        src_length, tgt_length = int(self.src_mask_BS[start:end].sum(1).max()), int(column_N.max()) + 1
        return Batch(
            self.src_BS[start:end, :src_length], self.src_mask_BS[start:end, :src_length],
            self.tgt_in_BT[start:end, :tgt_length], row_N * tgt_length + column_N, self.labels_N[inside_N],
            self.pair_ids[start:end],
        )  # fmt: skip


def plan_batches(lengths_N2: NDArray[np.integer], max_tokens: int, seed: int, epoch: int) -> list[NDArray[np.int64]]:
    """Return the pair indices of each batch of an epoch: a pure function of the arguments.

    Pairs are shuffled and sorted by length within pools. Each pool is divided into batches whose padded size, the
    number of pairs times the longest side including BOS or EOS, is at most `max_tokens`. The batches are shuffled.

    Args:
        lengths_N2: numbers of source and target tokens of every pair, without BOS and EOS.
        max_tokens: maximum size of a batch including padding.
        seed: seed of the run.
        epoch: index of the epoch, from 0.
    """
    rng = np.random.default_rng((seed, epoch))
    order = rng.permutation(len(lengths_N2))
    batches: list[NDArray[np.int64]] = []
    for start in range(0, len(order), POOL_SIZE):
        pool = order[start : start + POOL_SIZE]
        src, tgt = lengths_N2[pool, 0], lengths_N2[pool, 1]
        # Sort by the longer side, then by the difference in alternating order, so that neighbors have similar lengths
        # on both sides. The sort is stable: pairs of equal lengths stay shuffled.
        longest, difference = np.maximum(src, tgt).astype(np.int64), (src - tgt).astype(np.int64)
        pool = pool[np.argsort((longest << 32) + np.where(longest % 2, -difference, difference), kind="stable")]
        batches += _divide(pool, lengths_N2[pool].max(axis=1) + 1, max_tokens)
    return [batches[i] for i in rng.permutation(len(batches))]


def _divide(pool: NDArray[np.int64], sizes: NDArray[np.integer], max_tokens: int) -> list[NDArray[np.int64]]:
    """Divide a pool in ascending order of size into batches with a padded size of at most `max_tokens`."""
    batches, first = [], 0
    while first < len(pool):
        # Sizes are ascending, so the padded size grows with the number of pairs, and binary search applies.
        max_pairs = min(max(1, max_tokens // int(sizes[first])), len(pool) - first)
        num_pairs = bisect.bisect_right(
            range(1, max_pairs + 1), max_tokens, key=lambda n: n * int(sizes[first + n - 1])
        )
        end = first + max(1, num_pairs)
        batches.append(pool[first:end])
        first = end
    return batches


def pad_rows(rows: Sequence[Ids], before: int | None = None, after: int | None = None) -> Tensor:
    """Pad id lists into a tensor [B, max_length], optionally with an id before and after each list."""
    first = int(before is not None)
    end_B = first + np.fromiter(map(len, rows), np.int64, len(rows))
    column_X = np.arange(int(end_B.max()) + (after is not None))
    padded = np.full((len(rows), len(column_X)), PAD)
    padded[(column_X >= first) & (column_X < end_B[:, None])] = np.concatenate(rows, dtype=np.int64, casting="unsafe")
    if before is not None:
        padded[:, 0] = before
    if after is not None:
        padded[np.arange(len(rows)), end_B] = after
    return torch.from_numpy(padded)


def token_mask(lengths: Iterable[int]) -> Tensor:
    """Return the mask [B, longest] of padded rows of these lengths, True for tokens."""
    lengths_B = torch.from_numpy(np.fromiter(lengths, np.int64))
    return torch.arange(int(lengths_B.max()))[None] < lengths_B[:, None]


def collate(pairs: Sequence[tuple[Ids, Ids]], pair_ids: Sequence[int] = (), *, source_eos: bool = True) -> Batch:
    """Return the tensors of a batch; with `source_eos`, sources end with </s>."""
    sources = [src if source_eos else encoder_input(src, source_eos) for src, _ in pairs]
    src_BS = pad_rows(sources, after=EOS if source_eos else None)
    src_mask_BS = token_mask(len(src) + source_eos for src in sources)
    targets = [tgt for _, tgt in pairs]
    tgt_out_BT = pad_rows(targets, after=EOS)
    tgt_mask_BT = token_mask(len(tgt) + 1 for tgt in targets)
    target_index_N = tgt_mask_BT.flatten().nonzero().squeeze(1)
    tgt_in_BT = pad_rows(targets, before=BOS)
    return Batch(src_BS, src_mask_BS, tgt_in_BT, target_index_N, tgt_out_BT[tgt_mask_BT], tuple(pair_ids))
