"""Scaled dot-product attention in several heads (Vaswani et al. 2017, section 3.2).

Shape letters: B sentences, Q queries, S source tokens or keys, D width, H heads, K head width. Masks are boolean,
True = attend, broadcastable to [B, H, Q, S].
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from nmt.model.layers import Dropout, Linear


def masked_softmax(scores_BHQS: Tensor, mask: Tensor | None) -> Tensor:
    """Softmax over the last axis in which masked places weigh exactly zero; a fully masked row is all zero.

    The fill is finite, not -inf, because a row of -inf becomes NaN and its gradient stays NaN however it is
    covered up afterwards.
    """
    if mask is None:
        return scores_BHQS.softmax(-1)
    filled = scores_BHQS.masked_fill(~mask, torch.finfo(scores_BHQS.dtype).min)
    return filled.softmax(-1).masked_fill(~mask, 0.0)


def keys_and_values(kv_BS2HK: Tensor) -> tuple[Tensor, Tensor]:
    """Return the keys and the values in it, each [B, H, S, K]."""
    k, v = kv_BS2HK.transpose(1, 3).unbind(2)
    return k, v


class Attention(nn.Module):
    """softmax(QKᵀ/√K)V in H heads and the projection of what they gather.

    Queries, keys and values come from `SelfAttention` or `CrossAttention`. Projecting and attending are apart because a
    decoder keeps keys and values between steps.
    """

    out: Linear

    def __init__(self, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.dropout = Dropout(dropout)

    def attend(self, q_BHQK: Tensor, k_BHSK: Tensor, v_BHSK: Tensor, mask: Tensor | None) -> Tensor:
        """Return what each query gathers, projected: [B, Q, D]."""
        if q_BHQK.is_cuda:
            rate = self.dropout.rate if self.training else 0.0
            gathered = F.scaled_dot_product_attention(q_BHQK, k_BHSK, v_BHSK, mask, dropout_p=rate)
        else:  # two products and a softmax: the CPU's fused kernel is slow backwards on short sentences
            scores_BHQS = (q_BHQK / math.sqrt(q_BHQK.shape[-1])) @ k_BHSK.transpose(-1, -2)
            gathered = self.dropout(masked_softmax(scores_BHQS, mask)) @ v_BHSK
        joined: Tensor = self.out(gathered.transpose(1, 2).flatten(2))
        return joined

    def _split(self, x_BTX: Tensor, parts: int) -> Tensor:
        sentences, tokens, width = x_BTX.shape
        return x_BTX.view(sentences, tokens, parts, self.heads, width // parts // self.heads)


class SelfAttention(Attention):
    """Attention of a sequence to itself."""

    def __init__(self, dim: int, heads: int, dropout: float) -> None:
        super().__init__(heads, dropout)
        self.qkv = Linear(dim, 3 * dim, parts=3)
        self.out = Linear(dim, dim)

    def project(self, x_BTD: Tensor) -> tuple[Tensor, Tensor]:
        """Return queries [B, H, T, K], and keys and values in one [B, T, 2, H, K], by one product."""
        qkv_BT3HK = self._split(self.qkv(x_BTD), 3)
        return qkv_BT3HK[:, :, 0].transpose(1, 2), qkv_BT3HK[:, :, 1:]


class CrossAttention(Attention):
    """Attention to another sequence, whose keys and values are made once."""

    def __init__(self, dim: int, heads: int, dropout: float) -> None:
        super().__init__(heads, dropout)
        self.q = Linear(dim, dim)
        self.kv = Linear(dim, 2 * dim, parts=2)
        self.out = Linear(dim, dim)

    def project_q(self, x_BQD: Tensor) -> Tensor:
        """Return queries [B, H, Q, K]."""
        return self._split(self.q(x_BQD), 1)[:, :, 0].transpose(1, 2)

    def project_kv(self, memory_BSD: Tensor) -> tuple[Tensor, Tensor]:
        """Return keys and values, each [B, H, S, K]."""
        return keys_and_values(self._split(self.kv(memory_BSD), 2))
