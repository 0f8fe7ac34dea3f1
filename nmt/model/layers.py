"""The parts every layer is made of. Shape letters: B sentences, T tokens, D width, F feed-forward width.

Parameters live in float32 and are cast to the type of the activations where they are used. Mixed precision is
therefore nothing but the type of the embeddings; gradients arrive in float32, and a model converted with `.to()`
for inference pays nothing, since the cast is then the identity.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn


class Linear(nn.Linear):
    """y = xWᵀ + b in the type of x; weights Xavier-uniform, biases zero."""

    def __init__(self, inputs: int, outputs: int, parts: Sequence[int] = (), *, bias: bool = True) -> None:
        """Make the layer.

        Args:
            inputs: width of x.
            outputs: width of y.
            parts: outputs of each of several matrices stacked in one (fused query, key, value), which are initialized
                one by one; empty: it is one.
            bias: whether there is a b.
        """
        self.parts = list(parts) or [outputs]
        super().__init__(inputs, outputs, bias)

    def reset_parameters(self) -> None:
        """Draw the weights."""
        for part in self.weight.split(self.parts):
            nn.init.xavier_uniform_(part)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def forward(self, input: Tensor) -> Tensor:
        """Map [..., inputs] to [..., outputs]."""
        bias = None if self.bias is None else self.bias.to(input.dtype)
        return F.linear(input, self.weight.to(input.dtype), bias)


class LayerNorm(nn.LayerNorm):
    """Normalization over features in the type of x; the statistics are float32 inside the kernel."""

    def forward(self, input: Tensor) -> Tensor:
        """Normalize [..., D]."""
        weight: Tensor = self.weight
        bias: Tensor = self.bias
        if weight.dtype != input.dtype:  # asked first: of one sentence's search, such calls are a good part
            weight, bias = weight.to(input.dtype), bias.to(input.dtype)
        return torch.layer_norm(input, self.normalized_shape, weight, bias, self.eps)


class RMSNorm(nn.Module):
    """x / √(mean x² + ε) times a weight; no mean is taken off, no bias added (Zhang and Sennrich 2019, equation 4)."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))

    def forward(self, input: Tensor) -> Tensor:
        """Normalize [..., D]; the statistics are float32."""
        return F.rms_norm(input.float(), input.shape[-1:], self.weight.float(), 1e-6).to(input.dtype)


NORMS: dict[str, Callable[[int], nn.Module]] = {"layer": LayerNorm, "rms": RMSNorm}


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


def swiglu(x_BT2F: Tensor) -> Tensor:
    """Return silu(a)·b of the halves a and b (Shazeer 2020, equation 6): [B, T, F]."""
    gate_BTF, x_BTF = x_BT2F.chunk(2, -1)
    return F.silu(gate_BTF) * x_BTF


ACTIVATIONS: dict[str, tuple[Callable[[Tensor], Tensor], int]] = {
    "relu": (F.relu, 1),
    "gelu": (F.gelu, 1),
    "swiglu": (swiglu, 2),
}
"""What the feed-forward layer applies, and how many times as wide as its result its input is."""


class FeedForward(nn.Module):
    """f(xW₁ + b₁)W₂ + b₂, where f is max(0, x) in the paper (Vaswani et al. 2017, equation 2)."""

    def __init__(self, dim: int, ff: int, dropout: float, activation: str = "relu") -> None:
        super().__init__()
        self.activation, times = ACTIVATIONS[activation]
        self.up = Linear(dim, times * ff, parts=[ff] * times)
        self.down = Linear(ff, dim)
        self.dropout = Dropout(dropout)

    def forward(self, x_BTD: Tensor) -> Tensor:
        """Transform every position alike."""
        out_BTD: Tensor = self.down(self.dropout(self.activation(self.up(x_BTD))))
        return out_BTD


class Residual(nn.Module):
    """A sub-layer's frame: `norm(x + dropout(f(x)))` (post, the paper) or `x + dropout(f(norm(x)))` (pre)."""

    def __init__(self, dim: int, dropout: float, norm: str, normalization: str = "layer") -> None:
        super().__init__()
        self.norm = NORMS[normalization](dim)
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
