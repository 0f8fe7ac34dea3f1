"""Updates of packed batches: on a GPU two CUDA graphs, elsewhere the same functions.

All batches have one shape (`nmt.data.packing`), so the kernels of an update are recorded once and
then launched together: one graph for the gradient of a batch, one for clipping and the optimizer,
and between them one all-reduce of all gradients. What changes between updates is in the memory of
the GPU: the batch, the learning rate and the number of tokens.

Shape suffixes: P parameters, all in one axis.
"""

from __future__ import annotations

import copy
import gc
import math
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from nmt.core import runtime
from nmt.core.config import TrainConfig
from nmt.core.errors import TrainingError
from nmt.data.packing import PackedBatch
from nmt.engines import cuda_graphs
from nmt.model.layers import LayerNorm, Linear
from nmt.model.seq2seq import Seq2Seq
from nmt.model.transformer import LayerFunctions, Transformer
from nmt.training.adamw import AdamW
from nmt.training.loss import LogitsLoss, logits_loss
from nmt.training.rounding import rounded_weights
from nmt.training.step import AllReduce, PendingStats, packed_loss

WARM_UP = 3
"""Number of updates before the graphs are recorded: they compile kernels, and choose those of
matrix products."""
HEAD_ALIGNMENT = 8
"""The kernels of attention within segments read as many numbers at a time."""
VECTOR_SIZE = 4
"""Gradients begin at a multiple of as many numbers."""
CLIP_EPSILON = 1e-6
"""Is added to the norm of the gradient, as by PyTorch's `clip_grad_norm_`."""


@dataclass(eq=False)
class PackedUpdate:
    """Makes updates with one model and optimizer."""

    model: Transformer
    """In training mode; in bf16 a copy of its layers computes."""
    optimizer: AdamW
    """Its learning rate becomes a tensor."""
    config: TrainConfig
    """Label smoothing, clipping, and number of batches per update."""
    _: KW_ONLY
    all_reduce: AllReduce | None = None
    """Sums the gradients of the ranks that make an update together."""
    layers: LayerFunctions = field(default_factory=LayerFunctions)
    """What runs the layers."""
    logits_loss: LogitsLoss = logits_loss
    """What computes the loss of a chunk of logits."""

    def __post_init__(self) -> None:
        self.parameters = list(self.model.parameters())
        self.copy = LowPrecisionCopy(self.model)
        self.device = self.parameters[0].device
        self._allocate()
        for group in self.optimizer.param_groups:
            group["lr"] = self.lr
        self._batches: Sequence[PackedBatch] = ()
        self._losses: list[Tensor] = []
        self._num_tokens = 0
        self._accumulate = _GraphedFunction(self._add_gradient, self._free_memory, self.device)
        self._apply = _GraphedFunction(self._step, self._free_memory, self.device)

    def _allocate(self) -> None:
        """Allocate what the graphs read and write."""
        self.batch: PackedBatch | None = None
        self.tokens = torch.ones((), device=self.device)
        self.lr = torch.zeros((), device=self.device)
        self.loss = torch.zeros((), device=self.device)
        self.norm = torch.zeros((), device=self.device)
        num_values = sum(map(_aligned_numel, self.parameters))
        self.gradient_P = torch.zeros(num_values, device=self.device)
        """The gradients of all parameters, summed over the batches of an update; between two of
        them there may be a few zeros."""
        self.batch_gradient_P = self.gradient_P
        if self.config.grad_accumulation > 1:
            self.batch_gradient_P = torch.zeros_like(self.gradient_P)

    @property
    def is_warm(self) -> bool:
        """Whether the shape of the batches is known to fit in memory."""
        return self._accumulate.is_warm

    def compute_gradient(self, batches: Sequence[PackedBatch], tokens: int) -> None:
        """Compute the gradient of an update; a GPU may still be computing it on return.

        Args:
            batches: this rank's batches, in pinned memory if the model is on a GPU; may be empty.
            tokens: target tokens of all ranks.

        Raises:
            MemoryError: out of memory.
        """
        self._batches = batches
        self._num_tokens = tokens
        self._losses = []
        self.tokens.fill_(tokens)
        if not batches or self.config.grad_accumulation > 1:
            self.gradient_P.zero_()
        with (
            runtime.out_of_memory_as(MemoryError()),
            rounded_weights(self.model, self.config.weight_rounding),
        ):
            for batch in batches:
                self._load(batch)
                self._accumulate()
                self._losses.append(self.loss.clone())

    def apply(self, lr: float) -> PendingStats:
        """Make the update with the gradients of all ranks and a learning rate.

        If the gradient is not finite, the weights do not change.

        Raises:
            TrainingError: there is no memory left for the optimizer.
        """
        self.lr.fill_(lr)
        total = torch.zeros_like(self.loss)
        if self._losses:
            total = torch.stack(self._losses).sum()
        if self.all_reduce:
            self.all_reduce(self.gradient_P, total)
        hint = "reduce train.batch_tokens, model.dim or the layer counts"
        error = TrainingError("the optimizer does not fit in memory", hint)
        with runtime.out_of_memory_as(error):
            self._apply()
        values = torch.stack((total, self.norm, torch.ones_like(total)))
        return PendingStats(values, self._losses, self._batches, self._num_tokens, lr)

    def _load(self, batch: PackedBatch) -> None:
        """Copy a batch to where the graph reads it."""
        if self.batch is None or self.device.type != "cuda":
            self.batch = batch.to(self.device)
            return
        static = self.batch.tensors()
        for name, tensor in batch.tensors().items():
            static[name].copy_(tensor, non_blocking=True)

    def _add_gradient(self) -> None:
        """Compute loss and gradient of `batch`, and add the gradient to that of the update."""
        assert self.batch is not None
        self.copy.refresh()
        loss = packed_loss(
            self.copy.model,
            self.batch,
            smoothing=self.config.label_smoothing,
            logits_loss=self.logits_loss,
            layers=self.layers,
        )
        loss = loss / self.tokens
        loss.backward()
        self.loss.copy_(loss.detach())
        _copy_all(self._views(self.batch_gradient_P), self.copy.gradients())
        if self.batch_gradient_P is not self.gradient_P:
            self.gradient_P += self.batch_gradient_P

    @torch.no_grad()
    def _step(self) -> None:
        """Clip the gradient and update the weights."""
        norm = torch.linalg.vector_norm(self.gradient_P)
        self.norm.copy_(norm)
        self.optimizer.found_inf = (~norm.isfinite()).float()
        if self.config.clip_norm:
            ratio = (norm + CLIP_EPSILON) / self.config.clip_norm
            self.optimizer.grad_scale = ratio.clamp(min=1)
        views = self._views(self.gradient_P)
        for parameter, view in zip(self.parameters, views, strict=True):
            parameter.grad = view
        self.optimizer.step()

    def _views(self, values_P: Tensor) -> list[Tensor]:
        """Return the part of each parameter, in its shape."""
        parts = values_P.split(list(map(_aligned_numel, self.parameters)))
        views = []
        for part, parameter in zip(parts, self.parameters, strict=True):
            values = part[: parameter.numel()]
            views.append(values.view_as(parameter))
        return views

    def _free_memory(self) -> torch.cuda.CUDAGraph | None:
        """Free the memory that the updates without graphs have left to PyTorch, because a capture
        cannot use it. Return a graph whose memory the next one may share."""
        self.copy.model.zero_grad()
        gc.collect()
        torch.cuda.empty_cache()
        return self._accumulate.graph


def _aligned_numel(parameter: Tensor) -> int:
    """Return the number of elements up to the next parameter, which kernels read in vectors."""
    return VECTOR_SIZE * math.ceil(parameter.numel() / VECTOR_SIZE)


def _copy_all(targets: Sequence[Tensor], sources: Sequence[Tensor]) -> None:
    """Copy tensors by a few kernels, which need sources of one dtype."""
    pairs = list(zip(targets, sources, strict=True))
    for dtype in {source.dtype: None for source in sources}:
        chosen = [pair for pair in pairs if pair[1].dtype == dtype]
        torch._foreach_copy_([target for target, _ in chosen], [source for _, source in chosen])


@dataclass(eq=False)
class _GraphedFunction:
    """A function of the GPU that is recorded after a few calls, and then replayed."""

    function: Callable[[], None]
    prepare: Callable[[], torch.cuda.CUDAGraph | None]
    """Is called before the graph is recorded, and may return another graph, whose memory it then
    shares."""
    device: torch.device
    num_calls: int = 0
    graph: torch.cuda.CUDAGraph | None = None

    @property
    def is_warm(self) -> bool:
        """Whether further calls allocate no memory."""
        return self.graph is not None if self.device.type == "cuda" else self.num_calls > 0

    def __call__(self) -> None:
        """Run the function."""
        self.num_calls += 1
        if self.device.type != "cuda":
            self.function()
            return
        if self.graph is None and self.num_calls <= WARM_UP:
            # Gradients remember their stream.
            with cuda_graphs.capture_stream(self.device):
                self.function()
            return
        if self.graph is None:
            self.graph, _ = cuda_graphs.record(self.function, self.device, self.prepare())
        cuda_graphs.replay(self.graph)


def supports_packing(model: Seq2Seq, config: TrainConfig, device: torch.device) -> bool:
    """Return whether a model is trained on packed batches: on an NVIDIA GPU, if it can be, but not
    in fp16 (whose updates may be skipped), with a teacher (which reads padded batches) or with
    subword regularization (which changes lengths after the batches are planned)."""
    head_dim = model.config.dim // model.config.heads
    return (
        config.packing
        and device.type == "cuda"
        and torch.version.hip is None
        and model.supports_packing
        and head_dim % HEAD_ALIGNMENT == 0
        and _has_kernels(model.compute_dtype, device)
        and not config.teacher
        and not config.subword_regularization
    )


def _has_kernels(dtype: torch.dtype | None, device: torch.device) -> bool:
    """Return whether a GPU has kernels for attention within segments."""
    if dtype is None:
        return True
    return dtype == torch.bfloat16 and torch.cuda.get_device_capability(device) >= (8, 0)


class LowPrecisionCopy:
    """A model that computes with the weights of another one.

    They share all parameters but those of matrices and layer norms in layers, which are copies in
    the dtype of the activations: so they are cast once per batch, by few kernels. In float32, it is
    the model itself.
    """

    def __init__(self, model: Transformer) -> None:
        self.model = model
        if dtype := model.compute_dtype:
            cast = {id(p) for module in _cast_modules(model) for p in module.parameters()}
            memo: dict[int, Any] = {id(p): p for p in model.parameters() if id(p) not in cast}
            self.model = copy.deepcopy(model, memo)  # but for what the memo has
            for module in _cast_modules(self.model):
                module.to(dtype)
        self._originals: list[Tensor] = []
        self._copies: list[Tensor] = []
        for original, parameter in zip(model.parameters(), self.model.parameters(), strict=True):
            if parameter is not original:
                self._originals.append(original)
                self._copies.append(parameter)

    @torch.no_grad()
    def refresh(self) -> None:
        """Copy the current weights, and forget the gradients."""
        if self._copies:
            torch._foreach_copy_(self._copies, self._originals)
        self.model.zero_grad()

    def gradients(self) -> list[Tensor]:
        """Return the gradients, in the order of the parameters."""
        gradients = [parameter.grad for parameter in self.model.parameters()]
        return [gradient for gradient in gradients if gradient is not None]


def _cast_modules(model: Transformer) -> list[nn.Module]:
    """Return the modules of layers whose weights are used in the dtype of their input."""
    modules = [*model.encoder.modules(), *model.decoder.modules()]
    return [module for module in modules if isinstance(module, Linear | LayerNorm)]
