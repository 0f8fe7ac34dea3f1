"""Selects the dtype of the activations in training, and the kernels of a GPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from nmt.core import fastest, runtime
from nmt.core.config import Config
from nmt.core.errors import TrainingError
from nmt.model.attention import fused_kernels
from nmt.model.positions import PositionEncoding, PositionInput, StackSpec
from nmt.model.transformer import EncoderLayer

FLOPS = 1.5e9
"""Floating-point operations of one measured call: about 10 ms on two cores."""
LENGTH = 32
"""Sequence length of the measured batch."""


def training_dtype(precision: str, device: torch.device, config: Config) -> torch.dtype:
    """Resolve `auto`, `fp32`, `bf16` or `fp16` to the dtype for training this model on this device.

    On a CPU, `auto` measures fp32 and bf16 and selects the faster one. On a GPU, it selects bf16 if
    the GPU has bf16 units.

    Raises:
        UsageError: the precision is unknown, or fp16 is requested on a CPU.
        TrainingError: the model does not fit in memory.
    """
    runtime.check_precision(precision, device.type)
    if precision == "auto":
        hint = "reduce model.dim or model.ffn_dim"
        with runtime.out_of_memory_as(TrainingError("the model does not fit in memory", hint)):
            precision = runtime.gpu_precision(device) if device.type == "cuda" else _fastest(config)
    return runtime.torch_dtype(precision)


@contextmanager
def gpu_kernels(device: torch.device) -> Iterator[None]:
    """Select a GPU, on whose stream events are recorded, and its kernels for training; restore the
    kernels at the end.

    In fp32, matrix products use TF32 tensor cores: 10-bit mantissas, with sums in float32, at up to
    eight times the speed. On another device, nothing changes.
    """
    if device.type != "cuda":
        yield
        return
    torch.cuda.set_device(device)
    matmul_precision = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        with fused_kernels():
            yield
    finally:
        torch.set_float32_matmul_precision(matmul_precision)


@torch.random.fork_rng(devices=[])
def _fastest(config: Config) -> str:
    """Measure forward and backward passes of an encoder layer with the model's sizes."""
    model = config.model
    layer = EncoderLayer(model).train()
    num_parameters = sum(parameter.numel() for parameter in layer.parameters())
    flops_per_token = 6.0 * num_parameters
    num_tokens = min(config.train.batch_tokens, int(FLOPS / flops_per_token))
    batch_size = max(4, num_tokens // LENGTH)
    num_tokens = batch_size * LENGTH
    x_BSD = torch.randn(batch_size, LENGTH, model.dim)
    mask_B11S = torch.ones(batch_size, 1, 1, LENGTH, dtype=torch.bool)
    encoding = PositionEncoding(StackSpec(model.dim, model.heads, 1))
    position = PositionInput(encoding, 0, 0)

    def forward_backward(precision: str) -> Callable[[], object]:
        x = x_BSD.to(runtime.torch_dtype(precision)).requires_grad_()
        return lambda: layer(x, mask_B11S, position).float().sum().backward()

    task = f"training, encoder layer {model.dim}x{model.ffn_dim} with {num_tokens} tokens"
    version = f"torch {torch.__version__}"
    flops = flops_per_token * num_tokens
    return fastest.select(task, version, ("fp32", "bf16"), forward_backward, flops)
