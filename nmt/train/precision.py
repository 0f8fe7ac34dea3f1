"""The type of the activations that a model is trained in."""

from __future__ import annotations

from collections.abc import Callable

import torch

from nmt import runtime
from nmt.config import Config
from nmt.model.positions import LayerPosition, PositionEncoding, StackSpec
from nmt.model.transformer import EncoderLayer

FLOPS = 1.5e9
"""Of one call that is measured: a hundredth of a second on two cores."""
LENGTH = 32
"""Tokens of the sentences it is measured with."""


def training_dtype(precision: str, device: torch.device, config: Config) -> torch.dtype:
    """Return the type that `auto`, `fp32`, `bf16` or `fp16` means for training this model on this device.

    On a CPU, `auto` is what is measured to be faster; on a GPU, bf16 where it has such units.

    Raises:
        UsageError: unknown precision, or fp16 on a CPU.
    """
    runtime.check_precision(precision, device.type)
    if precision == "auto":
        precision = runtime.gpu_precision(device) if device.type == "cuda" else _fastest(config)
    return runtime.dtype(precision)


def _fastest(config: Config) -> str:
    """Measure a forward and a backward pass of an encoder layer of the model's sizes."""
    generator = torch.get_rng_state()
    model = config.model
    layer = EncoderLayer(model).train()
    parameters = sum(p.numel() for p in layer.parameters())
    sentences = max(4, min(config.train.batch_tokens, int(FLOPS / 6 / parameters)) // LENGTH)
    x_BSD = torch.randn(sentences, LENGTH, model.dim)
    mask_B11S = torch.ones(sentences, 1, 1, LENGTH, dtype=torch.bool)
    position = LayerPosition(PositionEncoding(StackSpec(model.dim, model.heads, 1)), 0, 0)

    def passes(precision: str) -> Callable[[], object]:
        x = x_BSD.to(runtime.dtype(precision)).requires_grad_()
        return lambda: layer(x, mask_B11S, position).float().sum().backward()

    candidates = {precision: passes(precision) for precision in ("fp32", "bf16")}
    task = f"training, {sentences * LENGTH}x{model.dim}x{model.ffn_dim}"
    try:
        return runtime.fastest(task, f"torch {torch.__version__}", candidates, 6.0 * sentences * LENGTH * parameters)
    finally:
        torch.set_rng_state(generator)
