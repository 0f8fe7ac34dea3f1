"""One update: forward, loss, backward, sum over ranks, clipping, optimizer."""

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
from nmt.train.distributed import Group
from nmt.train.loss import cross_entropy


@dataclass(frozen=True)
class StepStats:
    """What one update did."""

    loss: float
    """Label-smoothed cross-entropy per target token, in nats."""
    tokens: int
    grad_norm: float
    skipped: bool = False
    """fp16 only: the gradient overflowed, so the weights stayed and the loss scale was lowered."""


def train_step(
    model: Seq2Seq,
    micro: Sequence[Batch],
    optimizer: torch.optim.Optimizer,
    config: TrainConfig,
    *,
    tokens: int | None = None,
    scaler: GradScaler | None = None,
    group: Group | None = None,
) -> StepStats:
    """Make one update from one or more batches.

    The loss is summed over all of them, on all ranks, and divided once by all their target tokens, so that cutting
    an update into batches and shares changes nothing.

    Args:
        model: the network, in training mode.
        micro: this rank's batches of the update, on the model's device; there may be none.
        optimizer: its learning rate is set.
        config: label smoothing and clipping.
        tokens: target tokens of all ranks; None: those of `micro`.
        scaler: loss scaling, which fp16 needs for its narrow range (Micikevicius et al. 2018); an overflow then
            skips the update and lowers the scale instead of raising.
        group: the ranks that make this update together.

    Raises:
        TrainingError: the loss or the gradient is not finite; the weights are as they were.
        MemoryError: the batches do not fit; the weights are as they were, and no other rank has been told anything.
    """
    scaler = scaler or GradScaler(enabled=False)
    group = group or Group()
    tokens = sum(batch.tokens for batch in micro) if tokens is None else tokens
    optimizer.zero_grad(set_to_none=True)
    try:
        losses = [_backward(model, batch, config.label_smoothing, tokens, scaler) for batch in micro]
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
    loss, grad_norm = torch.stack((total, norm)).tolist()  # the one moment at which a GPU is waited for
    overflow = not math.isfinite(grad_norm)
    if overflow and scaler.get_scale() <= 1:  # 1 is the scale of a scaler that is off
        raise _not_finite(losses, grad_norm, micro)
    scaler.step(optimizer)
    scaler.update()
    return StepStats(loss, tokens, grad_norm, skipped=overflow)


def _backward(model: Seq2Seq, batch: Batch, smoothing: float, tokens: int, scaler: GradScaler) -> Tensor:
    """Add a batch's gradient and return its share of the loss per token."""
    hidden_ND = model(batch.src_BS, batch.src_mask_BS, batch.tgt_in_BT, batch.target_index_N)
    loss = cross_entropy(hidden_ND, model.output_weight_VD, batch.labels_N, smoothing=smoothing) / tokens
    scaler.scale(loss).backward()
    return loss.detach()


def _gradient(parameter: Tensor) -> Tensor:
    if parameter.grad is None:  # a rank without a batch
        parameter.grad = torch.zeros_like(parameter)
    return parameter.grad


def _not_finite(losses: Sequence[Tensor], grad_norm: float, micro: Sequence[Batch]) -> TrainingError:
    bad = [(batch, loss.item()) for batch, loss in zip(micro, losses, strict=True) if not math.isfinite(loss)]
    what, value = ("loss", bad[0][1]) if bad else ("gradient", grad_norm)
    pairs = [i for batch in ([bad[0][0]] if bad else micro) for i in batch.pair_ids]
    lines = ", ".join(str(i + 1) for i in pairs[:5]) + (", ..." if len(pairs) > 5 else "")
    return TrainingError(
        f"the {what} is {value} in a batch of {len(pairs)} pairs (lines {lines} of the prepared text)",
        "nothing of this update was kept; try a lower learning rate or --precision fp32, then --resume",
    )
