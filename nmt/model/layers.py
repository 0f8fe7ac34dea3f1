"""The parts every layer is made of. Shape letters: B sentences, T tokens, D width, F feed-forward width.

Parameters live in float32 and are cast to the type of the activations where they are used. Mixed precision is
therefore nothing but the type of the embeddings; gradients arrive in float32, and a model converted with `.to()`
for inference pays nothing, since the cast is then the identity.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn


class Linear(nn.Linear):
    """y = xWᵀ + b in the type of x; weights Xavier-uniform, biases zero."""

    def __init__(self, inputs: int, outputs: int, parts: int = 1) -> None:
        """Make the layer; `parts` matrices stacked in one (fused query, key, value) are initialised one by one."""
        self.parts = parts
        super().__init__(inputs, outputs)

    def reset_parameters(self) -> None:
        """Draw the weights."""
        for part in self.weight.chunk(self.parts):
            nn.init.xavier_uniform_(part)
        nn.init.zeros_(self.bias)

    def forward(self, input: Tensor) -> Tensor:
        """Map [..., inputs] to [..., outputs]."""
        return F.linear(input, self.weight.to(input.dtype), self.bias.to(input.dtype))


class LayerNorm(nn.LayerNorm):
    """Normalisation over features in the type of x; the statistics are float32 inside the kernel."""

    def forward(self, input: Tensor) -> Tensor:
        """Normalise [..., D]."""
        weight: Tensor = self.weight
        bias: Tensor = self.bias
        if weight.dtype != input.dtype:  # asked first: of one sentence's search, such calls are a good part
            weight, bias = weight.to(input.dtype), bias.to(input.dtype)
        return torch.layer_norm(input, self.normalized_shape, weight, bias, self.eps)


class Dropout(nn.Module):
    """Inverted dropout (Srivastava et al. 2014).

    On a CPU the mask is cut from 64-bit random integers, eight byte-sized draws each: drawing a float per element
    is most of the cost there. The rate is thereby a multiple of 1/256.
    """

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def forward(self, x: Tensor) -> Tensor:
        """Zero a share of the elements and scale up the others while training."""
        if not self.training or self.rate == 0.0:
            return x
        if x.device.type != "cpu":
            return F.dropout(x, self.rate)
        threshold = min(max(1, round(self.rate * 256)), 255)
        words = torch.empty(-(-x.numel() // 8), dtype=torch.int64).random_(-(2**63), None)
        keep = words.view(torch.uint8)[: x.numel()].view(x.shape) >= threshold
        return x * keep.to(x.dtype).mul_(256 / (256 - threshold))


class FeedForward(nn.Module):
    """max(0, xW₁ + b₁)W₂ + b₂ (Vaswani et al. 2017, equation 2)."""

    def __init__(self, dim: int, ff: int, dropout: float) -> None:
        super().__init__()
        self.up = Linear(dim, ff)
        self.down = Linear(ff, dim)
        self.dropout = Dropout(dropout)

    def forward(self, x_BTD: Tensor) -> Tensor:
        """Transform every position alike."""
        hidden_BTF: Tensor = self.down(self.dropout(F.relu(self.up(x_BTD))))
        return hidden_BTF


class Residual(nn.Module):
    """A sub-layer's frame: `norm(x + dropout(f(x)))` (post, the paper) or `x + dropout(f(norm(x)))` (pre)."""

    def __init__(self, dim: int, dropout: float, norm: str) -> None:
        super().__init__()
        self.norm = LayerNorm(dim)
        self.dropout = Dropout(dropout)
        self.pre = norm == "pre"

    def before(self, x: Tensor) -> Tensor:
        """Return what the sub-layer reads."""
        normed: Tensor = self.norm(x) if self.pre else x
        return normed

    def after(self, x: Tensor, update: Tensor) -> Tensor:
        """Join the sub-layer's output to the stream."""
        total = x + self.dropout(update)
        normed: Tensor = total if self.pre else self.norm(total)
        return normed
