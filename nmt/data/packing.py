"""Packed batches: sentences side by side in a fixed number of slots, instead of rows with padding.

All batches of a run have one shape, so that a GPU can replay an update as a CUDA graph, and nearly
every position is a token. Attention keeps the sentences apart by the boundaries of their segments
(`nmt.model.segment_attention`). The slots that remain are filled with segments of padding, whose
loss has weight 0. A segment of padding is not empty on either side, because an attention without
keys is NaN.

Shape suffixes: S source slots, T target slots, E boundaries of segments, N pairs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from nmt.data.arrays import Indices, Integers
from nmt.data.batching import Ids, TensorBatch
from nmt.text.tokenizer import BOS, EOS, PAD, encoder_input

WINDOW = 64
"""Number of pairs that wait for the next batch before a batch is complete: the last slots of a
batch are filled by the pairs that fit, and not by the next ones."""
NUM_PADDING_SEGMENTS = 64
"""Number of segments that share the padding of a batch: attention to one long segment would take
longer."""
SLOT_MULTIPLE = 64
"""The numbers of slots are multiples of this, for matrix products."""


@dataclass(frozen=True)
class PackShape:
    """The shape of all batches of a run."""

    source_slots: int
    target_slots: int
    num_segments: int
    """Maximum number of pairs of a batch, and of its segments of padding."""
    max_length: int
    """Maximum number of tokens of a segment."""

    @classmethod
    def of(cls, tokens_N2: Integers, target_slots: int, max_length: int) -> PackShape:
        """Return the shape for pairs of these numbers of source and target tokens, including EOS,
        so that both sides are filled at about the same time."""
        source_N, target_N = tokens_N2.T
        ratio = source_N.sum() / target_N.sum()
        num_pairs = target_slots / target_N.mean()
        # The sum over a batch deviates by the square root of the number of its pairs.
        root = math.sqrt(num_pairs)
        excess_N = source_N - ratio * target_N
        deviation = excess_N.std() * root
        source_slots = math.ceil(ratio * target_slots + deviation)
        # The longest source fits beside the shortest target, and the other way round.
        num_padding = 1 + _min_segments(source_slots, target_slots, max_length)
        smallest = max_length + num_padding
        source_slots = _rounded_up(max(source_slots, smallest))
        target_slots = _rounded_up(max(target_slots, smallest))
        # Nearly all batches have fewer pairs.
        deviation = target_N.std() / target_N.mean() * root
        num_segments = math.ceil(num_pairs + 6 * deviation)
        num_segments += max(NUM_PADDING_SEGMENTS, num_padding)
        return cls(source_slots, target_slots, num_segments, max_length)

    @property
    def max_pairs(self) -> int:
        """Maximum number of pairs of a batch: each side may need further segments of padding."""
        num_paddings = _min_segments(self.source_slots, self.target_slots, self.max_length)
        return self.num_segments - num_paddings

    def is_paddable(self, source_slots: int, target_slots: int) -> bool:
        """Return whether segments of padding can fill the remaining slots: each takes at least one
        and at most `max_length` on both sides."""
        most_segments = min(source_slots, target_slots)
        return most_segments >= _min_segments(source_slots, target_slots, self.max_length)

    def num_paddings(self, source_slots: int, target_slots: int, num_pairs: int) -> int:
        """Return the number of segments of padding that fill the remaining slots."""
        fewest = _min_segments(source_slots, target_slots, self.max_length)
        wanted = max(NUM_PADDING_SEGMENTS, fewest)
        num_places = self.num_segments - num_pairs
        return min(wanted, source_slots, target_slots, num_places)


def _min_segments(source_slots: int, target_slots: int, max_length: int) -> int:
    """Return the minimum number of segments that fill some slots of both sides."""
    largest = max(source_slots, target_slots)
    return max(1, math.ceil(largest / max_length))


def _rounded_up(slots: int) -> int:
    return SLOT_MULTIPLE * math.ceil(slots / SLOT_MULTIPLE)


@dataclass(frozen=True)
class PackedBatch(TensorBatch):
    """Packed token ids of a batch; all batches have the same shapes. As in `Batch`, the decoder
    input is <s> y, and the labels are y </s>."""

    src_S: Tensor
    src_position_S: Tensor
    """Position of each token in its sentence."""
    src_bounds_E: Tensor
    """Where the segments begin and end, in int32; empty segments follow the last one."""
    tgt_in_T: Tensor
    tgt_position_T: Tensor
    tgt_bounds_E: Tensor
    labels_T: Tensor
    label_weight_T: Tensor
    """1 for tokens, 0 for padding."""
    max_length: int
    """Maximum length of a segment, the same for all batches."""
    tokens: int
    """Number of target tokens including EOS, without padding."""
    pair_ids: tuple[int, ...] = ()
    """Indices of the pairs in the store, for error messages."""


def plan_packed_batches(
    tokens_N2: Integers, shape: PackShape, key: tuple[int, ...]
) -> list[Indices]:
    """Return the indices of the pairs of each batch: a pure function of the arguments.

    Pairs are shuffled and taken in this order. A pair that does not fit waits for the next batch;
    a batch is complete when `WINDOW` pairs wait.

    Args:
        tokens_N2: numbers of source and target tokens of every pair, including EOS; at most
            `shape.max_length`.
        shape: the shape of the batches.
        key: numbers that determine the order.
    """
    rng = np.random.default_rng(key)
    order = rng.permutation(len(tokens_N2))
    planner = _Planner(tokens_N2[order], shape)
    return [order[places] for places in planner.batches()]


class _Planner:
    """Fills batches with pairs in their order."""

    def __init__(self, tokens_N2: Integers, shape: PackShape) -> None:
        self.shape = shape
        self.tokens_N2 = tokens_N2
        self.ends_N2 = tokens_N2.cumsum(axis=0, dtype=np.int64)

    def batches(self) -> list[Indices]:
        """Return the places of the pairs of each batch."""
        batches: list[Indices] = []
        waiting: list[int] = []
        place = 0
        num_pairs = len(self.tokens_N2)
        while place < num_pairs or waiting:
            batch = _OpenBatch(self.shape)
            waiting = self._add(batch, waiting)
            # The next pairs fit without a look at each of them, but for the last few.
            end = self._end_of_certain(batch, place)
            taken = np.arange(place, end)
            batch.add_all(taken, self.tokens_N2[place:end])
            place = end
            while place < num_pairs and len(waiting) < WINDOW:
                waiting += self._add(batch, [place])
                place += 1
            batches.append(np.array(batch.places))
        return batches

    def _add(self, batch: _OpenBatch, places: list[int]) -> list[int]:
        """Add the pairs that fit, and return the others."""
        waiting = []
        for place in places:
            source_tokens, target_tokens = self.tokens_N2[place].tolist()
            if not batch.add(place, source_tokens, target_tokens):
                waiting.append(place)
        return waiting

    def _end_of_certain(self, batch: _OpenBatch, place: int) -> int:
        """Return the end of the pairs that fit with `max_length` slots left on both sides, or more
        where padding needs them."""
        shape = self.shape
        num_paddings = shape.num_segments - shape.max_pairs
        margin = shape.max_length + num_paddings
        num_places = shape.max_pairs - len(batch.places)
        end = place + num_places
        for side, slots in enumerate((batch.source_slots, batch.target_slots)):
            end_of_side = self._end_within(place, side, slots - margin)
            end = min(end, end_of_side)
        return max(place, end)

    def _end_within(self, place: int, side: int, slots: int) -> int:
        """Return the end of the pairs from a place on that take at most some slots of a side."""
        ends_N = self.ends_N2[:, side]
        limit = slots
        if place:
            limit += ends_N[place - 1]
        end = np.searchsorted(ends_N, limit, side="right")
        return int(end)


class _OpenBatch:
    """A batch that is being filled, and its remaining slots."""

    def __init__(self, shape: PackShape) -> None:
        self.shape = shape
        self.source_slots = shape.source_slots
        self.target_slots = shape.target_slots
        self.places: list[int] = []

    def add(self, place: int, source_tokens: int, target_tokens: int) -> bool:
        """Add a pair; return whether it fits."""
        source_slots = self.source_slots - source_tokens
        target_slots = self.target_slots - target_tokens
        if len(self.places) >= self.shape.max_pairs:
            return False
        if not self.shape.is_paddable(source_slots, target_slots):
            return False
        self.source_slots = source_slots
        self.target_slots = target_slots
        self.places.append(place)
        return True

    def add_all(self, places: Indices, tokens_N2: Integers) -> None:
        """Add pairs that fit."""
        totals = tokens_N2.sum(axis=0)
        source_tokens, target_tokens = totals.tolist()
        self.source_slots -= source_tokens
        self.target_slots -= target_tokens
        self.places += places.tolist()


def pack(
    pairs: Sequence[tuple[Ids, Ids]],
    shape: PackShape,
    pair_ids: Sequence[int] = (),
    *,
    source_eos: bool = True,
) -> PackedBatch:
    """Return the tensors of a batch that `plan_packed_batches` has planned; with `source_eos`,
    sources end with </s>."""
    sources: Sequence[Ids]
    sources, targets = zip(*pairs, strict=True)
    if not source_eos:
        sources = [encoder_input(source, source_eos) for source in sources]
    src_lengths = _lengths(sources) + source_eos
    tgt_lengths = _lengths(targets) + 1
    tokens = int(tgt_lengths.sum())
    src_rest = shape.source_slots - int(src_lengths.sum())
    tgt_rest = shape.target_slots - tokens
    num_paddings = shape.num_paddings(src_rest, tgt_rest, len(pairs))
    src_position, src_bounds = _places(src_lengths, _divide(src_rest, num_paddings), shape)
    tgt_position, tgt_bounds = _places(tgt_lengths, _divide(tgt_rest, num_paddings), shape)
    return PackedBatch(
        src_S=_in_slots(sources, shape.source_slots, after=EOS if source_eos else None),
        src_position_S=src_position,
        src_bounds_E=src_bounds,
        tgt_in_T=_in_slots(targets, shape.target_slots, before=BOS),
        tgt_position_T=tgt_position,
        tgt_bounds_E=tgt_bounds,
        labels_T=_in_slots(targets, shape.target_slots, after=EOS),
        label_weight_T=_leading_ones(tokens, shape.target_slots),
        max_length=shape.max_length,
        tokens=tokens,
        pair_ids=tuple(pair_ids),
    )


def _lengths(rows: Sequence[Ids]) -> Integers:
    return np.fromiter(map(len, rows), np.int64, len(rows))


def _leading_ones(count: int, slots: int) -> Tensor:
    ones = np.zeros(slots, np.float32)
    ones[:count] = 1
    return torch.from_numpy(ones)


def _divide(slots: int, parts: int) -> Integers:
    """Divide slots into parts whose sizes differ by at most one."""
    sizes = np.full(parts, slots // parts)
    sizes[: slots % parts] += 1
    return sizes


def _in_slots(
    rows: Sequence[Ids], slots: int, *, before: int | None = None, after: int | None = None
) -> Tensor:
    """Join rows, with an id before or after each of them, and pad them to a number of slots."""
    num_special = int(before is not None)
    num_special += int(after is not None)
    lengths = _lengths(rows) + num_special
    ends = np.cumsum(lengths)
    ids = np.full(slots, PAD, np.int64)
    is_token = np.arange(slots) < ends[-1]
    if before is not None:
        starts = np.concatenate(([0], ends[:-1]))
        ids[starts] = before
        is_token[starts] = False
    if after is not None:
        ids[ends - 1] = after
        is_token[ends - 1] = False
    ids[is_token] = np.concatenate(rows, dtype=np.int64, casting="unsafe")
    return torch.from_numpy(ids)


def _places(lengths: Integers, paddings: Integers, shape: PackShape) -> tuple[Tensor, Tensor]:
    """Return the position of each slot in its segment, and the boundaries of the segments: those of
    sentences, of padding, and empty ones."""
    lengths = np.concatenate((lengths, paddings))
    ends = np.cumsum(lengths)
    first_slot = np.repeat(ends - lengths, lengths)
    positions = np.arange(ends[-1]) - first_slot
    bounds_E = np.full(shape.num_segments + 1, ends[-1], np.int32)
    bounds_E[0] = 0
    bounds_E[1 : len(ends) + 1] = ends
    return torch.from_numpy(positions), torch.from_numpy(bounds_E)


@dataclass(frozen=True)
class PackedBatching:
    """How pairs become packed batches."""

    shape: PackShape
    source_eos: bool

    @classmethod
    def of(
        cls, lengths_N2: Integers, batch_tokens: int, max_length: int, source_eos: bool
    ) -> PackedBatching:
        """Choose the shape for pairs of these lengths, without BOS and EOS."""
        tokens_N2 = _with_ends(lengths_N2, source_eos)
        return cls(PackShape.of(tokens_N2, batch_tokens, max_length), source_eos)

    def plan(self, lengths_N2: Integers, key: tuple[int, ...]) -> list[Indices]:
        """Return the indices of the pairs of each batch; see `plan_packed_batches`."""
        tokens_N2 = _with_ends(lengths_N2, self.source_eos)
        return plan_packed_batches(tokens_N2, self.shape, key)

    def make(self, pairs: Sequence[tuple[Ids, Ids]], pair_ids: Sequence[int]) -> PackedBatch:
        """Return the tensors of a batch."""
        return pack(pairs, self.shape, pair_ids, source_eos=self.source_eos)

    def num_positions(self, batches: Sequence[Indices], lengths_N2: Integers) -> int:
        """Return the number of target slots of batches."""
        return len(batches) * self.shape.target_slots

    def worst_case(self, batches: Sequence[Indices], lengths_N2: Integers) -> list[Indices]:
        """Return any batch: all need the same memory."""
        return [batches[0]]


def _with_ends(lengths_N2: Integers, source_eos: bool) -> Integers:
    """Return the numbers of tokens that are read, with EOS where there is one."""
    source_N, target_N = lengths_N2.T
    source_N = np.maximum(source_N + source_eos, 1)
    target_N = target_N + 1
    return np.stack((source_N, target_N), axis=1)
