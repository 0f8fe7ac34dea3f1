"""Which pairs make a batch, and the tensors of one.

Shape letters: B sentences, S source tokens, T target tokens, N pairs of the corpus or real target positions.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nmt.data.tokenizer import BOS, EOS, PAD

POOL_PAIRS = 200_000
"""Pairs that are sorted by length together: enough for batches almost without padding, at any corpus size."""

Ids = Sequence[int] | NDArray[np.integer]


@dataclass(frozen=True)
class Batch:
    """Padded id tensors of B pairs. Targets are shifted: the decoder reads <s> y and must say y </s>."""

    src_BS: Tensor
    src_mask_BS: Tensor
    tgt_in_BT: Tensor
    target_index_N: Tensor
    """Where the real ones of the B·T target positions are; numbers, since counting a mask would wait for a GPU."""
    labels_N: Tensor
    """What the decoder must say there."""
    pairs: tuple[int, ...] = ()
    """Numbers of the pairs in the store, so that a bad batch can be named."""

    def to(self, device: torch.device) -> Batch:
        """Move the tensors to `device`."""
        return self._each(lambda tensor: tensor.to(device, non_blocking=True))

    def pin_memory(self) -> Batch:
        """Move the tensors to memory from which a GPU copies while it computes."""
        return self._each(Tensor.pin_memory)

    def _each(self, move: Callable[[Tensor], Tensor]) -> Batch:
        names = ("src_BS", "src_mask_BS", "tgt_in_BT", "target_index_N", "labels_N")
        moved: dict[str, Any] = {name: move(getattr(self, name)) for name in names}
        return replace(self, **moved)

    @property
    def tokens(self) -> int:
        """Real target positions, the end tokens counted."""
        return len(self.labels_N)

    def split(self) -> tuple[Batch, Batch]:
        """Cut the batch in two, for when it does not fit into memory; it must hold two pairs at least."""
        middle = len(self.src_BS) // 2
        return self._rows(0, middle), self._rows(middle, len(self.src_BS))

    def _rows(self, first: int, end: int) -> Batch:
        columns = self.tgt_in_BT.shape[1]
        row_N, column_N = self.target_index_N // columns, self.target_index_N % columns
        mine_N = (row_N >= first) & (row_N < end)
        row_N, column_N = row_N[mine_N] - first, column_N[mine_N]
        src, tgt = int(self.src_mask_BS[first:end].sum(1).max()), int(column_N.max()) + 1  # less padding
        return Batch(
            self.src_BS[first:end, :src], self.src_mask_BS[first:end, :src], self.tgt_in_BT[first:end, :tgt],
            row_N * tgt + column_N, self.labels_N[mine_N], self.pairs[first:end],
        )  # fmt: skip


def plan(lengths_N2: NDArray[np.integer], max_tokens: int, seed: int, epoch: int) -> list[NDArray[np.int64]]:
    """Return the pair numbers of each batch of an epoch: a pure function of its arguments.

    Pairs are shuffled, sorted by length within pools, cut where a batch's longer side times its sentences would
    pass `max_tokens` (start and end tokens counted), and the batches shuffled.

    Args:
        lengths_N2: source and target tokens of every pair, without start and end.
        max_tokens: budget of one batch, padding counted.
        seed: seed of the run.
        epoch: number of the epoch, from 0.
    """
    rng = np.random.default_rng((seed, epoch))
    order = rng.permutation(len(lengths_N2))
    batches: list[NDArray[np.int64]] = []
    for start in range(0, len(order), POOL_PAIRS):
        pool = order[start : start + POOL_PAIRS]
        src, tgt = lengths_N2[pool, 0], lengths_N2[pool, 1]
        # By the longer side, and within it by the difference, to and fro: neighbors then resemble each other on both
        # sides. Stable: pairs of equal lengths stay shuffled.
        longest, difference = np.maximum(src, tgt).astype(np.int64), (src - tgt).astype(np.int64)
        pool = pool[np.argsort((longest << 32) + np.where(longest % 2, -difference, difference), kind="stable")]
        batches += _cut(pool, lengths_N2[pool].max(axis=1) + 1, max_tokens)
    return [batches[i] for i in rng.permutation(len(batches))]


def _cut(pool: NDArray[np.int64], sizes: NDArray[np.integer], max_tokens: int) -> list[NDArray[np.int64]]:
    """Cut a pool, shortest pairs first, where the next pair would make (pairs x size of the last) pass `max_tokens`."""
    batches, first = [], 0
    while first < len(pool):
        # No later pair is shorter, so the cost of a batch grows with its pairs and its end can be searched for.
        most = min(max(1, max_tokens // int(sizes[first])), len(pool) - first)
        fitting = bisect.bisect_right(range(1, most + 1), max_tokens, key=lambda n: n * int(sizes[first + n - 1]))
        end = first + max(1, fitting)
        batches.append(pool[first:end])
        first = end
    return batches


def pad_rows(rows: Sequence[Ids], before: int | None = None, after: int | None = None) -> Tensor:
    """Stack id lists of unequal length into [B, longest], with an id put before and after each."""
    extra = (before is not None) + (after is not None)
    padded = np.full((len(rows), max(map(len, rows)) + extra), PAD, dtype=np.int64)
    for target, row in zip(padded, rows, strict=True):
        start = 0
        if before is not None:
            target[0], start = before, 1
        target[start : start + len(row)] = row
        if after is not None:
            target[start + len(row)] = after
    return torch.from_numpy(padded)


def collate(pairs: Sequence[tuple[Ids, Ids]], numbers: Sequence[int] = ()) -> Batch:
    """Make the tensors of a batch; sources end on </s>, as translation input does."""
    src_BS, src_mask_BS = collate_source([src for src, _ in pairs])
    targets = [tgt for _, tgt in pairs]
    tgt_out_BT = pad_rows(targets, after=EOS)
    lengths_B = torch.tensor([len(tgt) + 1 for tgt in targets])
    real_BT = torch.arange(tgt_out_BT.shape[1])[None] < lengths_B[:, None]
    target_index_N = real_BT.flatten().nonzero().squeeze(1)
    tgt_in_BT = pad_rows(targets, before=BOS)
    return Batch(src_BS, src_mask_BS, tgt_in_BT, target_index_N, tgt_out_BT[real_BT], tuple(numbers))


def collate_source(sources: Sequence[Ids]) -> tuple[Tensor, Tensor]:
    """Return the padded ids [B, S], each ending on </s>, and their mask."""
    src_BS = pad_rows(sources, after=EOS)
    lengths_B = torch.tensor([len(src) + 1 for src in sources])
    return src_BS, torch.arange(src_BS.shape[1])[None] < lengths_B[:, None]
