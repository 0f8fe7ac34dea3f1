"""One update: forward and backward passes, all-reduce, gradient clipping and optimizer step."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.amp.grad_scaler import GradScaler

from nmt.core import runtime
from nmt.core.config import TrainConfig
from nmt.core.errors import TrainingError
from nmt.data.batching import Batch
from nmt.data.packing import PackedBatch
from nmt.model.seq2seq import Seq2Seq
from nmt.model.transformer import LayerFunctions, PackedSide, Transformer
from nmt.training.adamw import AdamW
from nmt.training.compilation import loss_function
from nmt.training.loss import LogitsLoss, cross_entropy, logits_loss
from nmt.training.rounding import rounded_weights
from nmt.training.word_distillation import Teacher

AllReduce = Callable[[Tensor, Tensor], None]
"""Replaces the gradients of all parameters, as one tensor, and the loss by their sums over the
ranks; see `nmt.training.distributed.all_reduce`."""


@dataclass(frozen=True)
class UpdateStats:
    """Statistics of one update."""

    loss: float
    """Label-smoothed cross-entropy per target token in nats, or the loss of
    `nmt.training.word_distillation`."""
    tokens: int
    grad_norm: float
    skipped: bool = False
    """fp16 only: the gradient overflowed, so the update was skipped and the loss scale reduced."""


class PendingStats:
    """The statistics of an update that a GPU may still be computing."""

    def __init__(
        self,
        values: Tensor,
        losses: Sequence[Tensor],
        microbatches: Sequence[Batch | PackedBatch],
        tokens: int,
        lr: float,
    ) -> None:
        """Start the transfer from the GPU.

        Args:
            values: loss, gradient norm and loss scale.
            losses: the contribution of each microbatch to the loss.
            microbatches: this rank's batches.
            tokens: target tokens of all ranks.
            lr: learning rate of the update.
        """
        self.tokens = tokens
        self.lr = lr
        self._losses = losses
        self._pair_ids = [batch.pair_ids for batch in microbatches]
        self._values = values.to("cpu", non_blocking=True)
        self._transferred = None
        if values.is_cuda:
            self._transferred = torch.cuda.Event()
            self._transferred.record()

    def read(self) -> UpdateStats:
        """Wait for the update and return its statistics.

        Raises:
            TrainingError: the gradient is not finite, as after a loss that is not; the update did
                not change the weights.
        """
        if self._transferred:
            self._transferred.synchronize()
        loss, grad_norm, loss_scale = self._values.tolist()
        has_overflow = not math.isfinite(grad_norm)
        if has_overflow and loss_scale <= 1:  # 1 unless the precision is fp16
            raise self._not_finite_error(grad_norm)
        return UpdateStats(loss, self.tokens, grad_norm, skipped=has_overflow)

    def _not_finite_error(self, grad_norm: float) -> TrainingError:
        """Return the error for the first microbatch whose loss is not finite, or for the gradient
        of all of them."""
        quantity = f"gradient is {grad_norm}"
        pair_ids = list(itertools.chain.from_iterable(self._pair_ids))
        for ids, loss in zip(self._pair_ids, self._losses, strict=True):
            if not loss.isfinite():
                quantity = f"loss is {loss.item()}"
                pair_ids = list(ids)
                break
        lines = ", ".join(str(i + 1) for i in pair_ids[:5])
        if len(pair_ids) > 5:
            lines += ", ..."
        problem = (
            f"the {quantity} in a batch of {len(pair_ids)} pairs (lines {lines} of the prepared"
            " data)"
        )
        return divergence_error(problem, self.lr, "the update was discarded")


def divergence_error(
    problem: str, lr: float, consequence: str = "training has diverged"
) -> TrainingError:
    """Return the error for a training run that has diverged at a learning rate."""
    change = f"lower the learning rate, which was {lr:.1e}, or use --precision fp32"
    return TrainingError(problem, f"{consequence}; {change}, then continue with --resume")


def train_step(
    model: Seq2Seq,
    microbatches: Sequence[Batch],
    optimizer: AdamW,
    config: TrainConfig,
    *,
    tokens: int | None = None,
    scaler: GradScaler | None = None,
    all_reduce: AllReduce | None = None,
    teacher: Teacher | None = None,
) -> PendingStats:
    """Make one update from one or more microbatches. A GPU may still be computing it on return.

    The loss is summed over all microbatches and ranks and divided by their total number of target
    tokens. Apart from dropout masks, the result does not depend on how an update is split.

    Args:
        model: the model, in training mode.
        microbatches: this rank's batches, on the model's device; may be empty.
        optimizer: the optimizer, with its learning rate set.
        config: label smoothing and gradient clipping.
        tokens: target tokens of all ranks; None: those of `microbatches`.
        scaler: gradient scaler, required for the narrow range of fp16 (Micikevicius et al. 2018).
            An overflow then reduces the scale.
        all_reduce: sums the gradients of the ranks that make this update together.
        teacher: the model to distill.

    If the gradient is not finite, the weights do not change.

    Raises:
        MemoryError: out of memory; the weights are unchanged.
        TrainingError: there is no memory left for the optimizer.
    """
    scaler = scaler or GradScaler(enabled=False)
    tokens = sum(batch.tokens for batch in microbatches) if tokens is None else tokens
    model.zero_grad()
    with (
        runtime.out_of_memory_as(MemoryError()),
        rounded_weights(model, config.weight_rounding),
    ):
        losses = [backward(model, batch, config, tokens, scaler, teacher) for batch in microbatches]
    hint = "reduce train.batch_tokens, model.dim or the layer counts"
    with runtime.out_of_memory_as(
        TrainingError("the gradients and the optimizer do not fit in memory", hint)
    ):
        return _update(model, losses, microbatches, optimizer, config, tokens, scaler, all_reduce)


def _update(
    model: Seq2Seq,
    losses: list[Tensor],
    microbatches: Sequence[Batch],
    optimizer: AdamW,
    config: TrainConfig,
    tokens: int,
    scaler: GradScaler,
    all_reduce: AllReduce | None,
) -> PendingStats:
    """Sum the gradients of the ranks, clip them and update the weights."""
    parameters = list(model.parameters())
    device = parameters[0].device
    total = torch.stack(losses).sum() if losses else torch.zeros((), device=device)
    for parameter in parameters:
        if parameter.grad is None:  # without a batch; scaler and optimizer need all gradients
            parameter.grad = torch.zeros_like(parameter)
    if all_reduce:
        _all_reduce_gradients(parameters, total, all_reduce)
    # Also initializes the scaler if there is no batch.
    loss_scale = scaler.scale(torch.ones((), device=device))
    scaler.unscale_(optimizer)  # type: ignore[arg-type]
    norm = torch.nn.utils.clip_grad_norm_(parameters, config.clip_norm or math.inf)
    skips_update = scaler.is_enabled()
    if not scaler.is_enabled() and isinstance(optimizer, AdamW):
        # The fused kernel skips the update, as for a scaler.
        optimizer.found_inf = (~norm.isfinite()).float()
        skips_update = True
    if skips_update or norm.isfinite():  # this waits for a GPU
        scaler.step(optimizer)  # type: ignore[arg-type]
        scaler.update()
    lr = optimizer.param_groups[0]["lr"]
    return PendingStats(torch.stack((total, norm, loss_scale)), losses, microbatches, tokens, lr)


def _all_reduce_gradients(
    parameters: Sequence[Tensor], total: Tensor, all_reduce: AllReduce
) -> None:
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    gradient_P = torch.cat([gradient.flatten() for gradient in gradients])
    all_reduce(gradient_P, total)
    sums = gradient_P.split([gradient.numel() for gradient in gradients])
    for gradient, gradient_sum in zip(gradients, sums, strict=True):
        gradient.copy_(gradient_sum.view_as(gradient))


def backward(
    model: Seq2Seq,
    batch: Batch,
    config: TrainConfig,
    tokens: int,
    scaler: GradScaler,
    teacher: Teacher | None,
) -> Tensor:
    """Accumulate the gradient of a batch and return its contribution to the loss per token."""
    loss = batch_loss(
        model,
        batch,
        smoothing=config.label_smoothing,
        logits_loss=loss_function(config, batch.src_BS.device, packed=False),
        teacher=teacher,
    )
    loss = loss / tokens
    scaler.scale(loss).backward()
    return loss.detach()


def packed_loss(
    model: Transformer,
    batch: PackedBatch,
    *,
    smoothing: float,
    logits_loss: LogitsLoss = logits_loss,
    layers: LayerFunctions = LayerFunctions(),  # noqa: B008
) -> Tensor:
    """Return the label-smoothed cross-entropy of a packed batch in nats, summed over its target
    tokens."""
    source = PackedSide(batch.src_S, batch.src_position_S, batch.src_bounds_E)
    target = PackedSide(batch.tgt_in_T, batch.tgt_position_T, batch.tgt_bounds_E)
    hidden_TD = model.forward_packed(source, target, batch.max_length, layers)
    return cross_entropy(
        hidden_TD,
        model.output_weight_VD,
        batch.labels_T,
        smoothing=smoothing,
        weight_N=batch.label_weight_T,
        bias_V=model.output_bias_V,
        logits_loss=logits_loss,
    )


def batch_loss(
    model: Seq2Seq,
    batch: Batch,
    *,
    smoothing: float,
    logits_loss: LogitsLoss = logits_loss,
    teacher: Teacher | None = None,
) -> Tensor:
    """Return the loss of a batch in nats, summed over its target tokens.

    It is the label-smoothed cross-entropy, or with a teacher that of
    `nmt.training.word_distillation`.
    """
    hidden_ND = model(batch.src_BS, batch.src_mask_BS, batch.tgt_in_BT, batch.target_index_N)
    loss = cross_entropy(
        hidden_ND,
        model.output_weight_VD,
        batch.labels_N,
        smoothing=smoothing,
        bias_V=model.output_bias_V,
        logits_loss=logits_loss,
    )
    if teacher:
        loss = loss + teacher.additional_loss(model, batch, hidden_ND, smoothing=smoothing)
    return loss
