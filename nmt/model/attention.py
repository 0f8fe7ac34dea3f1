"""Attention in several heads (Vaswani et al. 2017, section 3.2), its scoring functions, and its restricted form.

Shape letters: B sentences, T tokens, Q queries, S source tokens or keys, D width, H heads of queries, G heads of keys
and values, K head width, N blocks. Masks are boolean, True = attend, broadcastable to [B, H, Q, S].
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from nmt.config import ModelConfig
from nmt.model.layers import Dropout, Linear
from nmt.model.positions import Place


def masked_softmax(scores_BHQS: Tensor, mask: Tensor | None) -> Tensor:
    """Softmax over the last axis in which masked places weigh exactly zero; a fully masked row is all zero.

    The fill is finite, not -inf, because a row of -inf becomes NaN and its gradient stays NaN however it is
    covered up afterward.
    """
    if mask is None:
        return scores_BHQS.softmax(-1)
    filled = scores_BHQS.masked_fill(~mask, torch.finfo(scores_BHQS.dtype).min)
    return filled.softmax(-1).masked_fill(~mask, 0.0)


def keys_and_values(kv_BS2GK: Tensor) -> tuple[Tensor, Tensor]:
    """Return the keys and the values in it, each [B, G, S, K]."""
    k, v = kv_BS2GK.transpose(1, 3).unbind(2)
    return k, v


class Dot(nn.Module):
    """qkᵀ/√K, the scaled dot product (Vaswani et al. 2017, equation 1)."""

    def __init__(self, heads: int, width: int) -> None:
        super().__init__()

    def forward(self, q_BHQK: Tensor, k_BHSK: Tensor) -> Tensor:
        """Return the scores [B, H, Q, S] of queries that are scaled already."""
        return q_BHQK @ k_BHSK.transpose(-1, -2)


class Additive(nn.Module):
    """w_vᵀ tanh(W_q q + W_k k) (Bahdanau et al. 2015, appendix A.1.2), with w_v of each head's own.

    W_q and W_k are the projections that the attention makes anyway, which here have a bias. All Q·S sums are held at
    once, so it takes K times the memory of a dot product.
    """

    def __init__(self, heads: int, width: int) -> None:
        super().__init__()
        self.weight_HK = nn.Parameter(torch.empty(heads, width).uniform_(-1, 1) * math.sqrt(3 / width))

    def forward(self, q_BHQK: Tensor, k_BHSK: Tensor) -> Tensor:
        """Return the scores, [B, H, Q, S]."""
        sums_BHQSK = torch.tanh(q_BHQK[:, :, :, None] + k_BHSK[:, :, None])
        weight_HK1 = self.weight_HK[:, None, :, None].to(sums_BHQSK.dtype)
        scores_BHQS: Tensor = (sums_BHQSK @ weight_HK1)[..., 0]
        return scores_BHQS


ATTENTION_SCORES: dict[str, type[Dot] | type[Additive]] = {"dot": Dot, "additive": Additive}


class Attention(nn.Module):
    """What each query gathers from values, by the softmax of its scores with the keys, and the projection of that.

    Queries, keys and values come from `SelfAttention` or `CrossAttention`. Projecting and gathering are apart because a
    decoder keeps keys and values between steps.
    """

    out: Linear

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.heads, self.kv_heads = config.heads, config.kv_heads or config.heads
        self.width = config.dim // config.heads
        self.scoring = ATTENTION_SCORES[config.attention_score](self.heads, self.width)
        self.scaled = isinstance(self.scoring, Dot)
        self.dropout = Dropout(config.attention_dropout)
        self.record: list[Tensor] | None = None
        """Where weights are noted, [B, H, Q, S], while someone looks; see `recording`."""

    def attend(
        self, q_BHQK: Tensor, k_BGSK: Tensor, v_BGSK: Tensor, mask: Tensor | None, place: Place | None = None
    ) -> Tensor:
        """Return what each query gathers, projected: [B, Q, D]."""
        joined: Tensor = self.out(self.gather(q_BHQK, k_BGSK, v_BGSK, mask, place).transpose(1, 2).flatten(2))
        return joined

    def gather(
        self, q_BHQK: Tensor, k_BGSK: Tensor, v_BGSK: Tensor, mask: Tensor | None, place: Place | None = None
    ) -> Tensor:
        """Return the sums of the values, weighted by attention: [B, H, Q, K]."""
        k_BHSK, v_BHSK = self.spread(k_BGSK), self.spread(v_BGSK)
        watched = self.record is not None or (place is not None and place.positions.weighs_values)
        if q_BHQK.is_cuda and self.scaled and not watched:
            return self.fused(q_BHQK, k_BHSK, v_BHSK, mask, place)
        # Two products and a softmax: the CPU's fused kernel is slow backwards on short sentences.
        weights_BHQS = self._weights(q_BHQK, k_BHSK, mask, place)
        if self.record is not None:
            self.record.append(weights_BHQS.detach())
        weights_BHQS = self.dropout(weights_BHQS)
        gathered_BHQK: Tensor = weights_BHQS @ v_BHSK
        extra_BHQK = place.value(weights_BHQS) if place else None
        return gathered_BHQK if extra_BHQK is None else gathered_BHQK + extra_BHQK

    def fused(self, q_BHQK: Tensor, k_BHSK: Tensor, v_BHSK: Tensor, mask: Tensor | None, place: Place | None) -> Tensor:
        """Do as `gather` for scaled dot products, by PyTorch's fused kernel, which is what is fast on a GPU."""
        q_BHQK = self._scale(q_BHQK, place)
        rate = self.dropout.rate if self.training else 0.0
        bias = place.score(q_BHQK, k_BHSK) if place else None
        if bias is None:
            return F.scaled_dot_product_attention(q_BHQK, k_BHSK, v_BHSK, mask, dropout_p=rate, scale=1.0)
        if mask is not None:  # half of the least number: a score that is added must not make it infinite
            bias = bias.masked_fill(~mask, torch.finfo(bias.dtype).min / 2)
        gathered_BHQK = F.scaled_dot_product_attention(q_BHQK, k_BHSK, v_BHSK, bias, dropout_p=rate, scale=1.0)
        if mask is None:
            return gathered_BHQK
        return gathered_BHQK.masked_fill(~mask.any(-1, keepdim=True), 0.0)

    def weights(self, q_BHQK: Tensor, k_BGSK: Tensor, mask: Tensor | None) -> Tensor:
        """Return how much each query takes of each value, [B, H, Q, S]."""
        return self._weights(q_BHQK, self.spread(k_BGSK), mask, None)

    def _weights(self, q_BHQK: Tensor, k_BHSK: Tensor, mask: Tensor | None, place: Place | None) -> Tensor:
        scaled_BHQK = self._scale(q_BHQK, place)
        scores_BHQS = self.scoring(scaled_BHQK if self.scaled else q_BHQK, k_BHSK)
        bias = place.score(scaled_BHQK, k_BHSK) if place else None
        return masked_softmax(scores_BHQS if bias is None else scores_BHQS + bias, mask)

    def _scale(self, q: Tensor, place: Place | None) -> Tensor:
        return q / math.sqrt((place.positions.terms if place else 1) * self.width)

    def spread(self, x_BGSK: Tensor) -> Tensor:
        """Give every head of queries its keys or values: [B, H, S, K]."""
        return x_BGSK if self.kv_heads == self.heads else x_BGSK.repeat_interleave(self.heads // self.kv_heads, 1)

    def _split(self, x_BTX: Tensor) -> Tensor:
        split_BTHK: Tensor = x_BTX.unflatten(-1, (-1, self.width))
        return split_BTHK


class SelfAttention(Attention):
    """Attention of a sequence to itself; heads may share keys and values (Ainslie et al. 2023, section 2.2)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        shared = self.kv_heads * self.width
        self.window = config.attention_window
        self.qkv = Linear(config.dim, config.dim + 2 * shared, parts=(config.dim, shared, shared))
        self.out = Linear(config.dim, config.dim)

    def project(self, x_BTD: Tensor, place: Place | None = None) -> tuple[Tensor, Tensor]:
        """Return queries [B, H, T, K], and keys and values in one [B, T, 2, G, K], by one product."""
        qkv_BTHK = self._split(self.qkv(x_BTD))
        q_BTHK, kv_BT2GK = qkv_BTHK[:, :, : self.heads], qkv_BTHK[:, :, self.heads :].unflatten(2, (2, -1))
        if place and place.positions.rotates:
            q_BTHK = place.rotate(q_BTHK)
            kv_BT2GK = torch.stack((place.rotate(kv_BT2GK[:, :, 0]), kv_BT2GK[:, :, 1]), 2)
        return q_BTHK.transpose(1, 2), kv_BT2GK

    def gather(
        self, q_BHQK: Tensor, k_BGSK: Tensor, v_BGSK: Tensor, mask: Tensor | None, place: Place | None = None
    ) -> Tensor:
        """Return what each query gathers, within the window if there is one."""
        queries, keys, reach = q_BHQK.shape[2], k_BGSK.shape[2], self.window
        if not reach or keys <= reach + 1:
            return super().gather(q_BHQK, k_BGSK, v_BGSK, mask, place)
        if queries == 1:
            first = keys - reach - 1
            moved = place and place._replace(start=place.start - first)
            return super().gather(q_BHQK, k_BGSK[:, :, first:], v_BGSK[:, :, first:], mask, moved)
        if queries < keys or self.record is not None:  # some steps of a decoder, or someone wants all weights
            start = keys - queries
            apart_QS = torch.arange(start, keys, device=q_BHQK.device)[:, None] - torch.arange(
                keys, device=q_BHQK.device
            )
            near = apart_QS.abs() <= reach
            return super().gather(q_BHQK, k_BGSK, v_BGSK, near if mask is None else mask & near, place)
        return self._within_window(q_BHQK, k_BGSK, v_BGSK, mask, place)

    def _within_window(
        self, q_BHSK: Tensor, k_BGSK: Tensor, v_BGSK: Tensor, mask: Tensor | None, place: Place | None
    ) -> Tensor:
        """Let each query see `window` keys on each side, at a cost that grows as window times length.

        The mask is one of keys, [B, 1, 1, S], or of two dimensions: then it is the look-ahead mask.

        Blocks of as many queries as the window is wide see their own block of keys and one on each side: attention of
        S/r short sequences instead of a long one.
        """
        reach, keys = self.window, k_BGSK.shape[2]
        blocks = -(-keys // reach)
        fill = blocks * reach - keys
        causal = mask is not None and mask.dim() == 2
        after = 0 if causal else reach
        q = F.pad(q_BHSK, (0, 0, 0, fill)).unflatten(2, (blocks, reach)).transpose(1, 2).flatten(0, 1)

        def around(x_BGSK: Tensor) -> Tensor:
            wide = F.pad(x_BGSK, (0, 0, reach, fill + after)).unfold(2, 2 * reach + after, reach)
            return wide.permute(0, 2, 1, 4, 3).flatten(0, 1)

        real_BS = torch.ones(1, keys, dtype=torch.bool, device=q.device)
        if mask is not None and not causal:
            real_BS = mask[:, 0, 0]
        real_BNW = F.pad(real_BS, (reach, fill + after)).unfold(1, 2 * reach + after, reach)
        apart = torch.arange(reach, 2 * reach, device=q.device)[:, None] - torch.arange(
            2 * reach + after, device=q.device
        )
        near = (apart <= reach) & (apart >= (0 if causal else -reach))
        real = real_BNW.expand(len(q_BHSK), -1, -1).flatten(0, 1)[:, None, None]
        moved = place and place._replace(start=reach)
        found = super().gather(q, around(k_BGSK), around(v_BGSK), near & real, moved)
        found_BHSK: Tensor = found.unflatten(0, (-1, blocks)).transpose(1, 2).flatten(2, 3)[:, :, :keys]
        return found_BHSK


class CrossAttention(Attention):
    """Attention to another sequence, whose keys and values are made once."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        shared = self.kv_heads * self.width
        self.q = Linear(config.dim, config.dim)
        self.kv = Linear(config.dim, 2 * shared, parts=(shared, shared))
        self.out = Linear(config.dim, config.dim)

    def project_q(self, x_BQD: Tensor) -> Tensor:
        """Return queries [B, H, Q, K]."""
        return self._split(self.q(x_BQD)).transpose(1, 2)

    def project_kv(self, memory_BSD: Tensor) -> tuple[Tensor, Tensor]:
        """Return keys and values, each [B, G, S, K]."""
        return keys_and_values(self._split(self.kv(memory_BSD)).unflatten(2, (2, -1)))


@contextmanager
def recording(model: nn.Module) -> Iterator[dict[str, list[Tensor]]]:
    """Note the weights of every attention in `model`, by its name, as often as it attends."""
    attentions = {name: module for name, module in model.named_modules() if isinstance(module, Attention)}
    for module in attentions.values():
        module.record = []
    try:
        yield {name: module.record for name, module in attentions.items() if module.record is not None}
    finally:
        for module in attentions.values():
            module.record = None
