"""A trained model made ready for search: weights in the type they are used in, and in the order the processor likes.

On a CPU a matrix routine brings a weight into blocks before it multiplies, at every call. When few rows are multiplied,
as in every step of a search, that is most of the work; here it is done once. The routines are oneDNN's, which PyTorch
carries for its own compiler; where they are missing, the layers stay what they are.
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from nmt.model.layers import Linear
from nmt.model.transformer import Transformer

ROWS = 32
"""Rows that the blocks are laid out for; other numbers are multiplied just as fast."""


class PackedLinear(nn.Module):
    """y = xWᵀ + b with W in oneDNN's blocks."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self.packed = torch.ops.mkldnn._reorder_linear_weight(weight.detach().contiguous(), ROWS)
        self.bias = None if bias is None else bias.detach()

    def forward(self, input: Tensor) -> Tensor:
        """Map [..., inputs] to [..., outputs]."""
        output: Tensor = torch.ops.mkldnn._linear_pointwise(input, self.packed, self.bias, "none", [], "")
        return output


def for_inference(model: Transformer, dtype: torch.dtype) -> Transformer:
    """Return a copy of `model` that computes in `dtype`, for search only; the model itself stays as it is."""
    ready = copy.deepcopy(model).to(dtype).eval().requires_grad_(False)
    ready.compute_dtype = None
    device = ready.output_weight_VD.device
    if device.type == "cpu" and dtype in (torch.float32, torch.bfloat16) and _can_pack():
        ready.projection = PackedLinear(ready.output_weight_VD, None)
        for module in list(ready.modules()):
            for name, child in module.named_children():
                if isinstance(child, Linear):
                    setattr(module, name, PackedLinear(child.weight, child.bias))
    return ready


def _can_pack() -> bool:
    operators = ("_reorder_linear_weight", "_linear_pointwise")
    return torch.backends.mkldnn.is_available() and all(hasattr(torch.ops.mkldnn, name) for name in operators)  # type: ignore[no-untyped-call]
