"""Absolute position encodings, added to the input of layers. Letters: B sentences,
T tokens, M positions, D model dimension, L layers, N learned positions."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Annotated, Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from nmt.core.ranges import Range, Size
from nmt.model.layers import Linear
from nmt.model.position_formulas import LEARNED_POSITIONS, check_positions
from nmt.model.positions.base import (
    GrowingTable,
    Position,
    PositionEncoding,
    StackSpec,
    check_even_dim,
    rows,
)


def sinusoid_rates(dim: int, device: torch.device) -> Tensor:
    """Return 10000^(-2i/D) for i = 0 .. D/2-1, in float64: the rotation per position of each pair
    of dimensions."""
    even_X = torch.arange(0, dim, 2, dtype=torch.float64, device=device)
    step = -math.log(10000.0) / dim
    return torch.exp(even_X * step)


def sinusoids_at(positions_M: Tensor, dim: int) -> Tensor:
    """Return the interleaved sines and cosines of any positions, including negative ones: [M, D] in
    float32."""
    rate_X = sinusoid_rates(dim, positions_M.device)
    angle_MX = positions_M.double()[:, None] * rate_X
    sin_MX = angle_MX.sin()
    cos_MX = angle_MX.cos()
    pairs_MX2 = torch.stack((sin_MX, cos_MX), -1)
    return pairs_MX2.flatten(1).float()


def sinusoids(length: int, dim: int) -> Tensor:
    """Return the [length, dim] matrix of interleaved sines and cosines, in float32."""
    return sinusoids_at(torch.arange(length), dim)


def concatenated_sinusoids(length: int, dim: int) -> Tensor:
    """Return the [length, dim] matrix of sines, then cosines, in float32."""
    table_TD = sinusoids(length, dim)
    sin_TX = table_TD[:, ::2]
    cos_TX = table_TD[:, 1::2]
    return torch.cat((sin_TX, cos_TX), 1)


def marian_sinusoids(length: int, dim: int) -> Tensor:
    """Return the [length, dim] matrix of Marian: sines, then cosines, computed in float32 as
    there."""
    half = dim // 2
    exponent_X = torch.arange(half) / max(1, half - 1)
    rate_X = torch.pow(1e-4, exponent_X)
    angle_TX = torch.arange(length)[:, None] * rate_X
    cos_angle_TX = angle_TX + math.pi / 2
    return torch.cat((angle_TX, cos_angle_TX), 1).sin()


SINUSOIDS = {
    "sinusoidal": sinusoids,
    "sinusoidal_concatenated": concatenated_sinusoids,
    "sinusoidal_marian": marian_sinusoids,
}
"""Functions that compute the tables of position encodings."""


class Sinusoidal(PositionEncoding):
    """Sines and cosines of geometrically spaced wavelengths, interleaved (Vaswani et al. 2017,
    section 3.5).

    p[k, 2i] = sin(k / 10000^(2i/D)), p[k, 2i+1] = cos(k / 10000^(2i/D)). The encoding extends
    beyond the positions seen in training.
    """

    name = "sinusoidal"

    def __init__(self, stack: StackSpec) -> None:
        super().__init__(stack)
        check_even_dim(self.name, stack.dim)
        compute = functools.partial(SINUSOIDS[self.name], dim=stack.dim)
        self.encodings = GrowingTable(compute)

    def reserve(self, length: int, device: torch.device) -> None:
        """Compute the encodings."""
        self.encodings.reserve(length, device)

    def add_positions(self, x_BTD: Tensor, layer: int, start: Position) -> Tensor:
        """Add the encodings of positions start .. start+T-1 to the embeddings."""
        if layer:
            return x_BTD
        tokens = x_BTD.shape[1]
        return x_BTD + self.encodings.rows(start, tokens, x_BTD)


class ConcatenatedSinusoidal(Sinusoidal):
    """The sines of all wavelengths, then their cosines, as in tensor2tensor.

    p[k, i] = sin(k / 10000^(2i/D)), p[k, D/2+i] = cos(k / 10000^(2i/D)): the interleaved encoding
    in another order.
    """

    name = "sinusoidal_concatenated"


class MarianSinusoidal(Sinusoidal):
    """The sines of all wavelengths, then their cosines, as Marian computes them: the longest
    wavelength is exactly 10000 · 2π.

    p[k, i] = sin(k / 10000^(i/(D/2-1))), p[k, D/2+i] = cos(k / 10000^(i/(D/2-1))).
    """

    name = "sinusoidal_marian"


class Learned(PositionEncoding):
    """A learned vector for each position, up to a maximum (Gehring et al. 2017, section 3.1)."""

    def __init__(
        self,
        stack: StackSpec,
        *,
        max_positions: Annotated[int, Range(1, 1_000_000)] = LEARNED_POSITIONS,
    ) -> None:
        """Create the vectors.

        Args:
            stack: the stack that uses the encoding.
            max_positions: number of positions.
        """
        super().__init__(stack)
        self.max_positions = max_positions
        random_ND = torch.randn(max_positions, stack.dim)
        random_ND *= stack.dim**-0.5  # on the meta device, a new product would import Dynamo: 2 s
        self.table_ND = nn.Parameter(random_ND)

    def add_positions(self, x_BTD: Tensor, layer: int, start: Position) -> Tensor:
        """Add the vectors of positions start .. start+T-1 to the embeddings.

        Raises:
            UsageError: there are more tokens than positions.
        """
        if layer:
            return x_BTD
        tokens = x_BTD.shape[1]
        if isinstance(start, Tensor):
            # Unlike that of `index_select`, its gradient is deterministic on a GPU.
            vectors_TD = F.embedding(start, self.table_ND)
        else:
            check_positions(start + tokens, len(self.table_ND))
            vectors_TD = rows(self.table_ND, start, tokens)
        return x_BTD + vectors_TD.to(x_BTD.dtype)


class Floater(PositionEncoding):
    """Positions as the trajectory of a learned dynamical system (Liu et al. 2020, FLOATER,
    equations 4 and 9).

    p[k] = p[k-1] + ∫ h(τ, p(τ); θ) dτ, τ from k-1 to k; all layers share h, and each layer has its
    own initial value p[0] and adds its p to its input. h is the sum of the vector field of
    sinusoidal encodings, which rotates each pair of dimensions at its own rate, and a network
    initialized to zero. Only the initial value of the first layer is nonzero, so training starts
    from sinusoidal encodings. The system is solved in a rotating frame, where it changes slowly.
    """

    supports_graphs = False
    adds_at_every_layer = True

    def __init__(
        self,
        stack: StackSpec,
        *,
        hidden: Size = 64,
        step: Annotated[float, Range(1e-3, 1000)] = 1.0,
    ) -> None:
        """Create the network.

        Args:
            stack: the stack that uses the encoding.
            hidden: width of the hidden layer of h.
            step: step size of the solver (fourth-order Runge-Kutta), in positions.
        """
        super().__init__(stack)
        check_even_dim("floater", stack.dim)
        self.step = step
        self.inner = Linear(stack.dim + 1, hidden)
        self.outer = Linear(hidden, stack.dim)
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
        is_new_update = self.training and layer == 0
        if path_TLD is None or end > len(path_TLD) or is_new_update:
            # A search will ask for later positions soon.
            path_TLD = self.path(end if self.training else 2 * end)
            if not self.training:
                path_TLD = path_TLD.detach()
            self._cached_path_TLD = path_TLD
        vectors_TD = path_TLD[start:end, layer]
        return x_BTD + vectors_TD.to(x_BTD.dtype)

    def path(self, length: int) -> Tensor:
        """Return the encodings of the first `length` positions, in float32: [T, L, D]."""
        device = self.start_LD.device
        # The rotation per position of each pair of dimensions.
        rate_X = sinusoid_rates(self.stack.dim, device).float()
        p_LD: Tensor = self.start_LD
        path = [p_LD]
        num_steps = 0
        # The last step may pass the last position: no encoding depends on the length.
        while len(path) < length:
            # Times stay on the CPU, so that the host never waits for a GPU.
            time = torch.tensor(num_steps * self.step, dtype=torch.float32, device="cpu")
            num_steps += 1
            end = torch.tensor(num_steps * self.step, dtype=torch.float32, device="cpu")
            change_LD = self._runge_kutta(time, end, p_LD, rate_X)
            next_LD = p_LD + change_LD
            # The positions that the step has passed: linear interpolation.
            while len(path) < min(end.item(), length):
                fraction = (len(path) - time) / (end - time)
                part_LD = fraction * (next_LD - p_LD)
                path.append(p_LD + part_LD)
            if len(path) == end:
                path.append(next_LD)
            p_LD = next_LD
        # Back from the rotating frame.
        times_T = torch.arange(length, device=device, dtype=torch.float32)
        angle_T1X = times_T[:, None, None] * rate_X
        return _rotate(torch.stack(path[:length]), angle_T1X)

    def _runge_kutta(self, time: Tensor, end: Tensor, p_LD: Tensor, rate_X: Tensor) -> Tensor:
        """Return the change of p between two times: fourth order, by the 3/8 rule (Kutta 1901)."""
        velocity = functools.partial(self._velocity, rate_X)
        step = end - time
        third = 1 / 3
        # Velocities at the start, after a third and two thirds of the step, and at the end.
        k1_LD = velocity(time, p_LD)
        p2_LD = p_LD + step * k1_LD * third
        time2 = time + step * third
        k2_LD = velocity(time2, p2_LD)
        p3_LD = p_LD + step * (k2_LD - k1_LD * third)
        time3 = time + step * (2 / 3)
        k3_LD = velocity(time3, p3_LD)
        p4_LD = p_LD + step * (k1_LD - k2_LD + k3_LD)
        k4_LD = velocity(end, p4_LD)
        # Their mean, with the weights 1, 3, 3 and 1.
        sum_LD = k1_LD + 3 * (k2_LD + k3_LD) + k4_LD
        return sum_LD * step * 0.125

    def _velocity(self, rate_X: Tensor, time: Tensor, p_LD: Tensor) -> Tensor:
        """Return the part of the velocity that the network computes, in the rotating frame."""
        angle_X = time * rate_X
        fixed_LD = _rotate(p_LD, angle_X)
        # Time is given in thousands of positions, because larger numbers would saturate tanh.
        thousands = (time / 1000).item()
        layers = len(p_LD)
        time_L1 = p_LD.new_full((layers, 1), thousands)
        input_LX = torch.cat((fixed_LD, time_L1), 1)
        hidden_LX = torch.tanh(self.inner(input_LX))
        return _rotate(self.outer(hidden_LX), -angle_X)


def _rotate(x: Tensor, angle: Tensor) -> Tensor:
    """Rotate each pair of dimensions, like sinusoids."""
    sin = angle.sin()
    cos = angle.cos()
    even = x[..., ::2]
    odd = x[..., 1::2]
    rotated_even = even * cos + odd * sin
    rotated_odd = odd * cos - even * sin
    pairs = torch.stack((rotated_even, rotated_odd), -1)
    return pairs.flatten(-2)
