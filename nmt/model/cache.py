"""The KV cache of a decoder's self-attention.

Shape letters: T target tokens so far, R rows, G heads of keys and values, K head width.
"""

from __future__ import annotations

import torch
from torch import Tensor

BLOCK = 32
"""Positions by which the cache grows: few copies without reserving the longest possible output."""


class KVCache:
    """Keys and values of the target so far, in all layers.

    Time comes first: what is filled of a layer is one block of memory. It is for search: no gradient goes through it.
    """

    def __init__(self, layers: int) -> None:
        self.length = 0
        self._layers: list[Tensor | None] = [None] * layers  # [positions reserved, 2, R, G, K]

    def append(self, layer: int, kv_RT2GK: Tensor) -> Tensor:
        """Put keys and values of new positions behind the others and return all of this layer, [T, 2, R, G, K]."""
        rows, new, _, heads, width = kv_RT2GK.shape
        end, cached = self.length + new, self._layers[layer]
        if cached is None or end > len(cached):
            longer = kv_RT2GK.new_empty(-(-end // BLOCK) * BLOCK, 2, rows, heads, width)
            if cached is not None:
                longer[: self.length] = cached[: self.length]
            self._layers[layer] = cached = longer
        cached[self.length : end].copy_(kv_RT2GK.permute(1, 2, 0, 3, 4))
        return cached[:end]

    def advance(self, positions: int) -> None:
        """Count positions that every layer has appended."""
        self.length += positions

    def select(self, rows_R: Tensor) -> None:
        """Keep `rows_R` of the present rows, in that order."""
        for layer, cached in enumerate(self._layers):
            if cached is not None:
                kept = cached.new_empty(*cached.shape[:2], len(rows_R), *cached.shape[3:])
                torch.index_select(cached[: self.length], 2, rows_R, out=kept[: self.length])
                self._layers[layer] = kept
