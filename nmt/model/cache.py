"""The KV cache of decoder self-attention.

Shape suffixes: T target tokens so far, R rows, G key-value heads, K head dimension.
"""

from __future__ import annotations

import torch
from torch import Tensor

BLOCK = 32
"""Number of positions by which the cache grows. Blocks avoid most copies without reserving the maximum length."""


class KVCache:
    """Keys and values of the target so far, in all layers.

    Time is the first axis, so the filled part of a layer is contiguous. The cache is for search only: no gradient flows
    through it.
    """

    def __init__(self, num_layers: int) -> None:
        self.length = 0
        self._layers: list[Tensor | None] = [None] * num_layers  # [reserved positions, 2, R, G, K]

    def append(self, layer: int, kv_RT2GK: Tensor) -> Tensor:
        """Append keys and values of new positions and return all of this layer, [T, 2, R, G, K]."""
        rows, new, _, heads, head_dim = kv_RT2GK.shape
        end, cached = self.length + new, self._layers[layer]
        if cached is None or end > len(cached):
            buffer = kv_RT2GK.new_empty(-(-end // BLOCK) * BLOCK, 2, rows, heads, head_dim)
            if cached is not None:
                buffer[: self.length] = cached[: self.length]
            self._layers[layer] = cached = buffer
        cached[self.length : end].copy_(kv_RT2GK.permute(1, 2, 0, 3, 4))
        return cached[:end]

    def advance(self, positions: int) -> None:
        """Increase the length by the number of positions that every layer has appended."""
        self.length += positions

    def reorder(self, rows_R: Tensor) -> None:
        """Keep the rows `rows_R`, in that order."""
        for layer, cached in enumerate(self._layers):
            if cached is not None:
                kept = cached.new_empty(*cached.shape[:2], len(rows_R), *cached.shape[3:])
                torch.index_select(cached[: self.length], 2, rows_R, out=kept[: self.length])
                self._layers[layer] = kept
