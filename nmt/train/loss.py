"""Label-smoothed cross-entropy that computes the logits in chunks.

Shape suffixes: N target positions without padding, D model dimension, V vocabulary.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

CHUNK = 1024
"""Number of positions per chunk. With V = 32k, its float32 logits take 128 MiB."""


class _ChunkedCrossEntropy(torch.autograd.Function):
    """Output projection and loss. The forward pass computes the gradient of each chunk while its logits exist.

    The gradient of the summed loss with respect to the logits z is softmax(z) - q, where q is the smoothed target
    distribution, so the backward pass needs no stored or recomputed logits. The uniform part of q, ε/V, is the same for
    all positions and tokens; it is subtracted once from the matrix products instead of from every element.
    """

    @staticmethod
    def forward(
        ctx: Any, hidden_ND: Tensor, weight_VD: Tensor, labels_N: Tensor, smoothing: float, need_grad: bool
    ) -> Tensor:
        weight = weight_VD.to(hidden_ND.dtype)
        uniform = smoothing / len(weight)
        grad_hidden = torch.empty_like(hidden_ND) if need_grad else None
        grad_weight = torch.zeros_like(weight_VD) if need_grad else None
        total = torch.zeros((), dtype=torch.float32, device=hidden_ND.device)
        for start in range(0, len(hidden_ND), CHUNK):
            hidden, target_N1 = hidden_ND[start : start + CHUNK], labels_N[start : start + CHUNK, None]
            logits_NV = (hidden @ weight.t()).float()
            prob_NV = logits_NV.softmax(-1)  # log Z follows from the maximum, which never underflows
            log_z_N = logits_NV.amax(-1) - prob_NV.amax(-1).log()
            total += log_z_N.sum() - (1 - smoothing) * logits_NV.gather(1, target_N1).sum()
            if smoothing:
                total -= uniform * logits_NV.sum()
            if grad_hidden is None or grad_weight is None:
                continue
            prob_NV.scatter_add_(1, target_N1, prob_NV.new_full((), smoothing - 1).expand_as(target_N1))
            grad = prob_NV.to(hidden.dtype)
            grad_hidden[start : start + CHUNK] = grad @ weight
            grad_weight += grad.t() @ hidden
        if smoothing and grad_hidden is not None and grad_weight is not None:
            grad_hidden -= uniform * weight.sum(0, dtype=torch.float32)
            grad_weight -= uniform * hidden_ND.sum(0, dtype=torch.float32)
        ctx.grads = grad_hidden, grad_weight
        return total

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None, None, None]:
        grad_hidden, grad_weight = ctx.grads
        return grad_hidden.mul_(grad.to(grad_hidden.dtype)), grad_weight.mul_(grad), None, None, None


def cross_entropy(hidden_ND: Tensor, weight_VD: Tensor, labels_N: Tensor, *, smoothing: float) -> Tensor:
    """Return the label-smoothed cross-entropy in nats, summed over N positions.

    loss = -Σ_n Σ_v q(v) log p_n(v), where q assigns 1-ε to the target and ε/V to every token (Szegedy et al. 2016,
    section 7; ε = `smoothing`) and p_n = softmax(hidden_n Wᵀ). The caller divides the sum by the number of tokens of
    the update, so that all tokens have equal weight in all microbatches and ranks.
    """
    need_grad = torch.is_grad_enabled() and (hidden_ND.requires_grad or weight_VD.requires_grad)
    loss: Tensor = _ChunkedCrossEntropy.apply(hidden_ND, weight_VD, labels_N, smoothing, need_grad)  # type: ignore[no-untyped-call]
    return loss
