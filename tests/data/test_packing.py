"""Packed batches: each pair once, few empty slots, and padding that attention can read."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from nmt.data.arrays import Integers
from nmt.data.packing import PackShape, pack, plan_packed_batches
from nmt.text.tokenizer import BOS, EOS, PAD


def wmt_lengths(count: int, longest: int = 256) -> Integers:
    """Return numbers of source and target tokens, distributed about as in WMT."""
    rng = np.random.default_rng(0)
    source = rng.lognormal(3.2, 0.6, count)
    target = source * rng.lognormal(0.05, 0.2, count)
    return np.stack((source, target), 1).clip(1, longest - 1).astype(np.int64) + 1


@pytest.mark.parametrize(("slots", "source_fill", "target_fill"), [
    (25_600, 0.968, 0.986),
    (3_200, 0.96, 0.986),
    (512, 0.9, 0.98),
])  # fmt: skip
def test_every_pair_is_in_one_batch_and_few_slots_are_empty(
    slots: int, source_fill: float, target_fill: float
) -> None:
    tokens_N2 = wmt_lengths(60 * slots // 25)
    shape = PackShape.of(tokens_N2, slots, 256)
    plan = plan_packed_batches(tokens_N2, shape, (1, 2))
    assert np.array_equal(np.sort(np.concatenate(plan)), np.arange(len(tokens_N2)))
    totals = np.array([tokens_N2[batch].sum(axis=0) for batch in plan])
    assert (totals < [shape.source_slots, shape.target_slots]).all()
    fill = totals[:-1].mean(axis=0) / [shape.source_slots, shape.target_slots]
    assert fill[0] >= source_fill
    assert fill[1] >= target_fill


def lopsided_lengths() -> list[Integers]:
    """Return lengths for which one side of many batches is full while the other is nearly empty."""
    rng = np.random.default_rng(0)
    short = rng.integers(1, 4, 400)
    long = rng.integers(200, 257, 400)
    mixed = np.where(np.arange(400) % 2, short, long)
    return [
        np.stack((short, long), 1),
        np.stack((mixed, short), 1),
        np.stack((long, long), 1),
        np.array([[256, 1], [1, 256], [256, 256]]),
    ]


@pytest.mark.parametrize("lengths_N2", lopsided_lengths())
@pytest.mark.parametrize("slots", [256, 1000, 5000])
def test_padding_fits_into_segments_on_both_sides(lengths_N2: Integers, slots: int) -> None:
    shape = PackShape.of(lengths_N2, slots, 256)
    plan = plan_packed_batches(lengths_N2, shape, (1, 0))
    assert np.array_equal(np.sort(np.concatenate(plan)), np.arange(len(lengths_N2)))
    for batch in plan:
        pairs = [([5] * (source - 1), [6] * (target - 1)) for source, target in lengths_N2[batch]]
        packed = pack(pairs, shape, batch.tolist())
        source = packed.src_bounds_E.diff()
        target = packed.tgt_bounds_E.diff()
        assert max(source.max(), target.max()) <= 256
        assert torch.equal(source > 0, target > 0)
        assert (source.sum(), target.sum()) == (shape.source_slots, shape.target_slots)


def test_a_packed_batch_has_the_tokens_of_its_pairs() -> None:
    shape = PackShape(9, 8, 4, 6)
    batch = pack([([5, 6], [7]), ([8], [9, 10])], shape, [3, 1])
    assert batch.src_S.tolist() == [5, 6, EOS, 8, EOS, *[PAD] * 4]
    assert batch.src_position_S.tolist() == [0, 1, 2, 0, 1, 0, 1, 0, 1]
    assert batch.src_bounds_E.tolist() == [0, 3, 5, 7, 9]
    assert batch.tgt_in_T.tolist() == [BOS, 7, BOS, 9, 10, *[PAD] * 3]
    assert batch.labels_T.tolist() == [7, EOS, 9, 10, EOS, *[PAD] * 3]
    assert batch.tgt_bounds_E.tolist() == [0, 2, 5, 7, 8]
    assert batch.label_weight_T.tolist() == [1] * 5 + [0] * 3
    assert (batch.tokens, batch.pair_ids) == (5, (3, 1))
    without_eos = pack([([5, 6], [7]), ([8], [9, 10])], shape, source_eos=False)
    assert without_eos.src_S.tolist() == [5, 6, 8, *[PAD] * 6]
