"""The loss of training: label-smoothed cross-entropy that computes the logits in chunks, and distillation.

Shape suffixes: N target positions without padding, D model dimension, V vocabulary.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from nmt.data.batching import Batch
from nmt.model.seq2seq import Seq2Seq

if TYPE_CHECKING:  # imports this module
    from nmt.train.distillation import Teacher

CHUNK = 1024
"""Number of positions per chunk, whose logits are computed together. With V = 32k, they take 64 MiB in bf16."""
BLOCK_NUMEL = 2**19
"""Number of logits whose softmax is computed together on a CPU: 2 MiB in float32, which fits in the cache."""


class _ChunkedCrossEntropy(torch.autograd.Function):
    """Output projection and loss. The forward pass computes the gradient of each chunk while its logits exist.

    The gradient of the summed loss with respect to the logits z is softmax(z) - q, where q is the smoothed target
    distribution, so the backward pass needs no stored or recomputed logits. The uniform part of q, ε/V, is the same for
    all positions and tokens; it is subtracted once from sums and products instead of from every element.
    """

    @staticmethod
    def forward(
        ctx: Any,
        hidden_ND: Tensor,
        weight_VD: Tensor,
        bias_V: Tensor | None,
        labels_N: Tensor,
        smoothing: float,
        need_grad: bool,
    ) -> Tensor:
        weight = weight_VD.to(hidden_ND.dtype)
        uniform = smoothing / len(weight)
        block = max(16, BLOCK_NUMEL // len(weight)) if hidden_ND.device.type == "cpu" else CHUNK
        grad_hidden = torch.empty_like(hidden_ND) if need_grad else None
        grad_weight = torch.zeros_like(weight_VD) if need_grad else None
        grad_bias = torch.zeros_like(bias_V) if need_grad and bias_V is not None else None
        total = torch.zeros((), dtype=torch.float32, device=hidden_ND.device)
        for start in range(0, len(hidden_ND), CHUNK):
            hidden, target_N1 = hidden_ND[start : start + CHUNK], labels_N[start : start + CHUNK, None]
            logits_NV = hidden @ weight.t()
            for first in range(0, len(hidden), block):
                rows, targets = slice(first, first + block), target_N1[first : first + block]
                prob = logits_NV[rows].float()
                if bias_V is not None:
                    prob += bias_V
                total -= (1 - smoothing) * prob.gather(1, targets).sum()
                max_N1 = prob.amax(-1, keepdim=True)
                sum_N1 = prob.sub_(max_N1).exp_().sum(-1, keepdim=True)
                total += (max_N1 + sum_N1.log()).sum()
                if grad_weight is None:
                    continue
                prob.div_(sum_N1).scatter_add_(1, targets, prob.new_full((), smoothing - 1).expand_as(targets))
                if grad_bias is not None:
                    grad_bias += prob.sum(0)
                logits_NV[rows] = prob  # the gradient replaces the logits
            if grad_hidden is not None and grad_weight is not None:
                grad_hidden[start : start + CHUNK] = logits_NV @ weight
                grad_weight += logits_NV.t() @ hidden
        if smoothing:
            hidden_sum, weight_sum = hidden_ND.sum(0, dtype=torch.float32), weight.sum(0, dtype=torch.float32)
            total -= uniform * (hidden_sum @ weight_sum)
            if bias_V is not None:
                total -= uniform * len(hidden_ND) * bias_V.sum()
            if grad_hidden is not None and grad_weight is not None:
                grad_hidden -= uniform * weight_sum
                grad_weight -= uniform * hidden_sum
            if grad_bias is not None:
                grad_bias -= uniform * len(hidden_ND)
        ctx.grads = grad_hidden, grad_weight, grad_bias
        return total

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        scaled = [None if each is None else each.mul_(grad.to(each.dtype)) for each in ctx.grads]
        return *scaled, None, None, None


def cross_entropy(
    hidden_ND: Tensor, weight_VD: Tensor, labels_N: Tensor, *, smoothing: float, bias_V: Tensor | None = None
) -> Tensor:
    """Return the label-smoothed cross-entropy in nats, summed over N positions.

    loss = -Σ_n Σ_v q(v) log p_n(v), where q assigns 1-ε to the target and ε/V to every token (Szegedy et al. 2016,
    section 7; ε = `smoothing`) and p_n = softmax(hidden_n Wᵀ + b). The caller divides the sum by the number of tokens
    of the update, so that all tokens have equal weight in all microbatches and ranks.
    """
    need_grad = torch.is_grad_enabled() and (hidden_ND.requires_grad or weight_VD.requires_grad)
    arguments = (hidden_ND, weight_VD, bias_V, labels_N, smoothing, need_grad)
    loss: Tensor = _ChunkedCrossEntropy.apply(*arguments)  # type: ignore[no-untyped-call]
    return loss


def batch_loss(model: Seq2Seq, batch: Batch, *, smoothing: float, teacher: Teacher | None = None) -> Tensor:
    """Return the loss of a batch in nats, summed over its target tokens.

    It is the label-smoothed cross-entropy, or with a teacher that of `nmt.train.distillation`.
    """
    hidden_ND = model(batch.src_BS, batch.src_mask_BS, batch.tgt_in_BT, batch.target_index_N)
    weight_VD, bias_V = model.output_weight_VD, model.output_bias_V
    loss = cross_entropy(hidden_ND, weight_VD, batch.labels_N, smoothing=smoothing, bias_V=bias_V)
    return loss + teacher.additional_loss(model, batch, hidden_ND, smoothing=smoothing) if teacher else loss
