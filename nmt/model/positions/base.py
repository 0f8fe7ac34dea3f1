"""The base class of all position encodings, which is also the encoding without positions.

Shape suffixes: B sentences, T tokens, D model dimension, H heads, K head dimension, Q queries, S
keys, L layers, M positions or distances, C dimensions or heads.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from nmt.core.errors import ConfigError

_LOCK = threading.Lock()
Position = int | Tensor
"""A position, or those of all tokens, [T]. In a CUDA graph, whose arguments cannot change, they are
in the memory of the GPU."""


@dataclass(frozen=True)
class StackSpec:
    """The stack of layers that uses an encoding: the encoder or the decoder."""

    dim: int
    heads: int
    layers: int
    causal: bool = False
    """Whether tokens attend only to themselves and earlier tokens, as in the decoder."""

    @property
    def head_dim(self) -> int:
        """Dimension of a head."""
        return self.dim // self.heads


@dataclass(frozen=True)
class EncodingTable:
    """The values of an encoding: a vector per position or distance, or a number per head."""

    rows_M: Tensor
    """The positions, starting at 0, or the distances i - j."""
    values_MC: Tensor
    by: Literal["position", "distance"]
    column: Literal["dimension", "head"]


class PositionEncoding(nn.Module):
    """No positions: without a causal mask, the model ignores the order of its tokens.

    Each encoding overrides the hooks it needs. Positions count from 0. Queries are at `start`,
    `start` + 1, ..., keys at 0, 1, ...; `attention_bias` and `value_bias` must depend on distances
    only, because windowed attention evaluates them for parts of the sequence. `start` is a tensor
    in a CUDA graph of a search, [1], where there is one query, and where sentences are packed, with
    the position of each token, [T].
    """

    num_score_terms = 1
    """Number of products that add up to a score; scores are divided by √(num_score_terms·K)."""
    rotates = False
    """Whether `rotate` changes its input."""
    has_value_bias = False
    """Whether `value_bias` returns a tensor."""
    supports_graphs = True
    """Whether `start` may be a tensor."""
    adds_at_every_layer = False
    """Whether `add_positions` changes the input of layers after the first."""
    max_positions: int | None = None
    """Number of positions; None: unlimited."""
    column: Literal["dimension", "head"] = "dimension"
    """What `values_by_distance` returns for a distance: a vector, or a number per head."""

    def __init__(self, stack: StackSpec) -> None:
        super().__init__()
        self.stack = stack

    @property
    def has_attention_bias(self) -> bool:
        """Whether `attention_bias` returns a tensor."""
        return type(self).attention_bias is not PositionEncoding.attention_bias

    @property
    def is_relative(self) -> bool:
        """Whether only self-attention reads the encoding."""
        return self.rotates or self.has_attention_bias or self.has_value_bias

    @property
    def supports_packing(self) -> bool:
        """Whether sentences may be side by side: only hooks that see one position at a time
        exist."""
        is_relative = self.has_attention_bias or self.has_value_bias
        return not is_relative and not self.adds_at_every_layer

    def reserve(self, length: int, device: torch.device) -> None:
        """Compute what the first `length` positions need on a device; later calls may then have
        tensors as `start`."""

    def add_positions(self, x_BTD: Tensor, layer: int, start: Position) -> Tensor:
        """Return the input of a layer, with positions added; the input of layer 0 are the
        embeddings."""
        return x_BTD

    def rotate(self, x_BTHK: Tensor, start: Position) -> Tensor:
        """Return queries or keys rotated by their positions."""
        return x_BTHK

    def attention_bias(
        self, q_BHQK: Tensor, k_BHSK: Tensor, layer: int, start: Position
    ) -> Tensor | None:
        """Return the term to add to the scores, [B or 1, H, Q, S]; the queries are already
        scaled."""
        return None

    def value_bias(self, weights_BHQS: Tensor, layer: int, start: Position) -> Tensor | None:
        """Return the term to add to the weighted sums of the values, [B, H, Q, K]."""
        return None

    def values_by_distance(self, distance_M: Tensor, layer: int) -> Tensor | None:
        """Return what encodes each distance in a layer, for plots, [M, C]; None: not relative."""
        return None

    def table(self, length: int, layer: int) -> EncodingTable | None:
        """Return the values of the first `length` positions in a layer, for plots; None: there are
        none."""
        distance_M = torch.arange(0 if self.stack.causal else 1 - length, length)
        values_MC = self.values_by_distance(distance_M, layer)
        if values_MC is not None:
            return EncodingTable(distance_M, values_MC, "distance", self.column)
        if type(self).add_positions is PositionEncoding.add_positions:
            return None
        device = next((parameter.device for parameter in self.parameters()), None)
        zeros_BTD = torch.zeros(1, length, self.stack.dim, device=device)
        added_BTD = self.add_positions(zeros_BTD, layer if self.adds_at_every_layer else 0, 0)
        return EncodingTable(torch.arange(length), added_BTD[0], "position", "dimension")


class PositionInput(NamedTuple):
    """The position arguments of an attention: the encoding, the index of the layer, and the first
    query's position."""

    encoding: PositionEncoding
    layer: int
    start: Position

    def add_positions(self, x_BTD: Tensor) -> Tensor:
        """Return the input of the layer, with positions added; the input of layer 0 already has
        them."""
        return self.encoding.add_positions(x_BTD, self.layer, self.start) if self.layer else x_BTD

    def rotate(self, x_BTHK: Tensor) -> Tensor:
        """Return queries or keys rotated by their positions."""
        return self.encoding.rotate(x_BTHK, self.start)

    def attention_bias(self, q_BHQK: Tensor, k_BHSK: Tensor) -> Tensor | None:
        """Return the term to add to the scores."""
        return self.encoding.attention_bias(q_BHQK, k_BHSK, self.layer, self.start)

    def value_bias(self, weights_BHQS: Tensor) -> Tensor | None:
        """Return the term to add to the weighted sums of the values."""
        return self.encoding.value_bias(weights_BHQS, self.layer, self.start)


class GrowingTable:
    """The rows 0, 1, ... of a computed table, which is recomputed at twice its length when more
    rows are needed, and moves to the device where they are needed.

    It is not a registered buffer, because checkpoints should not contain computed values, and a
    module in a lower precision should not round them.
    """

    def __init__(self, compute: Callable[[int], Tensor], length: int = 512) -> None:
        self.compute = compute
        self._replaced: list[Tensor] = []
        # Only the shapes of weights matter there, and a wide table would take gigabytes.
        if torch.get_default_device().type == "meta":
            length = 0
        # Inside `torch.device("meta")`, computing would import torch's compiler.
        with torch.device("cpu"):
            self.table = compute(length)

    def rows(self, start: Position, count: int, like: Tensor) -> Tensor:
        """Return rows start .. start+count-1, in the dtype and on the device of `like`.

        If `start` is a tensor, an earlier call must have reserved its rows: in a search, one for
        the same block of the KV cache, because the length is a multiple of that of a block.
        """
        table = self.table  # other threads may replace it
        if not isinstance(start, Tensor):
            table = self.reserve(start + count, like.device)
        return rows(table, start, count).to(like.dtype)

    def reserve(self, length: int, device: torch.device) -> Tensor:
        """Return the table with at least `length` rows on a device."""
        table = self.table
        if length > len(table) or table.device != device:
            table = self._replace(length, device)
        return table

    def _replace(self, length: int, device: torch.device) -> Tensor:
        """Return a table on `device` of at least `length` rows."""
        # Compilers do not support locks.
        lock = nullcontext() if torch.compiler.is_compiling() else _LOCK
        # Training must be able to use a table that validation has computed.
        with lock, torch.inference_mode(False):
            table = self.table
            self._replaced.append(table)  # CUDA graphs of other threads may read it
            if length > len(table):
                table = self.compute(2 ** length.bit_length())
            self.table = table.to(device)
            return self.table


def rows(table: Tensor, start: Position, count: int) -> Tensor:
    """Return rows start .. start+count-1 of a table, or those in a tensor `start`."""
    if isinstance(start, Tensor):
        return table.index_select(0, start)
    return table[start : start + count]


def distances(num_queries: int, num_keys: int, start: Position, device: torch.device) -> Tensor:
    """Return i - j for queries i = start, start+1, ... and keys j = 0, 1, ...: [Q, S]."""
    i_Q = start + torch.arange(num_queries, device=device)
    return i_Q[:, None] - torch.arange(num_keys, device=device)


def check_even_dim(name: str, dim: int) -> None:
    """Raise a ConfigError if the model dimension is odd; sinusoids come in pairs of sine and
    cosine."""
    if dim % 2:
        raise ConfigError(
            f"position encoding '{name}' requires an even model.dim, got {dim}",
            f"model.dim={dim + 1}",
        )
