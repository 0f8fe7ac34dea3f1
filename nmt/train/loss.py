"""Cross-entropy with label smoothing and distillation that computes the logits in chunks.

Shape suffixes: N target positions without padding, D model dimension, V vocabulary, J tokens of a sparse target.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from nmt.data.batching import Batch
from nmt.model.seq2seq import Seq2Seq

CHUNK = 1024
"""Number of positions per chunk, whose logits are computed together. With V = 32k, they take 64 MiB in bf16."""
BLOCK_NUMEL = 2**19
"""Number of logits whose softmax is computed together on a CPU: 2 MiB in float32, which fits in the cache."""


class Targets(NamedTuple):
    """A target distribution per position: a few tokens with weights, plus an equal share for every token.

    It takes J values per position instead of V.
    """

    index_NJ: Tensor
    """Tokens; a token may occur twice, and its weights add up."""
    weight_NJ: Tensor
    """Their probability without the equal share; may be negative."""
    uniform_N1: Tensor
    """Probability that every token of the vocabulary has."""


class _ChunkedCrossEntropy(torch.autograd.Function):
    """Output projection and loss. The forward pass computes the gradient of each chunk while its logits exist.

    The gradient of the summed loss with respect to the logits z is softmax(z) - q, where q is the target distribution,
    so the backward pass needs no stored or recomputed logits. The uniform part of q is the same for all tokens; it is
    subtracted once from sums and products instead of from every element.
    """

    @staticmethod
    def forward(
        ctx: Any,
        hidden_ND: Tensor,
        weight_VD: Tensor,
        bias_V: Tensor | None,
        index_NJ: Tensor,
        weight_NJ: Tensor,
        uniform_N1: Tensor,
        need_grad: bool,
    ) -> Tensor:
        weight = weight_VD.to(hidden_ND.dtype)
        block = max(16, BLOCK_NUMEL // len(weight)) if hidden_ND.device.type == "cpu" else CHUNK
        grad_hidden = torch.empty_like(hidden_ND) if need_grad else None
        grad_weight = torch.zeros_like(weight_VD) if need_grad else None
        grad_bias = torch.zeros_like(bias_V) if need_grad and bias_V is not None else None
        total = torch.zeros((), dtype=torch.float32, device=hidden_ND.device)
        for start in range(0, len(hidden_ND), CHUNK):
            hidden, index, share = (x[start : start + CHUNK] for x in (hidden_ND, index_NJ, weight_NJ))
            logits_NV = hidden @ weight.t()
            for first in range(0, len(hidden), block):
                rows = slice(first, first + block)
                prob = logits_NV[rows].float()
                if bias_V is not None:
                    prob += bias_V
                total -= (share[rows] * prob.gather(1, index[rows])).sum()
                max_N1 = prob.amax(-1, keepdim=True)
                sum_N1 = prob.sub_(max_N1).exp_().sum(-1, keepdim=True)
                total += (max_N1 + sum_N1.log()).sum()
                if grad_weight is None:
                    continue
                prob.div_(sum_N1).scatter_add_(1, index[rows], -share[rows])
                if grad_bias is not None:
                    grad_bias += prob.sum(0)
                logits_NV[rows] = prob  # the gradient replaces the logits
            if grad_hidden is not None and grad_weight is not None:
                grad_hidden[start : start + CHUNK] = logits_NV @ weight
                grad_weight += logits_NV.t() @ hidden
        weight_sum_D = weight.sum(0, dtype=torch.float32)
        hidden_sum_D = (uniform_N1 * hidden_ND).sum(0)
        total -= hidden_sum_D @ weight_sum_D
        if bias_V is not None:
            total -= uniform_N1.sum() * bias_V.sum()
        if grad_hidden is not None and grad_weight is not None:
            grad_hidden -= uniform_N1 * weight_sum_D
            grad_weight -= hidden_sum_D
        if grad_bias is not None:
            grad_bias -= uniform_N1.sum()
        ctx.grads = grad_hidden, grad_weight, grad_bias
        return total

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        scaled = [None if each is None else each.mul_(grad.to(each.dtype)) for each in ctx.grads]
        return *scaled, None, None, None, None


def cross_entropy(
    hidden_ND: Tensor, weight_VD: Tensor, labels_N: Tensor, *, smoothing: float, bias_V: Tensor | None = None
) -> Tensor:
    """Return the label-smoothed cross-entropy in nats, summed over N positions.

    loss = -Σ_n Σ_v q(v) log p_n(v), where q assigns 1-ε to the target and ε/V to every token (Szegedy et al. 2016,
    section 7; ε = `smoothing`) and p_n = softmax(hidden_n Wᵀ + b). The caller divides the sum by the number of tokens
    of the update, so that all tokens have equal weight in all microbatches and ranks.
    """
    index_N1 = labels_N[:, None]
    weight_11, uniform_11 = (weight_VD.new_full((1, 1), x) for x in (1 - smoothing, smoothing / len(weight_VD)))
    targets = Targets(index_N1, weight_11.expand_as(index_N1), uniform_11.expand_as(index_N1))
    return target_cross_entropy(hidden_ND, weight_VD, targets, bias_V=bias_V)


def target_cross_entropy(
    hidden_ND: Tensor, weight_VD: Tensor, targets: Targets, *, bias_V: Tensor | None = None
) -> Tensor:
    """Return the cross-entropy -Σ_n Σ_v q_n(v) log p_n(v) of any target distribution q, summed over N positions."""
    need_grad = torch.is_grad_enabled() and (hidden_ND.requires_grad or weight_VD.requires_grad)
    arguments = (hidden_ND, weight_VD, bias_V, *targets, need_grad)
    loss: Tensor = _ChunkedCrossEntropy.apply(*arguments)  # type: ignore[no-untyped-call]
    return loss


def batch_loss(model: Seq2Seq, batch: Batch, *, smoothing: float) -> Tensor:
    """Return the label-smoothed cross-entropy of a batch in nats, summed over its target tokens."""
    hidden_ND = model(batch.src_BS, batch.src_mask_BS, batch.tgt_in_BT, batch.target_index_N)
    weight_VD, bias_V = model.output_weight_VD, model.output_bias_V
    return cross_entropy(hidden_ND, weight_VD, batch.labels_N, smoothing=smoothing, bias_V=bias_V)
