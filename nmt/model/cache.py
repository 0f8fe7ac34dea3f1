"""The KV cache of decoder self-attention.

Shape suffixes: T target tokens so far, P reserved positions, R rows, G key-value heads, K head
dimension.
"""

from __future__ import annotations

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
    `is_filled_P` is the mask.
    """

    def __init__(self, num_layers: int) -> None:
        self.length = 0
        self.position_1: Tensor | None = None
        """Position of the next token, in the memory of the GPU; None outside of CUDA graphs."""
        self._layers: list[Tensor | None] = [None] * num_layers  # [P, 2, R, G, K]

    @property
    def position(self) -> int | Tensor:
        """Position of the next token."""
        return self.length if self.position_1 is None else self.position_1

    @property
    def capacity(self) -> int:
        """Number of reserved positions."""
        return 0 if self._layers[0] is None else len(self._layers[0])

    @property
    def is_filled_P(self) -> Tensor:
        """Whether a reserved position is at most that of the next token."""
        assert self.position_1 is not None
        return torch.arange(self.capacity, device=self.position_1.device) <= self.position_1

    def fix_shapes(self) -> None:
        """Prepare for a CUDA graph, in which the next tokens have the positions of this block."""
        for cached in self._layers:
            assert cached is not None
            cached[self.length :] = 0  # masked values must be finite
            device = cached.device
        self.position_1 = torch.full((1,), self.length, device=device)

    def append(self, layer: int, kv_RT2GK: Tensor) -> Tensor:
        """Append keys and values of new positions and return all of this layer, [T, 2, R, G, K]."""
        rows, new, _, heads, head_dim = kv_RT2GK.shape
        end, cached = self.length + new, self._layers[layer]
        if self.position_1 is not None:
            assert cached is not None
            return cached.index_copy_(0, self.position_1, kv_RT2GK.permute(1, 2, 0, 3, 4))
        if cached is None or end > len(cached):
            buffer = kv_RT2GK.new_empty(-(-end // BLOCK) * BLOCK, 2, rows, heads, head_dim)
            if cached is not None:
                buffer[: self.length] = cached[: self.length]
            self._layers[layer] = cached = buffer
        cached[self.length : end].copy_(kv_RT2GK.permute(1, 2, 0, 3, 4))
        return cached[:end]

    def advance(self, positions: int) -> None:
        """Increase the length by the number of positions that every layer has appended."""
        if self.position_1 is not None:
            self.position_1 += positions
        self.length += positions

    def reorder(self, rows_R: Tensor) -> None:
        """Keep the rows `rows_R`, in that order; for a CUDA graph, without moving the others."""
        for layer, cached in enumerate(self._layers):
            if cached is not None and self.position_1 is not None:
                cached[: self.length] = cached[: self.length].index_select(2, rows_R)
            elif cached is not None:
                kept = cached.new_empty(*cached.shape[:2], len(rows_R), *cached.shape[3:])
                torch.index_select(cached[: self.length], 2, rows_R, out=kept[: self.length])
                self._layers[layer] = kept
