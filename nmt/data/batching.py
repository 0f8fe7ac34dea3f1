"""Batches: assignment of pairs to batches, and collation into padded tensors.

Shape suffixes: B sentences, S source tokens, T target tokens, N pairs of the corpus or target
positions without padding.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from torch import Tensor

from nmt.data.arrays import Indices, Integers
from nmt.text.tokenizer import BOS, EOS, PAD, encoder_input

Ids = Sequence[int] | Integers


class TensorBatch:
    """The base class of batches, which are dataclasses of tensors and other values."""

    def to(self, device: torch.device) -> Self:
        """Move the tensors to `device`."""
        return self.map(lambda tensor: tensor.to(device, non_blocking=True))

    def pin_memory(self) -> Self:
        """Copy the tensors to pinned memory, for asynchronous transfers to a GPU."""
        return self.map(Tensor.pin_memory)

    def map(self, function: Callable[[Tensor], Tensor]) -> Self:
        """Apply a function to every tensor."""
        values = dict(vars(self))
        for name, tensor in self.tensors().items():
            values[name] = function(tensor)
        return type(self)(**values)

    def tensors(self) -> dict[str, Tensor]:
        """Return the tensors by name."""
        values = vars(self)
        return {name: value for name, value in values.items() if isinstance(value, Tensor)}


@dataclass(frozen=True)
class Batch(TensorBatch):
    """Padded token ids of B pairs. Targets are shifted: the decoder input is <s> y and the labels
    are y </s>."""

    src_BS: Tensor
    src_mask_BS: Tensor
    tgt_in_BT: Tensor
    target_index_N: Tensor
    """Flat indices of the target positions without padding. A Boolean mask would require a GPU
    synchronization."""
    labels_N: Tensor
    """Labels at these positions."""
    pair_ids: tuple[int, ...] = ()
    """Indices of the pairs in the store, for error messages."""

    @property
    def tokens(self) -> int:
        """Number of target tokens including EOS, without padding."""
        return len(self.labels_N)

    def split(self) -> tuple[Batch, Batch]:
        """Split the batch in two, for a batch that does not fit in memory; it must have at least
        two pairs."""
        num_pairs = len(self.src_BS)
        middle = num_pairs // 2
        return self._slice(0, middle), self._slice(middle, num_pairs)

    def _slice(self, start: int, end: int) -> Batch:
        rows = slice(start, end)
        src_mask_BS = self.src_mask_BS[rows]
        src_lengths_B = src_mask_BS.sum(1)
        src_length = int(src_lengths_B.max())
        columns = self.tgt_in_BT.shape[1]
        row_N = self.target_index_N // columns
        column_N = self.target_index_N % columns
        is_inside_N = row_N >= start
        is_inside_N &= row_N < end
        row_M = row_N[is_inside_N] - start
        column_M = column_N[is_inside_N]
        tgt_length = int(column_M.max()) + 1
        return Batch(
            self.src_BS[rows, :src_length],
            src_mask_BS[:, :src_length],
            self.tgt_in_BT[rows, :tgt_length],
            row_M * tgt_length + column_M,
            self.labels_N[is_inside_N],
            self.pair_ids[rows],
        )


def plan_batches(
    lengths_N2: Integers, max_tokens: int, key: tuple[int, ...] = (0,)
) -> list[Indices]:
    """Return the indices of the pairs of each batch: a pure function of the arguments.

    Pairs are shuffled, sorted by length, and divided into batches whose padded size, the number of
    pairs times the longest side including BOS or EOS, is at most `max_tokens`. The batches are
    shuffled.

    Args:
        lengths_N2: numbers of source and target tokens of every pair, without BOS and EOS.
        max_tokens: maximum size of a batch including padding.
        key: numbers that determine the order.
    """
    rng = np.random.default_rng(key)
    order = rng.permutation(len(lengths_N2))
    order_by_length = _by_length(lengths_N2[order])
    order = order[order_by_length]
    longest_sides = lengths_N2[order].max(axis=1)
    batches = _divide(order, longest_sides + 1, max_tokens)
    order = rng.permutation(len(batches))
    return [batches[i] for i in order]


def _by_length(lengths_N2: Integers) -> Indices:
    """Return the order by the longer side, and by the difference of both sides in alternating
    direction.

    Neighbors thus have similar lengths on both sides. Pairs of equal lengths keep their order.
    """
    source_N, target_N = lengths_N2.T.astype(np.int32, copy=False)
    longest_N = np.maximum(source_N, target_N)
    difference_N = source_N - target_N
    tie_breaker_N = np.where(longest_N % 2, -difference_N, difference_N)
    key_N = longest_N.astype(np.int64) << 32
    key_N += tie_breaker_N
    return np.argsort(key_N, kind="stable")


def _divide(pool: Indices, sizes: Integers, max_tokens: int) -> list[Indices]:
    """Divide a pool in ascending order of size into batches with a padded size of at most
    `max_tokens`."""
    batches = []
    first = 0

    def padded_size(num_pairs: int) -> int:
        longest = int(sizes[first + num_pairs - 1])
        return num_pairs * longest

    while first < len(pool):
        # Sizes are ascending, so the padded size grows with the number of pairs, and binary search
        # applies.
        max_pairs = max(1, max_tokens // sizes[first])
        max_pairs = min(max_pairs, len(pool) - first)
        counts = range(1, max_pairs + 1)
        num_pairs = bisect.bisect_right(counts, max_tokens, key=padded_size)
        end = first + max(1, num_pairs)
        batches.append(pool[first:end])
        first = end
    return batches


def pad_rows(rows: Sequence[Ids], before: int | None = None, after: int | None = None) -> Tensor:
    """Pad id lists into a tensor [B, max_length], optionally with an id before and after each
    list."""
    first = 0 if before is None else 1
    lengths_B = np.fromiter(map(len, rows), np.int64, len(rows))
    end_B = first + lengths_B
    num_columns = int(end_B.max())
    if after is not None:
        num_columns += 1
    column_X = np.arange(num_columns)
    is_id_BX = column_X < end_B[:, None]
    is_id_BX[:, :first] = False
    padded_BX = np.full(is_id_BX.shape, PAD)
    padded_BX[is_id_BX] = np.concatenate(rows, dtype=np.int64, casting="unsafe")
    if before is not None:
        padded_BX[:, 0] = before
    if after is not None:
        row_B = np.arange(len(rows))
        padded_BX[row_B, end_B] = after
    return torch.from_numpy(padded_BX)


def token_mask(lengths: Iterable[int]) -> Tensor:
    """Return the mask [B, longest] of padded rows of these lengths, True for tokens."""
    lengths_B = torch.from_numpy(np.fromiter(lengths, np.int64))
    longest = int(lengths_B.max())
    column_X = torch.arange(longest)
    return column_X < lengths_B[:, None]


def collate(
    pairs: Sequence[tuple[Ids, Ids]], pair_ids: Sequence[int] = (), *, source_eos: bool = True
) -> Batch:
    """Return the tensors of a batch; with `source_eos`, sources end with </s>."""
    sources, targets = zip(*pairs, strict=True)
    if source_eos:
        src_BS = pad_rows(sources, after=EOS)
        lengths = [len(src) + 1 for src in sources]
    else:
        inputs = [encoder_input(src, source_eos) for src in sources]
        src_BS = pad_rows(inputs)
        lengths = list(map(len, inputs))
    src_mask_BS = token_mask(lengths)
    tgt_in_BT = pad_rows(targets, before=BOS)
    tgt_out_BT = pad_rows(targets, after=EOS)
    tgt_mask_BT = token_mask(len(tgt) + 1 for tgt in targets)
    index_N1 = tgt_mask_BT.flatten().nonzero()
    target_index_N = index_N1.squeeze(1)
    labels_N = tgt_out_BT[tgt_mask_BT]
    return Batch(
        src_BS=src_BS,
        src_mask_BS=src_mask_BS,
        tgt_in_BT=tgt_in_BT,
        target_index_N=target_index_N,
        labels_N=labels_N,
        pair_ids=tuple(pair_ids),
    )


@dataclass(frozen=True)
class PaddedBatching:
    """How pairs become padded batches; see `nmt.data.packing.PackedBatching` for the other way."""

    max_tokens: int
    source_eos: bool

    def plan(self, lengths_N2: Integers, key: tuple[int, ...]) -> list[Indices]:
        """Return the indices of the pairs of each batch; see `plan_batches`."""
        return plan_batches(lengths_N2, self.max_tokens, key)

    def make(self, pairs: Sequence[tuple[Ids, Ids]], pair_ids: Sequence[int]) -> Batch:
        """Return the tensors of a batch."""
        return collate(pairs, pair_ids, source_eos=self.source_eos)

    def num_positions(self, batches: Sequence[Indices], lengths_N2: Integers) -> int:
        """Return the number of target positions of batches, with padding."""
        tokens_N = lengths_N2[:, 1] + 1
        num_positions = 0
        for indices in batches:
            longest = int(tokens_N[indices].max())
            num_positions += len(indices) * longest
        return num_positions

    def worst_case(self, batches: Sequence[Indices], lengths_N2: Integers) -> list[Indices]:
        """Return the batches that need most memory: the largest and that with the longest pair."""
        lengths = []
        sizes = []
        for indices in batches:
            length = int(lengths_N2[indices].max()) + 1
            lengths.append(length)
            sizes.append(len(indices) * length)
        largest = sizes.index(max(sizes))
        longest = lengths.index(max(lengths))
        worst = sorted({largest, longest})
        return [batches[b] for b in worst]
