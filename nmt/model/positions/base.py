"""What every positional encoding can do, and the one that does nothing.

Shape letters: B sentences, T tokens, D width, H heads, K head width, Q queries, S keys, L layers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Stack:
    """The stack of layers that an encoding is for: the encoder's or the decoder's."""

    dim: int
    heads: int
    layers: int
    causal: bool = False
    """Whether no token sees those after it: the decoder's stack."""


@dataclass(frozen=True)
class Table:
    """What there is to see of an encoding: a vector for each position or distance, or a number for each head."""

    rows_M: Tensor
    """The positions, counted from 0, or the distances i - j."""
    values_MC: Tensor
    by: Literal["position", "distance"]
    column: Literal["channel", "head"]


class Positions(nn.Module):
    """No positions: without a look-ahead mask, the order of the tokens then makes no difference.

    Each encoding overrides the hooks it needs. Positions count from 0. Queries stand at `start`, `start` + 1, ..., keys
    at 0, 1, ...; `score` and `value` must depend on distances only, so that a restricted attention can cut out parts.
    """

    terms = 1
    """How many products make a score; scores are divided by √(terms·K)."""
    rotates = False
    """Whether `rotate` does anything."""
    weighs_values = False
    """Whether `value` does anything."""
    every_layer = False
    """Whether `embed` does anything behind the embeddings."""
    most: int | None = None
    """Positions that there are; None: as many as one likes."""

    def __init__(self, stack: Stack) -> None:
        super().__init__()
        self.stack = stack

    @property
    def in_attention(self) -> bool:
        """Whether queries, keys, scores or values depend on positions."""
        kind = type(self)
        return self.rotates or kind.score is not Positions.score or kind.value is not Positions.value

    def embed(self, x_BTD: Tensor, layer: int, start: int) -> Tensor:
        """Return what a layer reads; layer 0 reads the embeddings."""
        return x_BTD

    def rotate(self, x_BTHK: Tensor, start: int) -> Tensor:
        """Return queries or keys, turned by their positions."""
        return x_BTHK

    def score(self, q_BHQK: Tensor, k_BHSK: Tensor, layer: int, start: int) -> Tensor | None:
        """Return what is added to the scores, [B or 1, H, Q, S]; the queries are divided by √(terms·K) already."""
        return None

    def value(self, weights_BHQS: Tensor, layer: int, start: int) -> Tensor | None:
        """Return what is added to the gathered values, [B, H, Q, K]."""
        return None

    def table(self, length: int, layer: int) -> Table | None:
        """Return what there is to see of the first `length` positions in a layer; None: nothing."""
        if type(self).embed is Positions.embed:
            return None
        device = next((parameter.device for parameter in self.parameters()), None)
        added_BTD = self.embed(
            torch.zeros(1, length, self.stack.dim, device=device), layer if self.every_layer else 0, 0
        )
        return Table(torch.arange(length), added_BTD[0], "position", "channel")

    def all_distances(self, length: int) -> Tensor:
        """Return the distances that there are between `length` positions, the least first."""
        return torch.arange(0 if self.stack.causal else 1 - length, length)


class Place(NamedTuple):
    """Where an attention stands: an encoding, the layer's number, and the first query's position."""

    positions: Positions
    layer: int
    start: int

    def embed(self, x_BTD: Tensor) -> Tensor:
        """Return what the layer reads; what the first one reads, the embeddings, has its positions already."""
        return self.positions.embed(x_BTD, self.layer, self.start) if self.layer else x_BTD

    def rotate(self, x_BTHK: Tensor) -> Tensor:
        """Return queries or keys, turned by their positions."""
        return self.positions.rotate(x_BTHK, self.start)

    def score(self, q_BHQK: Tensor, k_BHSK: Tensor) -> Tensor | None:
        """Return what is added to the scores."""
        return self.positions.score(q_BHQK, k_BHSK, self.layer, self.start)

    def value(self, weights_BHQS: Tensor) -> Tensor | None:
        """Return what is added to the gathered values."""
        return self.positions.value(weights_BHQS, self.layer, self.start)


class Rows:
    """Rows 0, 1, ... of a table that is made anew, twice as long, when more are asked for.

    It is no buffer: a formula's results belong into no checkpoint.
    """

    def __init__(self, make: Callable[[int], Tensor], length: int = 512) -> None:
        self.make = make
        with torch.device("cpu"):  # also where a model without data is made: there this would load torch's compiler
            self.table = make(length)

    def take(self, start: int, end: int, like: Tensor) -> Tensor:
        """Return rows start .. end-1, of the type and on the device of `like`."""
        table = self.table  # other threads may put a longer one in its place
        with torch.inference_mode(False):  # what a validation makes is used by the training behind it
            if end > len(table):
                table = self.make(2 * end)
            if table.device != like.device:
                table = table.to(like.device)
        self.table = table
        return table[start:end].to(like.dtype)


def distances(queries: int, keys: int, start: int, device: torch.device) -> Tensor:
    """Return i - j for queries i = start, start+1, ... and keys j = 0, 1, ...: [Q, S]."""
    i_Q = torch.arange(start, start + queries, device=device)
    return i_Q[:, None] - torch.arange(keys, device=device)
