"""One update: forward and backward passes, all-reduce, gradient clipping and optimizer step."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.amp.grad_scaler import GradScaler

from nmt import runtime
from nmt.config import TrainConfig
from nmt.data.batching import Batch
from nmt.errors import TrainingError
from nmt.model.seq2seq import Seq2Seq
from nmt.train.distillation import Teacher
from nmt.train.distributed import RankGroup
from nmt.train.loss import batch_loss


@dataclass(frozen=True)
class StepStats:
    """Statistics of one update."""

    loss: float
    """Label-smoothed cross-entropy per target token in nats, or the loss of `nmt.train.distillation`."""
    tokens: int
    grad_norm: float
    skipped: bool = False
    """fp16 only: the gradient overflowed, so the update was skipped and the loss scale reduced."""


def train_step(
    model: Seq2Seq,
    microbatches: Sequence[Batch],
    optimizer: torch.optim.Optimizer,
    config: TrainConfig,
    *,
    tokens: int | None = None,
    scaler: GradScaler | None = None,
    group: RankGroup | None = None,
    teacher: Teacher | None = None,
) -> StepStats:
    """Make one update from one or more microbatches.

    The loss is summed over all microbatches and ranks and divided by their total number of target tokens. Apart from
    dropout masks, the result does not depend on how an update is split.

    Args:
        model: the model, in training mode.
        microbatches: this rank's batches, on the model's device; may be empty.
        optimizer: the optimizer, with its learning rate set.
        config: label smoothing and gradient clipping.
        tokens: target tokens of all ranks; None: those of `microbatches`.
        scaler: gradient scaler, required for the narrow range of fp16 (Micikevicius et al. 2018). An overflow then
            skips the update and reduces the scale instead of raising.
        group: the ranks that make this update together.
        teacher: the model to distill.

    Raises:
        TrainingError: the loss or the gradient is not finite; the weights are unchanged.
        MemoryError: out of memory; the weights are unchanged and nothing was sent to other ranks.
    """
    scaler = scaler or GradScaler(enabled=False)
    group = group or RankGroup()
    tokens = sum(batch.tokens for batch in microbatches) if tokens is None else tokens
    optimizer.zero_grad(set_to_none=True)
    try:
        losses = [_backward(model, batch, config.label_smoothing, tokens, scaler, teacher) for batch in microbatches]
    except RuntimeError as error:
        if not runtime.is_out_of_memory(error):
            raise
        optimizer.zero_grad(set_to_none=True)
        raise MemoryError from None
    parameters = list(model.parameters())
    total = torch.stack(losses).sum() if losses else torch.zeros((), device=parameters[0].device)
    group.all_reduce_([*(_gradient(parameter) for parameter in parameters), total])
    scaler.unscale_(optimizer)
    norm = torch.nn.utils.clip_grad_norm_(parameters, config.clip_norm or math.inf)
    loss, grad_norm = torch.stack((total, norm)).tolist()  # the only synchronization with the GPU
    has_overflow = not math.isfinite(grad_norm)
    if has_overflow and scaler.get_scale() <= 1:  # a disabled scaler has scale 1
        raise _not_finite_error(losses, grad_norm, microbatches)
    scaler.step(optimizer)
    scaler.update()
    return StepStats(loss, tokens, grad_norm, skipped=has_overflow)


def _backward(
    model: Seq2Seq, batch: Batch, smoothing: float, tokens: int, scaler: GradScaler, teacher: Teacher | None
) -> Tensor:
    """Accumulate the gradient of a batch and return its contribution to the loss per token."""
    loss = batch_loss(model, batch, smoothing=smoothing, teacher=teacher) / tokens
    scaler.scale(loss).backward()
    return loss.detach()


def _gradient(parameter: Tensor) -> Tensor:
    if parameter.grad is None:  # this rank has no batch
        parameter.grad = torch.zeros_like(parameter)
    return parameter.grad


def _not_finite_error(losses: Sequence[Tensor], grad_norm: float, microbatches: Sequence[Batch]) -> TrainingError:
    bad = [(batch, loss.item()) for batch, loss in zip(microbatches, losses, strict=True) if not math.isfinite(loss)]
    name, value = ("loss", bad[0][1]) if bad else ("gradient", grad_norm)
    pairs = [i for batch in ([bad[0][0]] if bad else microbatches) for i in batch.pair_ids]
    lines = ", ".join(str(i + 1) for i in pairs[:5]) + (", ..." if len(pairs) > 5 else "")
    return TrainingError(
        f"the {name} is {value} in a batch of {len(pairs)} pairs (lines {lines} of the prepared data)",
        "the update was discarded; lower the learning rate or use --precision fp32, then continue with --resume",
    )
