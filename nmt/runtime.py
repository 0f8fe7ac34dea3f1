"""Where and how a model runs: device, precision, threads, seeds."""

from __future__ import annotations

import ctypes
import os
import random
import sys
from collections.abc import Mapping

import numpy as np
import torch

from nmt.errors import UsageError, suggest

PRECISIONS = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
"""What can be trained in; a search knows int8 besides."""


def device(name: str) -> torch.device:
    """Return the device that `auto`, `cpu` or `cuda[:N]` means; under torchrun each process has a GPU of its own.

    Raises:
        UsageError: no such device in this machine.
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    kind, _, number = name.partition(":")
    if kind not in ("cpu", "cuda") or (number and not number.isdigit()):
        raise UsageError(f"unknown device '{name}'", suggest(name, ("auto", "cpu", "cuda")))
    if kind == "cuda":
        if not torch.cuda.is_available():
            raise UsageError("there is no usable CUDA GPU here", "--device auto picks what is there")
        number = number or os.environ.get("LOCAL_RANK", "0")
        if int(number) >= torch.cuda.device_count():
            raise UsageError(f"there is no GPU {number}: this machine has {torch.cuda.device_count()}")
        return torch.device(kind, int(number))
    return torch.device(kind)


def precision(name: str, where: torch.device) -> torch.dtype:
    """Return the type of the activations that `auto`, `fp32`, `bf16` or `fp16` means on a device.

    `auto` is bf16 where the hardware multiplies it natively and fp32 elsewhere: emulated bf16 is slower than fp32.

    Raises:
        UsageError: unknown name, or fp16 on a CPU.
    """
    if name == "auto":
        return torch.bfloat16 if _has_bf16(where) else torch.float32
    if name not in PRECISIONS:
        raise UsageError(f"unknown precision '{name}'", suggest(name, ("auto", *PRECISIONS)))
    if name == "fp16" and where.type == "cpu":
        raise UsageError("fp16 needs a GPU", "--precision auto picks what is fast here")
    return PRECISIONS[name]


def search_precision(name: str, where: torch.device) -> torch.dtype:
    """Return the type that a search computes in: as `precision`, and int8 (weights of whole numbers) on a CPU.

    Raises:
        UsageError: as `precision`, or int8 where it cannot be.
    """
    if name not in ("auto", "int8", *PRECISIONS):
        raise UsageError(f"unknown precision '{name}'", suggest(name, ("auto", *PRECISIONS, "int8")))
    if name != "int8":
        return precision(name, where)
    if where.type != "cpu" or "fbgemm" not in torch.backends.quantized.supported_engines:
        raise UsageError("int8 needs an x86 CPU", "--precision auto picks what is fast here")
    return torch.int8


def _has_bf16(where: torch.device) -> bool:
    if where.type == "cuda":
        return torch.cuda.get_device_capability(where) >= (8, 0)
    if not _cpu_flag("avx512_bf16", "amx_bf16", "bf16") or not torch.backends.mkldnn.is_available():
        return False
    return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def _cpu_flag(*names: str) -> bool:
    return not set(names).isdisjoint(cpu_flags().split())


def cpu_flags() -> str:
    """Return what the processor can do, as Linux names it; nothing elsewhere."""
    try:
        with open("/proc/cpuinfo", encoding="ascii", errors="ignore") as file:
            return next((line for line in file if line.startswith(("flags", "Features"))), "")
    except OSError:
        return ""


def is_out_of_memory(error: RuntimeError) -> bool:
    """Say whether an error of torch means that memory did not suffice, on a GPU or on a CPU."""
    return isinstance(error, torch.OutOfMemoryError) or "DefaultCPUAllocator" in str(error)


def keep_freed_memory() -> None:
    """Let the C library keep freed memory for the next tensor instead of returning it to the system.

    Large tensors come and go in every update; mapping and clearing their pages anew cost about a twelfth of the
    time on a CPU. Does nothing where the C library is not glibc.
    """
    _mallopt({-4: 0, -1: 2**31 - 1})  # M_MMAP_MAX: no mappings; M_TRIM_THRESHOLD: the top of the heap stays


def return_freed_memory() -> None:
    """Let the C library return large blocks to the system at once, for a search, whose tensors are of all sizes.

    By default glibc comes to keep blocks of up to 32 MiB, between which smaller ones leave holes, and each thread
    keeps its own. Below these thresholds searching becomes slower. Does nothing where the C library is not glibc.
    """
    _mallopt({-3: 2**20, -1: 64 * 2**20, -8: 1})  # M_MMAP_THRESHOLD, M_TRIM_THRESHOLD, M_ARENA_MAX


def _mallopt(options: Mapping[int, int]) -> None:
    set_option = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    for option, value in options.items():
        if set_option:
            set_option(option, value)


def seed_everything(seed: int) -> None:
    """Seed every generator that training draws from."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)
