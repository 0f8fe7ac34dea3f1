"""Encodings that say where a token stands, and are added to what layers read. Letters: T tokens, D width, L layers."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from nmt.errors import ConfigError, UsageError
from nmt.model.layers import Linear
from nmt.model.positions.base import Positions, Rows, Stack


class Sinusoidal(Positions):
    """Sines and cosines of geometrically spaced wavelengths, interleaved (Vaswani et al. 2017, section 3.5).

    p[k, 2i] = sin(k / 10000^(2i/D)), p[k, 2i+1] = cos(k / 10000^(2i/D)). Positions beyond any trained length are
    defined.
    """

    def __init__(self, stack: Stack) -> None:
        super().__init__(stack)
        self.rows = Rows(functools.partial(sinusoids, dim=stack.dim))

    def embed(self, x_BTD: Tensor, layer: int, start: int) -> Tensor:
        """Add the encodings of positions start .. start+T-1 to the embeddings."""
        return x_BTD if layer else x_BTD + self.rows.take(start, start + x_BTD.shape[1], x_BTD)


class ConcatenatedSinusoidal(Sinusoidal):
    """The sines of all wavelengths, then their cosines, as tensor2tensor has them.

    p[k, i] = sin(k / 10000^(2i/D)), p[k, D/2+i] = cos(k / 10000^(2i/D)): the interleaved encoding in another order.
    """

    def __init__(self, stack: Stack) -> None:
        super().__init__(stack)
        self.rows = Rows(functools.partial(concatenated_sinusoids, dim=stack.dim))


class Learned(Positions):
    """A trained vector for each of the first n positions (Gehring et al. 2017, section 3.1); there are no others.

    Raises:
        UsageError: on use, a position beyond them.
    """

    def __init__(self, stack: Stack, *, max_positions: int = 1024) -> None:
        """Make the table.

        Args:
            stack: what it is for.
            max_positions: number of positions.
        """
        super().__init__(stack)
        within("learned", max_positions=(max_positions, 1, 1_000_000))
        self.most = max_positions
        self.table_ND = nn.Parameter(torch.randn(max_positions, stack.dim) * stack.dim**-0.5)

    def embed(self, x_BTD: Tensor, layer: int, start: int) -> Tensor:
        """Add the vectors of positions start .. start+T-1 to the embeddings."""
        end = start + x_BTD.shape[1]
        if layer:
            return x_BTD
        if end > len(self.table_ND):
            raise UsageError(
                f"{end} tokens, and the model has learned {len(self.table_ND)} positions",
                f"cut the text, or train with positions that have no end, or more: learned(max_positions={end})",
            )
        return x_BTD + self.table_ND[start:end].to(x_BTD.dtype)


class Floater(Positions):
    """Positions as the path of a point whose velocity is learned (Liu et al. 2020, FLOATER, equations 4 and 9).

    p[k] = p[k-1] + ∫ h(τ, p(τ); θ) dτ, τ from k-1 to k; h is shared by all layers, each of which has a start value p[0]
    of its own and adds its p to what it reads. h is the field in which sinusoidal encodings move, where each pair of
    channels turns at its own rate, plus a network that begins at zero, and only the first layer's start is not zero; so
    training begins with sinusoidal encodings. The path is solved in a frame that turns along: what is left is slow.
    """

    every_layer = True

    def __init__(self, stack: Stack, *, hidden: int = 64, step: float = 1.0) -> None:
        """Make the network.

        Args:
            stack: what it is for.
            hidden: width of h's hidden layer.
            step: of the solver (Runge-Kutta of order 4), in positions.

        Raises:
            UsageError: torchdiffeq is not installed.
        """
        super().__init__(stack)
        within("floater", hidden=(hidden, 1, 65_536), step=(step, 1e-3, 1000))
        try:
            from torchdiffeq import odeint
        except ImportError:
            raise UsageError("torchdiffeq is not installed", "pip install torchdiffeq") from None
        self.solve, self.step = odeint, step
        self.rate = sinusoid_rates(stack.dim).float()
        self.inner, self.outer = Linear(stack.dim + 1, hidden), Linear(hidden, stack.dim)
        nn.init.zeros_(self.outer.weight)
        start_LD = torch.zeros(stack.layers, stack.dim)
        start_LD[0] = sinusoids(1, stack.dim)[0]
        self.start_LD = nn.Parameter(start_LD)
        self._solved_TLD: Tensor | None = None

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Floater:
        """Follow a model to another device but not to another type: what is rounded adds up along the path."""
        self._solved_TLD = None
        super()._apply(lambda tensor: tensor.to(fn(tensor).device), recurse)  # type: ignore[no-untyped-call]
        return self

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what was solved, for copies."""
        return vars(self) | {"_solved_TLD": None}

    def train(self, mode: bool = True) -> Floater:
        """Forget what was solved: the weights may change now, or have changed."""
        self._solved_TLD = None
        super().train(mode)
        return self

    def embed(self, x_BTD: Tensor, layer: int, start: int) -> Tensor:
        """Add the layer's encodings of positions start .. start+T-1."""
        end = start + x_BTD.shape[1]
        solved_TLD = self._solved_TLD
        if solved_TLD is None or end > len(solved_TLD) or (self.training and layer == 0):
            solved_TLD = self.path(end) if self.training else self.path(2 * end).detach()
            self._solved_TLD = solved_TLD
        return x_BTD + solved_TLD[start:end, layer].to(x_BTD.dtype)

    def path(self, length: int) -> Tensor:
        """Return the encodings of the first positions, in float32: [T, L, D]."""
        times_T = torch.arange(length, device=self.start_LD.device, dtype=torch.float32)
        if length == 1:
            return self.start_LD[None]
        found_TLD = self.solve(self.pull, self.start_LD, times_T, method="rk4", options={"step_size": self.step})
        return self._turned(found_TLD, times_T[:, None])

    def pull(self, time: Tensor, still_LD: Tensor) -> Tensor:
        """Return what the network adds to the velocity, in the turning frame."""
        p_LD = self._turned(still_LD, time)
        # Time is told in thousands of positions: as it is, it would drive tanh to its ends.
        time_L1 = (time / 1000).expand(len(p_LD), 1)
        pull_LD = self.outer(torch.tanh(self.inner(torch.cat((p_LD, time_L1), 1))))
        return self._turned(pull_LD, -time)

    def _turned(self, x_LD: Tensor, time: Tensor) -> Tensor:
        """Turn each pair of channels by the time times its rate, as sinusoids do."""
        angle = time[..., None] * self.rate.to(x_LD.device)
        sin, cos = angle.sin(), angle.cos()
        one, other = x_LD[..., ::2], x_LD[..., 1::2]
        return torch.stack((one * cos + other * sin, other * cos - one * sin), -1).flatten(-2)


def sinusoid_rates(dim: int) -> Tensor:
    """Return 10000^(-2i/D) for i = 0 .. D/2-1, in float64: what the channels' pairs turn by from place to place."""
    return torch.exp(torch.arange(0, dim, 2, dtype=torch.float64) * (-math.log(10000.0) / dim))


def sinusoids_at(places_M: Tensor, dim: int) -> Tensor:
    """Return the interleaved sines and cosines of any places, also negative ones: [M, D] in float32."""
    angle_MD = places_M.double()[:, None] * sinusoid_rates(dim).to(places_M.device)
    return torch.stack((angle_MD.sin(), angle_MD.cos()), dim=-1).flatten(1).float()


def sinusoids(length: int, dim: int) -> Tensor:
    """Return the [length, dim] matrix of interleaved sines and cosines, in float32."""
    return sinusoids_at(torch.arange(length), dim)


def concatenated_sinusoids(length: int, dim: int) -> Tensor:
    """Return the [length, dim] matrix of sines, then cosines, in float32."""
    table_TD = sinusoids(length, dim)
    return torch.cat((table_TD[:, ::2], table_TD[:, 1::2]), 1)


def within(name: str, **options: tuple[float, float, float]) -> None:
    """Raise a ConfigError for the first option of an encoding that is below or above what it may be."""
    for option, (value, least, most) in options.items():
        if not value >= least:  # nan, too
            raise ConfigError(f"positions '{name}': {option} must be at least {least:g}, got {value}")
        if value > most:
            raise ConfigError(f"positions '{name}': {option} must be at most {most:,}, got {value}")
