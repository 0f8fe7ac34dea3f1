"""Label-smoothed cross-entropy that computes the logits in chunks; `nmt.training.step.batch_loss`
adds distillation.

Shape suffixes: N target positions without padding, D model dimension, V vocabulary.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

CHUNK = 1024
GPU_CHUNK = 4096
COMPILED_GPU_CHUNK = 12_800
"""Number of positions per chunk, whose logits are computed together. With V = 32k, they take 64 MiB
in bf16 on a CPU. A GPU needs larger matrices to be busy: 256 MiB, and 800 MiB if the loss is
compiled, and no larger copy in float32 exists."""
BLOCK_NUMEL = 2**19
"""Number of logits whose softmax is computed together on a CPU: 2 MiB in float32, which fits in the
cache."""


def chunk_size(device: torch.device, *, compiled: bool = False) -> int:
    """Return the number of positions per chunk."""
    if device.type == "cpu":
        return CHUNK
    return COMPILED_GPU_CHUNK if compiled else GPU_CHUNK


LogitsLoss = Callable[
    [Tensor, Tensor, Tensor | None, Tensor | None, float, bool], tuple[Tensor, Tensor | None]
]
"""Computes the loss of a chunk, without the uniform part, from logits_NV, targets_N1, weight_N1
(None: all 1), bias_V, `smoothing` and `need_grad`. If `need_grad`, it also returns the gradient of
the bias, and replaces the logits by their gradient."""


def logits_loss(
    logits_NV: Tensor,
    targets_N1: Tensor,
    weight_N1: Tensor | None,
    bias_V: Tensor | None,
    smoothing: float,
    need_grad: bool,
) -> tuple[Tensor, Tensor | None]:
    """Compute a `LogitsLoss` by PyTorch's operators, on a CPU in blocks that fit in the cache."""
    num_rows, vocab_size = logits_NV.shape
    is_cpu = logits_NV.device.type == "cpu"
    block = max(16, BLOCK_NUMEL // vocab_size) if is_cpu else num_rows
    loss = logits_NV.new_zeros((), dtype=torch.float32)
    grad_bias_V = torch.zeros_like(bias_V) if need_grad and bias_V is not None else None
    for first in range(0, num_rows, block):
        end = first + block
        weight = None if weight_N1 is None else weight_N1[first:end]
        block_NV = logits_NV[first:end]
        gradient_NV = _add_block(
            loss, block_NV, targets_N1[first:end], weight, bias_V, smoothing, need_grad
        )
        if gradient_NV is None:
            continue
        if grad_bias_V is not None:
            grad_bias_V += gradient_NV.sum(0)
        block_NV.copy_(gradient_NV)
    return loss, grad_bias_V


def _add_block(
    total: Tensor,
    logits_NV: Tensor,
    targets_N1: Tensor,
    weight_N1: Tensor | None,
    bias_V: Tensor | None,
    smoothing: float,
    need_grad: bool,
) -> Tensor | None:
    """Add the loss of a block to `total`, and return the gradient of its logits in float32."""
    # Becomes, in place, the exponentials, probabilities and gradient.
    value_NV = logits_NV.float()
    if bias_V is not None:
        value_NV += bias_V
    total -= (1 - smoothing) * _weighted(value_NV.gather(1, targets_N1), weight_N1).sum()
    max_N1 = value_NV.amax(-1, keepdim=True)
    sum_N1 = value_NV.sub_(max_N1).exp_().sum(-1, keepdim=True)
    total += _weighted(max_N1 + sum_N1.log(), weight_N1).sum()
    if not need_grad:
        return None
    _to_gradient(value_NV, sum_N1, targets_N1, smoothing)
    if weight_N1 is not None:
        value_NV *= weight_N1
    return value_NV


def _to_gradient(exp_NV: Tensor, sum_N1: Tensor, targets_N1: Tensor, smoothing: float) -> None:
    """Turn the exponentials of logits into the gradient in place: probabilities minus the target
    distribution."""
    target_grad_N1 = exp_NV.new_full(targets_N1.shape, smoothing - 1)
    exp_NV.div_(sum_N1)
    exp_NV.scatter_add_(1, targets_N1, target_grad_N1)


def _weighted(values_N1: Tensor, weight_N1: Tensor | None) -> Tensor:
    return values_N1 if weight_N1 is None else values_N1 * weight_N1


def compiled_logits_loss(*arguments: Any) -> tuple[Tensor, Tensor | None]:
    """Compute a `LogitsLoss` in two compiled passes over the logits, which read and write them in
    their own dtype."""
    return compiled_loss(dynamic=True)(*arguments)


def packed_logits_loss(*arguments: Any) -> tuple[Tensor, Tensor | None]:
    """Compute a `LogitsLoss` like `compiled_logits_loss`, compiled for each size: packed batches
    have chunks of one or two."""
    return compiled_loss(dynamic=False)(*arguments)


@functools.cache
def compiled_loss(*, dynamic: bool) -> LogitsLoss:
    """Compile `fused_logits_loss`."""
    return torch.compile(fused_logits_loss, dynamic=dynamic)


def fused_logits_loss(
    logits_NV: Tensor,
    targets_N1: Tensor,
    weight_N1: Tensor | None,
    bias_V: Tensor | None,
    smoothing: float,
    need_grad: bool,
) -> tuple[Tensor, Tensor | None]:
    """Compute a `LogitsLoss`, to be compiled.

    The target is found by comparison and not by indexing, so that the gradient is one elementwise
    operation.
    """
    value_NV = logits_NV.float() if bias_V is None else logits_NV.float() + bias_V
    log_sum_N1 = value_NV.logsumexp(-1, keepdim=True)
    log_p_N1 = (1 - smoothing) * value_NV.gather(1, targets_N1)
    loss = _weighted(log_sum_N1 - log_p_N1, weight_N1).sum()
    if not need_grad:
        return loss, None
    is_target_NV = torch.arange(logits_NV.shape[1], device=logits_NV.device) == targets_N1
    grad_NV = (value_NV - log_sum_N1).exp() - is_target_NV * (1 - smoothing)
    grad_NV = _weighted(grad_NV, weight_N1)
    grad_bias_V = None if bias_V is None else grad_NV.sum(0)
    logits_NV.copy_(grad_NV)
    return loss, grad_bias_V


def _subtract_uniform(
    smoothing: float,
    hidden_ND: Tensor,
    weight_VD: Tensor,
    weight_N1: Tensor | None,
    bias_V: Tensor | None,
    total: Tensor,
    grad_hidden: Tensor,
    grad_weight: Tensor,
    grad_bias: Tensor | None,
) -> None:
    """Subtract the uniform part of the target distribution from the loss and the gradients."""
    uniform = smoothing / len(weight_VD)
    if weight_N1 is None:
        hidden_sum = hidden_ND.sum(0, dtype=torch.float32)
        num_positions: float | Tensor = len(hidden_ND)
    else:
        hidden_sum = (hidden_ND.float().t() @ weight_N1)[:, 0]
        num_positions = weight_N1.sum()
    weight_sum = weight_VD.sum(0, dtype=torch.float32)
    total -= uniform * (hidden_sum @ weight_sum)
    grad_hidden -= _weighted(uniform * weight_sum, weight_N1)
    grad_weight -= uniform * hidden_sum
    if bias_V is not None and grad_bias is not None:
        total -= uniform * num_positions * bias_V.sum()
        grad_bias -= uniform * num_positions


class _ChunkedCrossEntropy(torch.autograd.Function):
    """Output projection and loss. The forward pass computes the gradient of each chunk while its
    logits exist.

    The gradient of the summed loss with respect to the logits z is softmax(z) - q, where q is the
    smoothed target distribution, so the backward pass needs no stored or recomputed logits. The
    uniform part of q, ε/V, is the same for all positions and tokens; it is subtracted once from
    sums and products instead of from every element.
    """

    @staticmethod
    def forward(
        ctx: Any,
        hidden_ND: Tensor,
        weight_VD: Tensor,
        bias_V: Tensor | None,
        labels_N1: Tensor,
        weight_N1: Tensor | None,
        smoothing: float,
        need_grad: bool,
        logits_loss: LogitsLoss,
    ) -> Tensor:
        weight = weight_VD.to(hidden_ND.dtype)
        ctx.grads = _empty_gradients(hidden_ND, weight_VD, bias_V, need_grad)
        grad_hidden, grad_weight, grad_bias = ctx.grads
        total = hidden_ND.new_zeros((), dtype=torch.float32)
        is_compiled = logits_loss in (compiled_logits_loss, packed_logits_loss)
        chunk = chunk_size(hidden_ND.device, compiled=is_compiled)
        for start in range(0, len(hidden_ND), chunk):
            end = start + chunk
            hidden = hidden_ND[start:end]
            labels = labels_N1[start:end]
            label_weight = None if weight_N1 is None else weight_N1[start:end]
            logits_NV = hidden @ weight.t()
            loss, grad_bias_V = logits_loss(
                logits_NV, labels, label_weight, bias_V, smoothing, need_grad
            )
            total += loss
            if need_grad:
                grad_hidden[start:end] = logits_NV @ weight
                grad_weight += logits_NV.t() @ hidden
            if grad_bias_V is not None:
                grad_bias += grad_bias_V
        if smoothing:
            _subtract_uniform(smoothing, hidden_ND, weight, weight_N1, bias_V, total, *ctx.grads)
        return total

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        scaled = [None if each is None else each.mul_(grad.to(each.dtype)) for each in ctx.grads]
        return *scaled, None, None, None, None, None


def _empty_gradients(
    hidden_ND: Tensor, weight_VD: Tensor, bias_V: Tensor | None, need_grad: bool
) -> tuple[Tensor, Tensor, Any]:
    """Return tensors for the gradients; those that are not needed have no rows."""
    grad_hidden = torch.empty_like(hidden_ND if need_grad else hidden_ND[:0])
    grad_weight = torch.zeros_like(weight_VD if need_grad else weight_VD[:0])
    grad_bias = None if bias_V is None else torch.zeros_like(bias_V)
    return grad_hidden, grad_weight, grad_bias


def cross_entropy(
    hidden_ND: Tensor,
    weight_VD: Tensor,
    labels_N: Tensor,
    *,
    smoothing: float,
    weight_N: Tensor | None = None,
    bias_V: Tensor | None = None,
    logits_loss: LogitsLoss = logits_loss,
) -> Tensor:
    """Return the label-smoothed cross-entropy in nats, summed over N positions.

    loss = -Σ_n w_n Σ_v q_n(v) log p_n(v), where q_n(v) = (1-ε)[v = label_n] + ε/V (Szegedy et al.
    2016, section 7; ε = `smoothing`), p_n = softmax(hidden_n Wᵀ + b) and w_n = `weight_N`, 1 by
    default. The caller divides the sum by the number of tokens of the update, so that all tokens
    have equal weight in all microbatches and ranks.
    """
    need_grad = torch.is_grad_enabled() and (hidden_ND.requires_grad or weight_VD.requires_grad)
    loss: Tensor = _ChunkedCrossEntropy.apply(  # type: ignore[no-untyped-call]
        hidden_ND,
        weight_VD,
        bias_V,
        labels_N[:, None],
        None if weight_N is None else weight_N[:, None],
        smoothing,
        need_grad,
        logits_loss,
    )
    return loss
