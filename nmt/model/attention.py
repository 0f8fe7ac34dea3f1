"""Multi-head attention (Vaswani et al. 2017, section 3.2) and its scoring functions.

Shape suffixes: B sentences, T tokens, Q queries, S source tokens or keys, D model dimension, H
query heads, G key-value heads, K head dimension, X any size. Masks are broadcastable to
[B, H, Q, S] and boolean, True = attend; on a GPU also additive (`additive_mask`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from nmt.core.config import ModelConfig
from nmt.core.plugins import Components
from nmt.model import segment_attention
from nmt.model.layers import Dropout, Linear
from nmt.model.positions import PositionInput
from nmt.model.segment_attention import Segments

MASK_ALIGNMENT = 16
"""Kernels copy an additive mask in every call unless the stride of its rows is a multiple of
this."""


class CausalMask(NamedTuple):
    """The mask of a decoder that reads the whole target: queries attend to their own position and
    earlier ones."""

    allowed_TT: Tensor


Mask = Tensor | CausalMask


@contextmanager
def fused_kernels() -> Iterator[None]:
    """Select the memory-efficient attention kernel (Rabe and Staats 2021).

    For sentences, it is up to three times as fast as FlashAttention, whose blocks have 128
    positions. cuDNN builds a plan for every new shape, which takes tens of milliseconds, and has
    returned NaN gradients with masks.
    """
    with sdpa_kernel([SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]):
        yield


def additive_mask(allowed: Tensor, dtype: torch.dtype) -> Tensor:
    """Return a boolean mask as a term to add to scores, in the form that fused kernels read without
    a copy.

    The term of a masked position is finite, so that fully masked rows are not NaN: half of the
    minimum, so that adding a score does not overflow.
    """
    *sizes, keys = allowed.shape
    aligned = allowed.new_zeros(*sizes, keys + -keys % MASK_ALIGNMENT, dtype=dtype)
    return aligned[..., :keys].masked_fill_(~allowed, torch.finfo(dtype).min / 2)


def boolean_mask(mask: Mask | None) -> Tensor | None:
    """Return any mask as a boolean tensor."""
    if isinstance(mask, CausalMask):
        return mask.allowed_TT
    return mask == 0 if mask is not None and mask.is_floating_point() else mask


def select_mask(mask: Tensor, sentences_B: Tensor) -> Tensor:
    """Return the mask of some sentences, in the form of `mask`."""
    if mask.is_floating_point():
        return additive_mask((mask == 0)[sentences_B], mask.dtype)
    return mask[sentences_B]


def masked_softmax(scores_BHQS: Tensor, mask: Tensor | None) -> Tensor:
    """Softmax over the last axis; masked positions get a weight of exactly zero, and fully masked
    rows are all zero.

    The fill value is finite, because a row of -inf becomes NaN, and so does its gradient even if
    the output is masked.
    """
    if mask is None:
        return scores_BHQS.softmax(-1)
    filled = scores_BHQS.masked_fill(~mask, torch.finfo(scores_BHQS.dtype).min)
    return filled.softmax(-1).masked_fill(~mask, 0.0)


def split_kv(kv_BS2GK: Tensor) -> tuple[Tensor, Tensor]:
    """Split stacked keys and values into keys and values, each [B, G, S, K].

    The backward pass of `split` writes both gradients into one contiguous tensor; that of indexing
    would copy them.
    """
    k_BS1GK, v_BS1GK = kv_BS2GK.split(1, 2)
    return k_BS1GK.squeeze(2).transpose(1, 2), v_BS1GK.squeeze(2).transpose(1, 2)


class DotProduct(nn.Module):
    """qkᵀ of queries that are already divided by √K: the scaled dot product (Vaswani et al. 2017,
    equation 1)."""

    def __init__(self, heads: int, head_dim: int) -> None:
        super().__init__()

    def forward(self, q_BHQK: Tensor, k_BHSK: Tensor) -> Tensor:
        """Return the scores, [B, H, Q, S]."""
        return q_BHQK @ k_BHSK.transpose(-1, -2)


class Additive(nn.Module):
    """w_vᵀ tanh(W_q q + W_k k) (Bahdanau et al. 2015, appendix A.1.2), with a separate w_v per
    head.

    W_q and W_k are the query and key projections of the attention, which have a bias in the
    Transformer. All Q·S sums are in memory at once, so it takes K times the memory of a dot
    product.
    """

    def __init__(self, heads: int, head_dim: int) -> None:
        super().__init__()
        uniform_HK = torch.empty(heads, head_dim).uniform_(-1, 1)
        # On the meta device, a new product would import Dynamo, which takes two seconds.
        uniform_HK *= math.sqrt(3 / head_dim)
        self.weight_HK = nn.Parameter(uniform_HK)

    def forward(self, q_BHQK: Tensor, k_BHSK: Tensor) -> Tensor:
        """Return the scores, [B, H, Q, S]."""
        sums_BHQSK = torch.tanh(q_BHQK[:, :, :, None] + k_BHSK[:, :, None])
        weight_HK1 = self.weight_HK[:, None, :, None].to(sums_BHQSK.dtype)
        return (sums_BHQSK @ weight_HK1)[..., 0]


ATTENTION_SCORES: Components[Callable[[int, int], nn.Module]] = Components(
    "attention score",
    {"dot": DotProduct, "additive": Additive},
    returns="a module",
    is_valid=callable,
)


class Attention(nn.Module):
    """Attention and the projection of its output.

    `SelfAttention` and `CrossAttention` project queries, keys and values in separate methods,
    because a decoder caches keys and values between steps.
    """

    out: Linear

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.heads = config.heads
        self.kv_heads = config.kv_heads or config.heads
        self.head_dim = config.dim // config.heads
        self.score_fn = ATTENTION_SCORES[config.attention_score](self.heads, self.head_dim)
        self.is_dot_product = isinstance(self.score_fn, DotProduct)
        self.dropout = Dropout(config.attention_dropout)
        self.recorded_weights: list[Tensor] | None = None
        """Attention weights [B, H, Q, S] of each call inside `record_attention`; None outside."""

    def attend_and_project(
        self,
        q_BHQK: Tensor,
        k_BGSK: Tensor,
        v_BGSK: Tensor,
        mask: Mask | None,
        position: PositionInput | None = None,
    ) -> Tensor:
        """Return the projected output of the attention, [B, Q, D]."""
        context_BHQK = self.attend(q_BHQK, k_BGSK, v_BGSK, mask, position)
        return self.out(context_BHQK.transpose(1, 2).flatten(2))

    def attend(
        self,
        q_BHQK: Tensor,
        k_BGSK: Tensor,
        v_BGSK: Tensor,
        mask: Mask | None,
        position: PositionInput | None = None,
    ) -> Tensor:
        """Return the sums of the values weighted by attention, [B, H, Q, K]."""
        k_BHSK = self.repeat_kv(k_BGSK)
        v_BHSK = self.repeat_kv(v_BGSK)
        # On the CPU, the backward pass of the fused kernel is slow for short sentences.
        needs_weights = self.recorded_weights is not None or not self.is_dot_product
        if position and position.encoding.has_value_bias:
            needs_weights = True
        if q_BHQK.is_cuda and not needs_weights:
            return self.sdpa(q_BHQK, k_BHSK, v_BHSK, mask, position)
        weights_BHQS = self.weights(q_BHQK, k_BHSK, mask, position)
        if self.recorded_weights is not None:
            self.recorded_weights.append(weights_BHQS.detach())
        weights_BHQS = self.dropout(weights_BHQS)
        context_BHQK = weights_BHQS @ v_BHSK
        bias_BHQK = position.value_bias(weights_BHQS) if position else None
        return context_BHQK if bias_BHQK is None else context_BHQK + bias_BHQK

    def sdpa(
        self,
        q_BHQK: Tensor,
        k_BHSK: Tensor,
        v_BHSK: Tensor,
        mask: Mask | None,
        position: PositionInput | None,
    ) -> Tensor:
        """Compute `attend` for dot-product scores with PyTorch's fused kernel, which is the fastest
        on a GPU."""
        rate = self.dropout.rate if self.training else 0.0
        scale = 1 / self._divisor(position)
        kernel = partial(
            F.scaled_dot_product_attention, q_BHQK, k_BHSK, v_BHSK, dropout_p=rate, scale=scale
        )
        bias = None
        if position and position.encoding.has_attention_bias:
            bias = position.attention_bias(q_BHQK * scale, k_BHSK)
        # The kernel reads one term to add to the scores: the sum of the bias and the mask.
        if isinstance(mask, CausalMask):
            if bias is None:
                return kernel(is_causal=True)
            mask = additive_mask(mask.allowed_TT, q_BHQK.dtype)
        if mask is None:
            return kernel(attn_mask=bias)
        term = mask if mask.is_floating_point() else additive_mask(mask, q_BHQK.dtype)
        context_BHQK = kernel(attn_mask=term if bias is None else bias + term)
        if mask.is_floating_point():
            return context_BHQK
        # Fully masked rows are zero, as in `masked_softmax`.
        return context_BHQK.masked_fill(~mask.any(-1, keepdim=True), 0.0)

    def weights(
        self,
        q_BHQK: Tensor,
        k_BHSK: Tensor,
        mask: Mask | None,
        position: PositionInput | None = None,
    ) -> Tensor:
        """Return the attention weights, [B, H, Q, S]."""
        scaled_BHQK = q_BHQK / self._divisor(position)
        scores_BHQS = self.score_fn(scaled_BHQK if self.is_dot_product else q_BHQK, k_BHSK)
        bias = position.attention_bias(scaled_BHQK, k_BHSK) if position else None
        if bias is not None:
            scores_BHQS = scores_BHQS + bias
        return masked_softmax(scores_BHQS, boolean_mask(mask))

    def _divisor(self, position: PositionInput | None) -> float:
        """Return the number that scores are divided by."""
        num_terms = position.encoding.num_score_terms if position else 1
        return math.sqrt(num_terms * self.head_dim)

    def repeat_kv(self, x_BGSK: Tensor, axis: int = 1) -> Tensor:
        """Repeat keys or values for every head of queries that shares them: [B, H, S, K]; `axis`:
        that of the heads."""
        if self.kv_heads == self.heads:
            return x_BGSK
        return x_BGSK.repeat_interleave(self.heads // self.kv_heads, axis)

    def _split_heads(self, x_BTX: Tensor) -> Tensor:
        return x_BTX.unflatten(-1, (-1, self.head_dim))


class SelfAttention(Attention):
    """Self-attention; heads may share keys and values (grouped-query attention, Ainslie et al.
    2023, section 2.2)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        kv_dim = self.kv_heads * self.head_dim
        self.qkv = Linear(config.dim, config.dim, kv_dim, kv_dim)
        self.out = Linear(config.dim, config.dim)

    def forward(
        self, x_BTD: Tensor, mask: Mask | Segments | None, position: PositionInput | None = None
    ) -> Tensor:
        """Return the projected output of the attention of a sequence to itself, [B, T, D]."""
        if isinstance(mask, Segments):
            return self._attend_in_segments(x_BTD, mask, position)
        q, kv = self.project(x_BTD, position)
        return self.attend_and_project(q, *split_kv(kv), mask, position)

    def project(
        self, x_BTD: Tensor, position: PositionInput | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return queries [B, H, T, K], and stacked keys and values [B, T, 2, G, K], from one matrix
        product."""
        qkv_BTXK = self._project_stacked(x_BTD, position)
        q_BTHK, kv_BTXK = qkv_BTXK.split((self.heads, 2 * self.kv_heads), 2)
        return q_BTHK.transpose(1, 2), kv_BTXK.unflatten(2, (2, -1))

    def _project_stacked(self, x_BTD: Tensor, position: PositionInput | None) -> Tensor:
        """Return queries, keys and values, [B, T, H + 2G, K]."""
        qkv_BTXK = self._split_heads(self.qkv(x_BTD))
        if not position or not position.encoding.rotates:
            return qkv_BTXK
        # Queries and keys are rotated together, before they are split.
        qk_BTXK, v_BTGK = qkv_BTXK.split((self.heads + self.kv_heads, self.kv_heads), 2)
        return torch.cat((position.rotate(qk_BTXK), v_BTGK), 2)

    def _attend_in_segments(
        self, x_1ND: Tensor, segments: Segments, position: PositionInput | None
    ) -> Tensor:
        qkv_1NXK = self._project_stacked(x_1ND, position)
        if self.kv_heads != self.heads:
            q, k, v = qkv_1NXK.split((self.heads, self.kv_heads, self.kv_heads), 2)
            qkv_1NXK = torch.cat((q, self.repeat_kv(k, 2), self.repeat_kv(v, 2)), 2)
        qkv_1N3HK = qkv_1NXK.unflatten(2, (3, -1))
        context_1NHK = segment_attention.self_attention(qkv_1N3HK, segments)
        return self.out(context_1NHK.flatten(2))


class CrossAttention(Attention):
    """Attention to another sequence, whose keys and values are projected once."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        kv_dim = self.kv_heads * self.head_dim
        self.q = Linear(config.dim, config.dim)
        self.kv = Linear(config.dim, kv_dim, kv_dim)
        self.out = Linear(config.dim, config.dim)

    def project_q(self, x_BQD: Tensor) -> Tensor:
        """Return queries [B, H, Q, K]."""
        return self._split_heads(self.q(x_BQD)).transpose(1, 2)

    def project_kv(self, memory_BSD: Tensor) -> tuple[Tensor, Tensor]:
        """Return keys and values, each [B, G, S, K]."""
        return split_kv(self._split_heads(self.kv(memory_BSD)).unflatten(2, (2, -1)))

    def attend_in_segments(self, x_1ND: Tensor, memory_1MD: Tensor, segments: Segments) -> Tensor:
        """Return the projected output of the attention of packed sequences, [1, N, D]."""
        q_1NHK = self._split_heads(self.q(x_1ND))
        kv_1MXK = self._split_heads(self.kv(memory_1MD))
        k, v = kv_1MXK.split((self.kv_heads, self.kv_heads), 2)
        k_1MHK = self.repeat_kv(k, 2)
        v_1MHK = self.repeat_kv(v, 2)
        context_1NHK = segment_attention.cross_attention(q_1NHK, k_1MHK, v_1MHK, segments)
        return self.out(context_1NHK.flatten(2))


@contextmanager
def record_attention(model: nn.Module) -> Iterator[dict[str, list[Tensor]]]:
    """Record the weights of every attention in `model`: a list with one tensor per call, by module
    name."""
    recorded: dict[str, list[Tensor]] = {}
    for name, module in model.named_modules():
        if isinstance(module, Attention):
            module.recorded_weights = recorded[name] = []
    try:
        yield recorded
    finally:
        for module in model.modules():
            if isinstance(module, Attention):
                module.recorded_weights = None
