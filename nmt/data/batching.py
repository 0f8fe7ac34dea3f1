"""Which pairs make a batch, and the tensors of one.

Shape letters: B sentences, S source tokens, T target tokens, N pairs of the corpus.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nmt.tokenizer import BOS, EOS, PAD

POOL_PAIRS = 200_000
"""Pairs that are sorted by length together: enough for batches almost without padding, at any corpus size."""

Ids = Sequence[int] | NDArray[np.integer]


@dataclass(frozen=True)
class Batch:
    """Padded id tensors of B pairs. Targets are shifted: the decoder reads <s> y and must say y </s>."""

    src_BS: Tensor
    src_mask_BS: Tensor
    tgt_in_BT: Tensor
    tgt_out_BT: Tensor
    tgt_mask_BT: Tensor
    tokens: int
    """Real target positions, the end token counted."""
    pairs: tuple[int, ...] = ()
    """Numbers of the pairs in the store, so that a bad batch can be named."""

    def to(self, device: torch.device) -> Batch:
        """Move the tensors to `device`."""
        names = ("src_BS", "src_mask_BS", "tgt_in_BT", "tgt_out_BT", "tgt_mask_BT")
        return replace(self, **{name: getattr(self, name).to(device, non_blocking=True) for name in names})

    def halves(self) -> tuple[Batch, Batch]:
        """Cut the batch in two, for when it does not fit into memory; it must hold two pairs at least."""
        middle = len(self.src_BS) // 2
        return self._rows(slice(0, middle)), self._rows(slice(middle, None))

    def _rows(self, rows: slice) -> Batch:
        src_mask_BS, tgt_mask_BT = self.src_mask_BS[rows], self.tgt_mask_BT[rows]
        src, tgt = (slice(int(mask.sum(1).max())) for mask in (src_mask_BS, tgt_mask_BT))  # less padding
        return Batch(
            self.src_BS[rows, src], src_mask_BS[:, src], self.tgt_in_BT[rows, tgt], self.tgt_out_BT[rows, tgt],
            tgt_mask_BT[:, tgt], int(tgt_mask_BT.sum()), self.pairs[rows],
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
        pool = pool[np.lexsort((src, tgt))]  # stable: pairs of equal lengths stay shuffled
        batches += _cut(pool, lengths_N2[pool].max(axis=1) + 1, max_tokens)
    return [batches[i] for i in rng.permutation(len(batches))]


def _cut(pool: NDArray[np.int64], sizes: NDArray[np.integer], max_tokens: int) -> list[NDArray[np.int64]]:
    batches, first, longest = [], 0, 0
    for i, size in enumerate(sizes.tolist()):
        longest = max(longest, size)
        if (i + 1 - first) * longest > max_tokens and i > first:
            batches.append(pool[first:i])
            first, longest = i, size
    if first < len(pool):
        batches.append(pool[first:])
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
    tgt_mask_BT = torch.arange(tgt_out_BT.shape[1])[None] < lengths_B[:, None]
    tokens = int(lengths_B.sum())
    return Batch(src_BS, src_mask_BS, pad_rows(targets, before=BOS), tgt_out_BT, tgt_mask_BT, tokens, tuple(numbers))


def collate_source(sources: Sequence[Ids]) -> tuple[Tensor, Tensor]:
    """Return the padded ids [B, S], each ending on </s>, and their mask."""
    src_BS = pad_rows(sources, after=EOS)
    lengths_B = torch.tensor([len(src) + 1 for src in sources])
    return src_BS, torch.arange(src_BS.shape[1])[None] < lengths_B[:, None]
