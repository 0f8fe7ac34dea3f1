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

    The gradient of the summed loss with respect to the logits z is softmax(z) - q, q the smoothed target, so
    nothing needs to be kept or computed again for the backward pass.
    """

    @staticmethod
    def forward(
        ctx: Any, hidden_ND: Tensor, weight_VD: Tensor, target_N: Tensor, smoothing: float, need_grad: bool
    ) -> Tensor:
        weight = weight_VD.to(hidden_ND.dtype)
        vocabulary = len(weight)
        grad_hidden = torch.empty_like(hidden_ND) if need_grad else None
        grad_weight = torch.zeros_like(weight_VD) if need_grad else None
        total = torch.zeros((), dtype=torch.float32, device=hidden_ND.device)
        for start in range(0, len(hidden_ND), CHUNK):
            hidden, target_N1 = hidden_ND[start : start + CHUNK], target_N[start : start + CHUNK, None]
            logits_NV = (hidden @ weight.t()).float()
            log_z_N1 = logits_NV.logsumexp(-1, keepdim=True)
            total += (log_z_N1 - (1 - smoothing) * logits_NV.gather(1, target_N1)).sum()
            if smoothing:
                total -= smoothing / vocabulary * logits_NV.sum()
            if grad_hidden is None or grad_weight is None:
                continue
            grad_NV = logits_NV.sub_(log_z_N1).exp_()
            if smoothing:
                grad_NV.sub_(smoothing / vocabulary)
            grad_NV.scatter_add_(1, target_N1, grad_NV.new_full((), smoothing - 1).expand_as(target_N1))
            grad = grad_NV.to(hidden.dtype)
            grad_hidden[start : start + CHUNK] = grad @ weight
            grad_weight += grad.t() @ hidden
        ctx.grads = grad_hidden, grad_weight
        return total

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None, None, None]:
        grad_hidden, grad_weight = ctx.grads
        return grad_hidden.mul_(grad.to(grad_hidden.dtype)), grad_weight.mul_(grad), None, None, None


def cross_entropy(hidden_ND: Tensor, weight_VD: Tensor, target_N: Tensor, *, smoothing: float) -> Tensor:
    """Return the label-smoothed cross-entropy in nats, summed over N positions.

    loss = -Σ_n Σ_v q(v) log p_n(v), where q puts 1-ε on the target and ε/V on every piece (Szegedy et al. 2016,
    section 7; ε = `smoothing`) and p_n = softmax(hidden_n Wᵀ). The sum is divided by the tokens of the whole
    update by the caller, so that micro-batches and devices weigh by their tokens.
    """
    need_grad = torch.is_grad_enabled() and (hidden_ND.requires_grad or weight_VD.requires_grad)
    loss: Tensor = _ChunkedCrossEntropy.apply(hidden_ND, weight_VD, target_N, smoothing, need_grad)  # type: ignore[no-untyped-call]
    return loss
