"""What a decoder remembers between steps.

Shape letters: B sentences, S source tokens, T target tokens so far, R rows (R = B times the beams of each), H heads, K
head width.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import torch
from torch import Tensor

from nmt import kernels

BLOCK = 32
"""Positions by which the memory grows: few copies without reserving the longest possible output."""

SLAB = 2**21
"""Keys and values of compiled loops are put into rooms of so many numbers."""


def in_blocks(positions: int) -> int:
    """Return how many positions to reserve for so many."""
    return -(-positions // BLOCK) * BLOCK


class Memory:
    """Room for tensors that every step makes anew: each goes where one before it was.

    New memory for all of them, a little smaller each time, would leave holes that the C library does not fill, and the
    system would have to clear it first. What is here is good until the next step.
    """

    def __init__(self) -> None:
        self._rooms: dict[str, Tensor] = {}

    def room(self, name: str, like: Tensor, shape: Sequence[int]) -> Tensor:
        """Return the room of that name as an empty tensor; it is made larger where it is too small."""
        size = torch.Size(shape).numel()
        if name not in self._rooms or len(self._rooms[name]) < size:
            self._rooms.pop(name, None)  # before there is another
            self._rooms[name] = like.new_empty(size)
        return self._rooms[name][:size].view(shape)

    def longer(self, name: str, x_TX: Tensor, length: int) -> Tensor:
        """Return the room of that name, which holds `x_TX`, as one that goes on to `length` at least."""
        longer_TX = self.room(name, x_TX, (in_blocks(length), *x_TX.shape[1:]))
        if longer_TX.data_ptr() != x_TX.data_ptr():
            longer_TX[: len(x_TX)] = x_TX
        return longer_TX

    def swap(self, name: str, other: str) -> None:
        """Exchange the names of two rooms, of which the first may be missing."""
        before = self._rooms.pop(name, None)
        self._rooms[name] = self._rooms.pop(other)
        if before is not None:
            self._rooms[other] = before

    def select(self, name: str, x_BX: Tensor, sentences_B: Tensor) -> Tensor:
        """Return some sentences of what this returned last under that name, or at first of any tensor."""
        chosen_BX = self.room("spare", x_BX, (len(sentences_B), *x_BX.shape[1:]))
        torch.index_select(x_BX, 0, sentences_B, out=chosen_BX)
        self.swap(name, "spare")
        return chosen_BX


class TargetCache:
    """Keys and values of the target so far, in all layers.

    Time comes first: what is filled of a layer is then one block of memory, and reordering rows copies it into another,
    with which it takes turns. It is for search: no gradient goes through it.
    """

    def __init__(self, layers: int, memory: Memory) -> None:
        """Open an empty one with its rooms in `memory`, where no other may be at the same time."""
        self.length = 0
        self._memory = memory
        self._layers: list[Tensor | None] = [None] * layers  # [positions reserved, 2, R, H, K]

    def append(self, layer: int, kv_RT2HK: Tensor) -> Tensor:
        """Put keys and values of new positions behind the others and return all of this layer, [T, 2, R, H, K]."""
        rows, new, _, heads, width = kv_RT2HK.shape
        end, name = self.length + new, f"target {layer}"
        kept = self._layers[layer]
        if kept is None:
            kept = self._memory.room(name, kv_RT2HK, (in_blocks(end), 2, rows, heads, width))
        elif end > len(kept):
            kept = self._memory.longer(name, kept[: self.length], end)
        self._layers[layer] = kept
        kept[self.length : end].copy_(kv_RT2HK.permute(1, 2, 0, 3, 4))
        return kept[:end]

    def advance(self, positions: int) -> None:
        """Count positions that every layer has appended."""
        self.length += positions

    def select(self, rows_R: Tensor) -> None:
        """Keep `rows_R` of the present rows, in that order."""
        for layer, kept in enumerate(self._layers):
            if kept is not None:
                reserved, two, _, heads, width = kept.shape
                chosen = self._memory.room("spare target", kept, (reserved, two, len(rows_R), heads, width))
                torch.index_select(kept[: self.length], 2, rows_R, out=chosen[: self.length])
                self._memory.swap(f"target {layer}", "spare target")
                self._layers[layer] = chosen


class StandingCache:
    """Keys and values of the target so far, for compiled loops: they stay where they were put.

    Reordered is but a table that says in which row of each step a row's past lies.
    """

    def __init__(self, layers: int, memory: Memory) -> None:
        """Open an empty one with its rooms in `memory`, where no other may be at the same time."""
        self.length = 0
        self._layers, self._memory = layers, memory
        self._kept_T, self._rows_T = array("q"), array("q")
        self._from_RT = torch.empty(0)
        self._slab, self._slabs = torch.empty(0), 0

    def attend(self, layer: int, qkv_R3HK: Tensor) -> Tensor:
        """Return what a new position of each row gathers of the target, itself included, [R, H, K]."""
        rows, _, heads, width = qkv_R3HK.shape
        if len(self._kept_T) == self.length:
            self._kept_T.append(self._take(self._layers * 2 * rows * heads * width, qkv_R3HK).data_ptr())
            self._rows_T.append(rows)
            own_R1 = torch.arange(rows, dtype=torch.int32)[:, None]
            self._from_RT = torch.cat((self._from_RT, own_R1), 1) if self.length else own_R1
        scratch = self._memory.room("scratch", torch.empty(0), (heads * (2 * width + kernels.filled(self.length + 1)),))
        return kernels.attend_target(layer, qkv_R3HK, self._kept_T, self._rows_T, self._from_RT, scratch)

    def _take(self, size: int, like: Tensor) -> Tensor:
        """Return room for one step, a part of a slab: a room of its own would stay as large as the largest ever was."""
        if len(self._slab) < size:
            self._slab = self._memory.room(f"target {self._slabs}", like, (max(size, SLAB),))
            self._slabs += 1
        taken, self._slab = self._slab[:size], self._slab[size:]
        return taken

    def advance(self, positions: int) -> None:
        """Count a position that every layer has attended from."""
        self.length += positions

    def select(self, rows_R: Tensor) -> None:
        """Keep `rows_R` of the present rows, in that order."""
        self._from_RT = self._from_RT[rows_R]
