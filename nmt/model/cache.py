"""The KV cache of decoder self-attention.

Shape suffixes: T target tokens so far, P reserved positions, R rows, G key-value heads, K head
dimension.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

BLOCK = 32
"""Number of positions by which the cache grows, a power of 2. Blocks avoid most copies without
reserving the maximum length."""


class KVCache:
    """Keys and values of the target so far, in all layers.

    Time is the first axis, so the filled part of a layer is contiguous. The cache is for search
    only: no gradient flows through it.

    In a CUDA graph, all shapes are fixed: `append` returns all reserved positions, and
    `is_filled_P` is the mask. Graphs that reorder rows write them into the other one of two
    buffers, which take turns, so that nothing is copied back.
    """

    def __init__(self) -> None:
        self.length = 0
        self.position_1: Tensor | None = None
        """Position of the next token, in the memory of the GPU; None outside of CUDA graphs."""
        self._layers: list[Tensor] = []  # [P, 2, R, G, K]
        self._other_layers: list[Tensor] = []
        """The buffers that the next graph reorders rows into."""

    @property
    def position(self) -> int | Tensor:
        """Position of the next token."""
        if self.position_1 is None:
            return self.length
        return self.position_1

    @property
    def capacity(self) -> int:
        """Number of reserved positions."""
        return len(self._layers[0]) if self._layers else 0

    @property
    def device(self) -> torch.device:
        """The device of the keys and values."""
        return self._layers[0].device

    @property
    def is_filled_P(self) -> Tensor:
        """Whether a reserved position is at most that of the next token."""
        assert self.position_1 is not None
        index_P = torch.arange(self.capacity, device=self.position_1.device)
        return index_P <= self.position_1

    def fix_shapes(self, *, reorders: bool = False) -> None:
        """Prepare for CUDA graphs, in which the next tokens have the positions of this block;
        `reorders`: whether they reorder rows."""
        if self.position_1 is not None:
            return
        if reorders:
            self._other_layers = [torch.empty_like(cached) for cached in self._layers]
        for cached in self._layers:
            cached[self.length :] = 0  # masked values must be finite
        self.position_1 = torch.full((1,), self.length, device=self.device)

    def append(self, layer: int, kv_RT2GK: Tensor) -> Tensor:
        """Append keys and values of new positions and return all of this layer, [T, 2, R, G, K]."""
        kv_T2RGK = kv_RT2GK.permute(1, 2, 0, 3, 4)
        if self.position_1 is not None:
            return self._layers[layer].index_copy_(0, self.position_1, kv_T2RGK)
        sizes = kv_T2RGK.shape[1:]
        if layer == len(self._layers):
            self._layers.append(kv_T2RGK.new_empty(0, *sizes))
        cached = self._layers[layer]
        end = self.length + len(kv_T2RGK)
        if end > len(cached):
            # Reserve complete blocks, and copy what is cached.
            num_blocks = math.ceil(end / BLOCK)
            buffer = cached.new_empty(num_blocks * BLOCK, *sizes)
            buffer[: self.length] = cached[: self.length]
            self._layers[layer] = cached = buffer
        cached[self.length : end] = kv_T2RGK
        return cached[:end]

    def advance(self, positions: int) -> None:
        """Increase the length by the number of positions that every layer has appended."""
        if self.position_1 is not None:
            self.position_1 += positions
        self.length += positions

    def reorder(self, rows_R: Tensor) -> None:
        """Keep the rows `rows_R`, in that order.

        For CUDA graphs, the filled positions are reordered in place between two graphs, or in
        graphs all positions, into the other buffer.
        """
        if self._other_layers:
            for cached, other in zip(self._layers, self._other_layers, strict=True):
                torch.index_select(cached, 2, rows_R, out=other)
            self.swap()
            return
        for layer, cached in enumerate(self._layers):
            filled = cached[: self.length]
            if self.position_1 is not None:
                cached[: self.length] = filled.index_select(2, rows_R)
                continue
            capacity, _, _, heads, head_dim = cached.shape
            kept = cached.new_empty(capacity, 2, len(rows_R), heads, head_dim)
            torch.index_select(filled, 2, rows_R, out=kept[: self.length])
            self._layers[layer] = kept

    @contextmanager
    def unchanged(self) -> Iterator[None]:
        """Undo what a CUDA graph that is recorded, but not run, changes here."""
        state = self.length, self._layers, self._other_layers
        try:
            yield
        finally:
            self.length, self._layers, self._other_layers = state

    def swap(self) -> None:
        """Exchange the buffers, as a graph that reorders rows does."""
        self._layers, self._other_layers = self._other_layers, self._layers

    def unfix_shapes(self) -> None:
        """Let the cache grow again, after CUDA graphs."""
        self.position_1 = None
        self._other_layers = []
