"""Absolute position encodings, added to the input of layers. Letters: B sentences,
T tokens, M positions, D model dimension, L layers, N learned positions."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from nmt.model.layers import Linear
from nmt.model.position_formulas import LEARNED_POSITIONS, check_positions
from nmt.model.positions.base import (
    GrowingTable,
    Position,
    PositionEncoding,
    StackSpec,
    check_even_dim,
    check_range,
    rows,
)


def sinusoid_rates(dim: int, device: torch.device) -> Tensor:
    """Return 10000^(-2i/D) for i = 0 .. D/2-1, in float64: the rotation per position of each pair
    of dimensions."""
    return torch.exp(
        torch.arange(0, dim, 2, dtype=torch.float64, device=device) * (-math.log(10000.0) / dim)
    )


def sinusoids_at(positions_M: Tensor, dim: int) -> Tensor:
    """Return the interleaved sines and cosines of any positions, including negative ones: [M, D] in
    float32."""
    angle_MD = positions_M.double()[:, None] * sinusoid_rates(dim, positions_M.device)
    return torch.stack((angle_MD.sin(), angle_MD.cos()), dim=-1).flatten(1).float()


def sinusoids(length: int, dim: int) -> Tensor:
    """Return the [length, dim] matrix of interleaved sines and cosines, in float32."""
    return sinusoids_at(torch.arange(length), dim)


def concatenated_sinusoids(length: int, dim: int) -> Tensor:
    """Return the [length, dim] matrix of sines, then cosines, in float32."""
    table_TD = sinusoids(length, dim)
    return torch.cat((table_TD[:, ::2], table_TD[:, 1::2]), 1)


SINUSOIDS = {"sinusoidal": sinusoids, "sinusoidal_concatenated": concatenated_sinusoids}
"""Functions that compute the tables of position encodings."""


class Sinusoidal(PositionEncoding):
    """Sines and cosines of geometrically spaced wavelengths, interleaved (Vaswani et al. 2017,
    section 3.5).

    p[k, 2i] = sin(k / 10000^(2i/D)), p[k, 2i+1] = cos(k / 10000^(2i/D)). The encoding extends
    beyond the positions seen in training.
    """

    supports_graphs = True
    name, formula = "sinusoidal", staticmethod(sinusoids)

    def __init__(self, stack: StackSpec) -> None:
        super().__init__(stack)
        check_even_dim(self.name, stack.dim)
        self.encodings = GrowingTable(functools.partial(self.formula, dim=stack.dim))

    def add_positions(self, x_BTD: Tensor, layer: int, start: Position) -> Tensor:
        """Add the encodings of positions start .. start+T-1 to the embeddings."""
        return x_BTD if layer else x_BTD + self.encodings.rows(start, x_BTD.shape[1], x_BTD)


class ConcatenatedSinusoidal(Sinusoidal):
    """The sines of all wavelengths, then their cosines, as in tensor2tensor.

    p[k, i] = sin(k / 10000^(2i/D)), p[k, D/2+i] = cos(k / 10000^(2i/D)): the interleaved encoding
    in another order.
    """

    name, formula = "sinusoidal_concatenated", staticmethod(concatenated_sinusoids)


class Learned(PositionEncoding):
    """A learned vector for each position, up to a maximum (Gehring et al. 2017, section 3.1)."""

    supports_graphs = True

    def __init__(self, stack: StackSpec, *, max_positions: int = LEARNED_POSITIONS) -> None:
        """Create the vectors.

        Args:
            stack: the stack that uses the encoding.
            max_positions: number of positions.
        """
        super().__init__(stack)
        check_range("learned", max_positions=(max_positions, 1, 1_000_000))
        self.max_positions = max_positions
        self.table_ND = nn.Parameter(torch.randn(max_positions, stack.dim) * stack.dim**-0.5)

    def add_positions(self, x_BTD: Tensor, layer: int, start: Position) -> Tensor:
        """Add the vectors of positions start .. start+T-1 to the embeddings.

        Raises:
            UsageError: there are more tokens than positions.
        """
        if layer:
            return x_BTD
        if not isinstance(start, Tensor):
            check_positions(start + x_BTD.shape[1], len(self.table_ND))
        return x_BTD + rows(self.table_ND, start, x_BTD.shape[1]).to(x_BTD.dtype)


class Floater(PositionEncoding):
    """Positions as the trajectory of a learned dynamical system (Liu et al. 2020, FLOATER,
    equations 4 and 9).

    p[k] = p[k-1] + ∫ h(τ, p(τ); θ) dτ, τ from k-1 to k; all layers share h, and each layer has its
    own initial value p[0] and adds its p to its input. h is the sum of the vector field of
    sinusoidal encodings, which rotates each pair of dimensions at its own rate, and a network
    initialized to zero. Only the initial value of the first layer is nonzero, so training starts
    from sinusoidal encodings. The system is solved in a rotating frame, where it changes slowly.
    """

    adds_at_every_layer = True

    def __init__(self, stack: StackSpec, *, hidden: int = 64, step: float = 1.0) -> None:
        """Create the network.

        Args:
            stack: the stack that uses the encoding.
            hidden: width of the hidden layer of h.
            step: step size of the solver (fourth-order Runge-Kutta), in positions.
        """
        super().__init__(stack)
        check_even_dim("floater", stack.dim)
        check_range("floater", hidden=(hidden, 1, 65_536), step=(step, 1e-3, 1000))
        self.step = step
        self.inner, self.outer = Linear(stack.dim + 1, hidden), Linear(hidden, stack.dim)
        nn.init.zeros_(self.outer.weight)
        start_LD = torch.zeros(stack.layers, stack.dim)
        start_LD[0] = sinusoids(1, stack.dim)[0]
        self.start_LD = nn.Parameter(start_LD)
        self._cached_path_TLD: Tensor | None = None

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Floater:
        """Move to another device, but keep float32: rounding errors accumulate along the path."""
        self._cached_path_TLD = None
        super()._apply(lambda tensor: tensor.to(fn(tensor).device), recurse)  # type: ignore[no-untyped-call]
        return self

    def __getstate__(self) -> dict[str, Any]:
        """Exclude the cached path from copies."""
        return vars(self) | {"_cached_path_TLD": None}

    def train(self, mode: bool = True) -> Floater:
        """Discard the cached path, because the weights may change or have changed."""
        self._cached_path_TLD = None
        super().train(mode)
        return self

    def add_positions(self, x_BTD: Tensor, layer: int, start: int) -> Tensor:  # type: ignore[override]
        """Add the encodings of positions start .. start+T-1 in this layer."""
        end = start + x_BTD.shape[1]
        path_TLD = self._cached_path_TLD
        if path_TLD is None or end > len(path_TLD) or (self.training and layer == 0):
            path_TLD = self.path(end) if self.training else self.path(2 * end).detach()
            self._cached_path_TLD = path_TLD
        return x_BTD + path_TLD[start:end, layer].to(x_BTD.dtype)

    def path(self, length: int) -> Tensor:
        """Return the encodings of the first `length` positions, in float32: [T, L, D]."""
        rate = sinusoid_rates(
            self.stack.dim, self.start_LD.device
        ).float()  # rotation per position of each pair
        # Times stay on the CPU as numbers, so that the host never waits for a GPU.
        num_steps = math.ceil((length - 1) / self.step)
        grid = torch.arange(num_steps + 1, dtype=torch.float32, device="cpu") * self.step
        grid[-1] = length - 1
        p_LD: Tensor = self.start_LD
        path = [p_LD]
        for time, end in itertools.pairwise(grid):
            next_LD = p_LD + self._runge_kutta(time, end, p_LD, rate)
            while len(path) < length and end >= len(path):
                fraction = (len(path) - time) / (end - time)
                path.append(next_LD if end == len(path) else p_LD + fraction * (next_LD - p_LD))
            p_LD = next_LD
        times_T = torch.arange(length, device=self.start_LD.device, dtype=torch.float32)
        return _rotate(torch.stack(path), times_T[:, None, None] * rate)

    def _runge_kutta(self, time: Tensor, end: Tensor, p_LD: Tensor, rate: Tensor) -> Tensor:
        """Return the change of p between two times: fourth order, by the 3/8 rule (Kutta 1901)."""
        step = end - time
        k1 = self._velocity(time, p_LD, rate)
        k2 = self._velocity(time + step * (1 / 3), p_LD + step * k1 * (1 / 3), rate)
        k3 = self._velocity(time + step * (2 / 3), p_LD + step * (k2 - k1 * (1 / 3)), rate)
        k4 = self._velocity(end, p_LD + step * (k1 - k2 + k3), rate)
        return (k1 + 3 * (k2 + k3) + k4) * step * 0.125

    def _velocity(self, time: Tensor, p_rotating_LD: Tensor, rate: Tensor) -> Tensor:
        """Return the part of the velocity that the network computes, in the rotating frame."""
        p_LD = _rotate(p_rotating_LD, time * rate)
        # Time is given in thousands of positions, because larger numbers would saturate tanh.
        time_L1 = p_LD.new_full((len(p_LD), 1), (time / 1000).item())
        velocity_LD = self.outer(torch.tanh(self.inner(torch.cat((p_LD, time_L1), 1))))
        return _rotate(velocity_LD, -time * rate)


def _rotate(x: Tensor, angle: Tensor) -> Tensor:
    """Rotate each pair of dimensions, like sinusoids."""
    sin, cos = angle.sin(), angle.cos()
    even, odd = x[..., ::2], x[..., 1::2]
    return torch.stack((even * cos + odd * sin, odd * cos - even * sin), -1).flatten(-2)
