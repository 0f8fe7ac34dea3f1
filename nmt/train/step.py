"""One update: forward, loss, backward, clipping, optimiser."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch.amp.grad_scaler import GradScaler

from nmt.config import Config
from nmt.data.batching import Batch
from nmt.errors import TrainingError
from nmt.loss import cross_entropy
from nmt.model.transformer import Transformer


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
    model: Transformer,
    micro: Sequence[Batch],
    optimizer: torch.optim.Optimizer,
    config: Config,
    scaler: GradScaler | None = None,
) -> StepStats:
    """Make one update from one or more batches.

    The loss is summed over all of them and divided once by all their target tokens, so that cutting an update
    into batches changes nothing.

    Args:
        model: the network, in training mode.
        micro: the update's batches, on the model's device.
        optimizer: its learning rate is set.
        config: label smoothing and clipping.
        scaler: loss scaling, which fp16 needs for its narrow range (Micikevicius et al. 2018); an overflow then
            skips the update and lowers the scale instead of raising.

    Raises:
        TrainingError: the loss or the gradient is not finite; the weights are as they were.
    """
    scaler = scaler or GradScaler(enabled=False)
    tokens = sum(batch.tokens for batch in micro)
    optimizer.zero_grad(set_to_none=True)
    total = 0.0
    for batch in micro:
        hidden_ND = model(batch.src_BS, batch.src_mask_BS, batch.tgt_in_BT, batch.tgt_mask_BT)
        target_N = batch.tgt_out_BT[batch.tgt_mask_BT]
        loss = cross_entropy(hidden_ND, model.output_weight_VD, target_N, smoothing=config.train.label_smoothing)
        value = loss.item() / tokens
        if not math.isfinite(value) and not scaler.is_enabled():
            raise _not_finite("loss", value, [batch])
        scaler.scale(loss / tokens).backward()  # type: ignore[no-untyped-call]
        total += value
    scaler.unscale_(optimizer)
    limit = config.train.clip_norm or math.inf
    grad_norm = float(torch.nn.utils.clip_grad_norm_(model.parameters(), limit))
    overflow = not math.isfinite(grad_norm)
    if overflow and scaler.get_scale() <= 1:  # 1 is the scale of a scaler that is off
        raise _not_finite("gradient", grad_norm, micro)
    scaler.step(optimizer)
    scaler.update()
    return StepStats(total, tokens, grad_norm, skipped=overflow)


def _not_finite(what: str, value: float, micro: Sequence[Batch]) -> TrainingError:
    pairs = [i for batch in micro for i in batch.pairs]
    lines = ", ".join(str(i + 1) for i in pairs[:5]) + (", ..." if len(pairs) > 5 else "")
    return TrainingError(
        f"the {what} is {value} in a batch of {len(pairs)} pairs (lines {lines} of the prepared text)",
        "nothing of this update was kept; try a lower learning rate or --precision fp32, then --resume",
    )
