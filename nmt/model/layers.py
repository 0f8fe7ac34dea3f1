"""Building blocks of the Transformer; the recurrent model uses `Linear` and `Dropout`.

Shape suffixes: B sentences, T tokens, D model dimension, F feed-forward width.

Parameters are stored in float32 and cast to the dtype of the activations where they are used. Mixed
precision therefore only sets the dtype of the embeddings, and gradients are float32. After `.to()`
for inference, the cast is a no-op.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from nmt.core.config import ModelConfig


class Linear(nn.Linear):
    """y = xWᵀ + b in the dtype of x; weights are initialized Xavier-uniform, biases to zero."""

    def __init__(self, inputs: int, *parts: int, bias: bool = True) -> None:
        """Create the layer.

        Args:
            inputs: width of x.
            parts: number of outputs of each stacked matrix (such as query, key and value), which
                are initialized separately; their sum is the width of y.
            bias: whether to add a bias.
        """
        self.parts = parts
        super().__init__(inputs, sum(parts), bias)

    def reset_parameters(self) -> None:
        """Initialize weights and bias."""
        for part in self.weight.split(self.parts):
            nn.init.xavier_uniform_(part)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def forward(self, input: Tensor) -> Tensor:
        """Map [..., inputs] to [..., outputs]."""
        dtype = input.dtype
        weight = self.weight.to(dtype)
        if self.bias is None:
            return F.linear(input, weight)
        bias = self.bias.to(dtype)
        return F.linear(input, weight, bias)


class LayerNorm(nn.LayerNorm):
    """Layer normalization in the dtype of x; the kernel computes the statistics in float32."""

    def forward(self, input: Tensor) -> Tensor:
        """Normalize [..., D]."""
        weight: Tensor = self.weight
        bias: Tensor = self.bias
        # Skipping no-op casts speeds up the search of single sentences.
        if weight.dtype != input.dtype:
            weight = weight.to(input.dtype)
            bias = bias.to(input.dtype)
        return torch.layer_norm(input, self.normalized_shape, weight, bias, self.eps)


class RMSNorm(nn.Module):
    """x / √(mean x² + ε) times a weight, without centering and bias (Zhang and Sennrich 2019,
    equation 4)."""

    def __init__(self, dim: int, eps: float = 1e-6) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))
        self.eps = eps

    def forward(self, input: Tensor) -> Tensor:
        """Normalize [..., D]; the statistics are float32."""
        weight = self.weight.float()
        normalized = F.rms_norm(input.float(), weight.shape, weight, self.eps)
        return normalized.to(input.dtype)


NORMS: dict[str, Callable[..., nn.Module]] = {"layer": LayerNorm, "rms": RMSNorm}


def build_norm(config: ModelConfig) -> nn.Module:
    """Return a normalization layer of the model."""
    norm = NORMS[config.norm]
    if config.norm_epsilon:
        return norm(config.dim, config.norm_epsilon)
    return norm(config.dim)


class Dropout(nn.Module):
    """Inverted dropout (Srivastava et al. 2014).

    On a CPU, each 64-bit random integer provides the mask of eight elements, because drawing a
    float per element dominates the cost. The rate is therefore rounded to a multiple of 1/256.
    """

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def forward(self, x: Tensor) -> Tensor:
        """In training, zero random elements and scale up the others."""
        if not self.training or self.rate == 0.0:
            return x
        if x.device.type != "cpu":
            return F.dropout(x, self.rate)
        threshold = round(self.rate * 256)
        threshold = max(1, threshold)
        threshold = min(threshold, 255)
        count = x.numel()
        num_words = -(-count // 8)
        words = torch.empty(num_words, dtype=torch.int64)
        words.random_(-(2**63), None)
        # An element is kept if its random byte is at least the threshold.
        random_bytes = words.view(torch.uint8)[:count]
        keep = random_bytes.view_as(x) >= threshold
        scale = 256 / (256 - threshold)
        factor = keep.to(x.dtype).mul_(scale)
        return x * factor


def swiglu(x_BT2F: Tensor) -> Tensor:
    """Return silu(a)·b of the two halves a and b of the last axis (Shazeer 2020, equation 5): [B,
    T, F]."""
    gate_BTF, x_BTF = x_BT2F.chunk(2, -1)
    return F.silu(gate_BTF) * x_BTF


ACTIVATIONS: dict[str, tuple[Callable[[Tensor], Tensor], int]] = {
    "relu": (F.relu, 1),
    "gelu": (F.gelu, 1),
    "silu": (F.silu, 1),
    "swiglu": (swiglu, 2),
}
"""Activation functions of the feed-forward layer, and the ratio of their input width to their
output width."""


class FeedForward(nn.Module):
    """f(xW₁ + b₁)W₂ + b₂; f is max(0, x) in the paper (Vaswani et al. 2017, equation 2)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.activation, width_ratio = ACTIVATIONS[config.activation]
        parts = [config.ffn_dim] * width_ratio
        self.up = Linear(config.dim, *parts)
        self.down = Linear(config.ffn_dim, config.dim)
        self.dropout = Dropout(config.activation_dropout)

    def forward(self, x_BTD: Tensor) -> Tensor:
        """Transform each position independently."""
        up = self.up(x_BTD)
        hidden_BTF = self.activation(up)
        hidden_BTF = self.dropout(hidden_BTF)
        return self.down(hidden_BTF)


class Residual(nn.Module):
    """Residual connection: `norm(x + dropout(f(x)))` (post-norm) or `x + dropout(f(norm(x)))`
    (pre-norm)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.norm = build_norm(config)
        self.dropout = Dropout(config.dropout)
        self.pre_norm = config.norm_position == "pre"

    def norm_input(self, x: Tensor) -> Tensor:
        """Return the input of the sublayer: normalized in pre-norm, `x` in post-norm."""
        if self.pre_norm:
            return self.norm(x)
        return x

    def add(self, x: Tensor, sublayer_output: Tensor) -> Tensor:
        """Add the output of the sublayer to the residual stream, and normalize the sum in
        post-norm."""
        total = x + self.dropout(sublayer_output)
        if self.pre_norm:
            return total
        return self.norm(total)
