"""Label-smoothed cross-entropy that never holds a whole update's logits.

Shape letters: N real target positions, D width, V vocabulary.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

CHUNK = 1024
"""Positions projected at a time: with V = 32k their float32 logits take 128 MiB."""


class _ChunkedCrossEntropy(torch.autograd.Function):
    """Projection and loss in one: each chunk's gradient is made while its logits exist.

    The gradient of the summed loss with respect to the logits z is softmax(z) - q, q the smoothed target. Nothing needs
    to be kept or computed again for the backward pass. The even part of q, ε/V everywhere, is the same for all
    positions and pieces: it is taken off the products at the end instead of off every element.
    """

    @staticmethod
    def forward(
        ctx: Any, hidden_ND: Tensor, weight_VD: Tensor, labels_N: Tensor, smoothing: float, need_grad: bool
    ) -> Tensor:
        weight = weight_VD.to(hidden_ND.dtype)
        even = smoothing / len(weight)
        grad_hidden = torch.empty_like(hidden_ND) if need_grad else None
        grad_weight = torch.zeros_like(weight_VD) if need_grad else None
        total = torch.zeros((), dtype=torch.float32, device=hidden_ND.device)
        for start in range(0, len(hidden_ND), CHUNK):
            hidden, target_N1 = hidden_ND[start : start + CHUNK], labels_N[start : start + CHUNK, None]
            logits_NV = (hidden @ weight.t()).float()
            prob_NV = logits_NV.softmax(-1)  # one pass; log Z follows from the largest, which never underflows
            log_z_N = logits_NV.amax(-1) - prob_NV.amax(-1).log()
            total += log_z_N.sum() - (1 - smoothing) * logits_NV.gather(1, target_N1).sum()
            if smoothing:
                total -= even * logits_NV.sum()
            if grad_hidden is None or grad_weight is None:
                continue
            prob_NV.scatter_add_(1, target_N1, prob_NV.new_full((), smoothing - 1).expand_as(target_N1))
            grad = prob_NV.to(hidden.dtype)
            grad_hidden[start : start + CHUNK] = grad @ weight
            grad_weight += grad.t() @ hidden
        if smoothing and grad_hidden is not None and grad_weight is not None:
            grad_hidden -= even * weight.sum(0, dtype=torch.float32)
            grad_weight -= even * hidden_ND.sum(0, dtype=torch.float32)
        ctx.grads = grad_hidden, grad_weight
        return total

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None, None, None]:
        grad_hidden, grad_weight = ctx.grads
        return grad_hidden.mul_(grad.to(grad_hidden.dtype)), grad_weight.mul_(grad), None, None, None


def cross_entropy(hidden_ND: Tensor, weight_VD: Tensor, labels_N: Tensor, *, smoothing: float) -> Tensor:
    """Return the label-smoothed cross-entropy in nats, summed over N positions.

    loss = -Σ_n Σ_v q(v) log p_n(v), where q puts 1-ε on the target and ε/V on every piece (Szegedy et al. 2016,
    section 7; ε = `smoothing`) and p_n = softmax(hidden_n Wᵀ). The sum is divided by the tokens of the whole
    update by the caller, so that micro-batches and devices weigh by their tokens.
    """
    need_grad = torch.is_grad_enabled() and (hidden_ND.requires_grad or weight_VD.requires_grad)
    loss: Tensor = _ChunkedCrossEntropy.apply(hidden_ND, weight_VD, labels_N, smoothing, need_grad)  # type: ignore[no-untyped-call]
    return loss
