"""Matrices made ready for search: laid out in blocks, in the order in which the processor multiplies them.

A matrix routine brings a weight into blocks before it multiplies, at every call. When few rows are multiplied, as in
every step of a search, that is most of the work; here it is done once. What follows a product is applied while its
result is at hand. The products are our own, where a C compiler is at hand for them (`nmt.kernels`), or else the
routines of oneDNN and FBGEMM, which PyTorch carries.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Protocol, cast

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from nmt import kernels

ROWS = 32
"""Rows that oneDNN's blocks are laid out for; other numbers are multiplied just as fast."""
MOST_ROWS = 512
"""Rows that oneDNN multiplies at once: for each number of them it makes a routine and keeps half a megabyte or more."""
LANES = 16
"""Numbers of rows of which larger ones are multiples, for the same reason."""


class Packed(Protocol):
    """y = xWᵀ + b, and what a layer makes of it. Inputs are [..., inputs], outputs [..., outputs]."""

    def __call__(self, input: Tensor) -> Tensor:
        """Return xWᵀ + b."""

    def forward(self, input: Tensor) -> Tensor:
        """Return xWᵀ + b."""

    def relu(self, input: Tensor) -> Tensor:
        """Return max(0, xWᵀ + b)."""

    def plus(self, input: Tensor, other: Tensor) -> Tensor:
        """Return xWᵀ + b + other."""

    def put(self, input: Tensor, output: Tensor) -> None:
        """Put xWᵀ + b into `output`, which is float32 and two-dimensional."""


class CompiledLinear(nn.Module):
    """By our own routine, in float32, bf16 or int8; each row is the same alone and in company."""

    def __init__(self, weight: Tensor, bias: Tensor | None, dtype: torch.dtype) -> None:
        super().__init__()
        self.matrix = kernels.Matrix(weight, bias, dtype)

    def forward(self, input: Tensor) -> Tensor:
        """Return xWᵀ + b."""
        return self.matrix.product(self._rows(input)).view(*input.shape[:-1], -1)

    def relu(self, input: Tensor) -> Tensor:
        """Return max(0, xWᵀ + b)."""
        return self.matrix.product(self._rows(input), relu=True).view(*input.shape[:-1], -1)

    def plus(self, input: Tensor, other: Tensor) -> Tensor:
        """Return xWᵀ + b + other."""
        return self.matrix.product(self._rows(input), plus_RO=self._rows(other)).view(other.shape)

    def put(self, input: Tensor, output: Tensor) -> None:
        """Put xWᵀ + b into `output`, which is float32 and two-dimensional."""
        self.matrix.product(self._rows(input), out_RO=output)

    @staticmethod
    def _rows(x: Tensor) -> Tensor:
        return x.reshape(-1, x.shape[-1]).contiguous()


class PackedLinear(nn.Module):
    """By oneDNN's routines, in float32 or bf16."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self.packed = torch.ops.mkldnn._reorder_linear_weight(weight.detach().contiguous(), ROWS)
        self.bias = None if bias is None else bias.detach()

    def forward(self, input: Tensor) -> Tensor:
        """Return xWᵀ + b."""
        return self._product(input, "none")

    def relu(self, input: Tensor) -> Tensor:
        """Return max(0, xWᵀ + b)."""
        return self._product(input, "relu")

    def plus(self, input: Tensor, other: Tensor) -> Tensor:
        """Return xWᵀ + b + other."""
        return self._product(input, "none").add_(other)

    def put(self, input: Tensor, output: Tensor) -> None:
        """Put xWᵀ + b into `output`, which is float32 and two-dimensional."""
        output.copy_(self.forward(input))

    def _product(self, input: Tensor, then: str) -> Tensor:
        rows = input.shape[:-1].numel()
        if rows > MOST_ROWS:
            parts = input.flatten(0, -2).split(MOST_ROWS)
            return torch.cat([self._product(part, then) for part in parts]).view(*input.shape[:-1], -1)
        if missing := rounded(rows) - rows:
            filled = F.pad(input.reshape(rows, -1), (0, 0, 0, missing))
            return self._product(filled, then)[:rows].view(*input.shape[:-1], -1)
        output: Tensor = torch.ops.mkldnn._linear_pointwise(input, self.packed, self.bias, then, [], "")
        return output


def rounded(rows: int) -> int:
    """Return how many rows to multiply for so many: 1, 2, 4, 8, 16, 32, 48 …"""
    return -(-rows // LANES) * LANES if rows > LANES else 1 << max(0, rows - 1).bit_length()


class Int8Linear(nn.Module):
    """By FBGEMM's routine: each row of W in whole numbers of 8 bits with its own scale, and x rounded as it comes.

    x has 7 bits, so that the sums of older processors cannot overflow, and one scale.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        weight = weight.detach()
        scale_O = weight.abs().amax(1).clamp(min=torch.finfo(torch.float32).tiny) / 127
        zero_O = torch.zeros(len(weight), dtype=torch.long)
        with warnings.catch_warnings():  # PyTorch means to replace this kind of tensor
            warnings.simplefilter("ignore", UserWarning)
            whole = torch.quantize_per_channel(weight, scale_O, zero_O, 0, torch.qint8)
        self.packed = torch.ops.quantized.linear_prepack(whole, None if bias is None else bias.detach())

    def forward(self, input: Tensor) -> Tensor:
        """Return xWᵀ + b."""
        output: Tensor = torch.ops.quantized.linear_dynamic(input, self.packed, True)
        return output

    def relu(self, input: Tensor) -> Tensor:
        """Return max(0, xWᵀ + b)."""
        output: Tensor = torch.ops.quantized.linear_relu_dynamic(input, self.packed, True)
        return output

    def plus(self, input: Tensor, other: Tensor) -> Tensor:
        """Return xWᵀ + b + other."""
        return self.forward(input).add_(other)

    def put(self, input: Tensor, output: Tensor) -> None:
        """Put xWᵀ + b into `output`, which is float32 and two-dimensional."""
        output.copy_(self.forward(input))


Pack = Callable[[Tensor, Tensor | None], Packed]


def packer(dtype: torch.dtype) -> Pack | None:
    """Return what makes matrices ready that are to be multiplied in `dtype` on a CPU; None where nothing does."""

    def pack(weight: Tensor, bias: Tensor | None) -> Packed:
        if kernels.can_multiply(weight, dtype):
            return CompiledLinear(weight, bias, dtype)
        return cast(Packed, Int8Linear(weight, bias) if dtype == torch.int8 else PackedLinear(weight, bias))

    known = dtype == torch.int8 or (dtype in (torch.float32, torch.bfloat16) and _has_onednn())
    return pack if known else None


def _has_onednn() -> bool:
    operators = ("_reorder_linear_weight", "_linear_pointwise")
    return torch.backends.mkldnn.is_available() and all(hasattr(torch.ops.mkldnn, name) for name in operators)
