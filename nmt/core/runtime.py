"""Device, precision and threads. PyTorch is imported only where it is used."""

from __future__ import annotations

import ctypes
import os
import platform
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from nmt.core import torchrun
from nmt.core.errors import UsageError, check_choice, suggest

if TYPE_CHECKING:
    import torch

PRECISIONS = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}
"""Training precisions and their PyTorch dtypes. Inference also supports int8."""


def stop_signals() -> list[signal.Signals]:
    """Return the signals that ask a process to stop: Ctrl-C, SIGTERM and SIGHUP, which the end of a
    terminal sends.

    SIGHUP stays ignored in a process that `nohup` has started. Windows does not have it.
    """
    signals = [signal.SIGINT, signal.SIGTERM]
    if sys.platform != "win32" and signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
        signals.append(signal.SIGHUP)
    return signals


@contextmanager
def time_limit(seconds: float, error: Exception) -> Iterator[None]:
    """Raise `error` after a time in which the body has not ended, also inside of a regular
    expression.

    Only the main thread of a program can be interrupted, and not on Windows; elsewhere, there is no
    limit.
    """
    if sys.platform == "win32" or threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(number: int, frame: Any) -> None:
        raise error

    previous = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)


def resolve_device(name: str) -> str:
    """Resolve `auto`, `cpu` or `cuda[:N]` to a device name, without importing PyTorch if it is the
    CPU.

    Under torchrun, `auto` and `cuda` select the GPU of the local rank.

    Raises:
        UsageError: the device is unknown or not available, or several processes would share a GPU.
    """
    kind, _, index = name.partition(":")
    if kind not in ("auto", "cpu", "cuda") or (
        index and not (kind == "cuda" and index.isdecimal())
    ):
        raise UsageError(f"unknown device '{name}'", suggest(name, ("auto", "cpu", "cuda")))
    if index and kind == "cuda" and torchrun.local_world_size() > 1:
        raise UsageError(
            f"--device {name} would give all processes of torchrun the same GPU",
            "use --device cuda: a GPU per process",
        )
    is_automatic = kind == "auto"
    if kind == "cpu" or (is_automatic and not _may_have_gpu()):
        return "cpu"
    import torch

    if not torch.cuda.is_available():
        if is_automatic:
            return "cpu"
        raise UsageError("no CUDA GPU is available", "use --device auto or --device cpu")
    gpu = int(index) if index else torchrun.local_rank()
    num_gpus = torch.cuda.device_count()
    if gpu >= num_gpus:
        raise UsageError(f"there is no GPU {index or gpu}: this machine has {num_gpus}")
    return f"cuda:{gpu}"


def _may_have_gpu() -> bool:
    """Return whether PyTorch may find a GPU, without importing it, which takes a second."""
    if find_spec("torch") is None:
        return False
    try:
        ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
    except OSError:
        return "torch" in sys.modules  # PyTorch is loaded already, so asking it costs nothing
    return True


def check_precision(name: str, device: str, *, inference: bool = False) -> None:
    """Check that a precision exists and that the device supports it.

    Raises:
        UsageError: the precision is unknown, or the device does not support it.
    """
    choices = ("auto", *PRECISIONS, *(("int8",) if inference else ()))
    check_choice("precision", name, choices)
    if name == "fp16" and device == "cpu":
        raise UsageError("fp16 needs a GPU", "use --precision auto, which selects fp32 or bf16")
    if name == "int8" and device != "cpu":
        raise UsageError("int8 needs a CPU", "use --precision auto, which selects fp32 or bf16")


def torch_dtype(precision: str) -> torch.dtype:
    """Return the PyTorch dtype of a precision."""
    import torch

    dtype: torch.dtype = getattr(torch, PRECISIONS[precision])
    return dtype


def precision_name(dtype_name: str) -> str:
    """Return the precision for the name of a PyTorch dtype, or `auto` for any other name."""
    return next(
        (precision for precision, dtype in PRECISIONS.items() if dtype == dtype_name), "auto"
    )


def gpu_precision(device: torch.device) -> str:
    """Return the precision that `auto` selects on a GPU: bf16 if it has bf16 units (Ampere or
    later), else fp32."""
    import torch

    return "bf16" if torch.cuda.get_device_capability(device) >= (8, 0) else "fp32"


def cpu_name() -> str:
    """Return the name of the processor."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="ignore") as file:
            lines = [line.partition(":") for line in file]
        info = {name.strip(): value.strip() for name, _, value in lines}
        return f"{info['model name']} (family {info['cpu family']}, model {info['model']})"
    except (OSError, KeyError):
        return platform.processor() or platform.machine()


def num_cores() -> int:
    """Return the number of CPU cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def num_threads() -> int:
    """Return the number of threads to use: OMP_NUM_THREADS, or the number of available CPU
    cores."""
    value = os.environ.get("OMP_NUM_THREADS", "")
    return int(value) if value.isdecimal() and int(value) else num_cores()


def is_out_of_memory(error: RuntimeError) -> bool:
    """Return whether a PyTorch error means out of memory, on GPU or CPU."""
    import torch

    # Errors without a class of their own.
    messages = (
        "DefaultCPUAllocator",
        "CUBLAS_STATUS_ALLOC_FAILED",
        "CUDA error: out of memory",
        "CUDA out of memory",
        "Triton Error [CUDA]: out of memory",
    )
    return isinstance(error, torch.OutOfMemoryError) or any(
        message in str(error) for message in messages
    )


@contextmanager
def out_of_memory_as(error: Exception) -> Iterator[None]:
    """Raise `error` in place of an error of PyTorch that means out of memory."""
    try:
        yield
    except RuntimeError as caught:
        if not is_out_of_memory(caught):
            raise
        try:
            raise error from None
        finally:
            del error  # otherwise a reference cycle keeps the tensors of the failed call
