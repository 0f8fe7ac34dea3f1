"""Where and how a model runs: device, precision, threads, seeds. PyTorch is imported only where it is used."""

from __future__ import annotations

import ctypes
import json
import math
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from nmt.console import log
from nmt.errors import UsageError, suggest
from nmt.paths import cache_dir, write_text

if TYPE_CHECKING:
    import torch

PRECISIONS = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}
"""Types a model can be trained in, and PyTorch's names for them; a search has int8 besides."""
MEASURE_SECONDS = 0.08
"""Time for which each candidate is measured."""
_measured: dict[str, dict[str, float]] = {}
"""What this process has measured: the cache folder may not be writable."""


def device_name(name: str) -> str:
    """Return the device that `auto`, `cpu` or `cuda[:N]` means, without PyTorch where that is a CPU.

    Under torchrun each process has a GPU of its own.

    Raises:
        UsageError: this machine has no such device.
    """
    kind, _, number = name.partition(":")
    if kind not in ("auto", "cpu", "cuda") or (number and not number.isdigit()):
        raise UsageError(f"unknown device '{name}'", suggest(name, ("auto", "cpu", "cuda")))
    if kind == "cpu" or not (kind == "cuda" or _has_nvidia_driver()):
        return "cpu"
    import torch

    if not torch.cuda.is_available():
        if kind == "auto":
            return "cpu"
        raise UsageError("there is no usable CUDA GPU here", "--device auto picks what is there")
    number = number or os.environ.get("LOCAL_RANK", "0")
    if int(number) >= torch.cuda.device_count():
        raise UsageError(f"there is no GPU {number}: this machine has {torch.cuda.device_count()}")
    return f"cuda:{int(number)}"


def device(name: str) -> torch.device:
    """Return `device_name` as PyTorch has it."""
    import torch

    return torch.device(device_name(name))


def _has_nvidia_driver() -> bool:
    """Return whether there may be a CUDA GPU: asking PyTorch takes a second."""
    try:
        ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
    except OSError:
        return "torch" in sys.modules
    return True


def check_precision(name: str, device: str, *, search: bool = False) -> None:
    """Raise a UsageError for a precision that there is not, or not on this device; `auto` is one everywhere."""
    known = ("auto", *PRECISIONS, *(("int8",) if search else ()))
    if name not in known:
        raise UsageError(f"unknown precision '{name}'", suggest(name, known))
    if name == "fp16" and device == "cpu":
        raise UsageError("fp16 needs a GPU", "--precision auto picks what is fast here")
    if name == "int8" and device != "cpu":
        raise UsageError("int8 needs a CPU", "--precision auto picks what is fast here")


def dtype(precision: str) -> torch.dtype:
    """Return PyTorch's type of a precision."""
    import torch

    found: torch.dtype = getattr(torch, PRECISIONS[precision])
    return found


def precision_of(dtype_name: str) -> str:
    """Return the precision of PyTorch's name of a type; `auto` for others."""
    return next((name for name, known in PRECISIONS.items() if known == dtype_name), "auto")


def gpu_precision(device: torch.device) -> str:
    """Return the precision that `auto` means on a GPU: bf16 where it has such units (from Ampere), else fp32."""
    import torch

    return "bf16" if torch.cuda.get_device_capability(device) >= (8, 0) else "fp32"


def fastest(task: str, version: str, candidates: Mapping[str, Callable[[], object]], flops: float) -> str:
    """Measure which candidate is fastest on this machine, or remember it.

    Instruction sets do not tell: products in bf16 run at half the rate of fp32 on some processors that have them, and
    at four times the rate on others. Results are kept per processor, version and number of threads.

    Args:
        task: what is measured, with its sizes.
        version: of what computes.
        candidates: by name; each call does the same work.
        flops: floating-point operations of a call.
    """
    key = f"{task}; {cpu_name()}; {version}; {num_threads()} threads"
    known = measured_rates() | _measured
    rates = known.get(key, {})
    if rates.keys() != candidates.keys():
        rates = {}
        for name, run in candidates.items():
            run()  # warms up
            seconds: list[float] = []
            while not seconds or (sum(seconds) < MEASURE_SECONDS and len(seconds) < 20):
                began = time.perf_counter()
                run()
                seconds.append(time.perf_counter() - began)
            rates[name] = round(flops / statistics.median(seconds) / 1e9, 1)
        known[key] = _measured[key] = rates
        try:
            cache_dir().mkdir(parents=True, exist_ok=True)
            write_text(_rates_file(), json.dumps(known, indent=1))
        except (OSError, RuntimeError):
            pass  # the next process measures again
        listed = ", ".join(f"{name} {rate:,.0f} GFLOP/s" for name, rate in rates.items())
        log(f"precision auto: {max(rates, key=lambda name: rates[name])} is fastest here for {task} ({listed})")
    return max(rates, key=lambda name: rates[name])


def measured_rates() -> dict[str, dict[str, float]]:
    """Return what `fastest` has measured on this machine, in GFLOP/s; what is damaged is left out."""
    try:
        found = json.loads(_rates_file().read_text(encoding="utf-8"))
    except (OSError, ValueError, RuntimeError):
        return {}
    tables = found.items() if isinstance(found, dict) else ()
    return {task: rates for task, rates in tables if isinstance(rates, dict) and all(map(_is_rate, rates.values()))}


def _is_rate(value: object) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def _rates_file() -> Path:
    return cache_dir() / "rates.json"


def cpu_name() -> str:
    """Return the processor's name."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="ignore") as file:
            lines = [line.partition(":") for line in file]
        facts = {name.strip(): value.strip() for name, _, value in lines}
        return f"{facts['model name']} (family {facts['cpu family']}, model {facts['model']})"
    except (OSError, KeyError):
        return platform.processor() or platform.machine()


def num_threads() -> int:
    """Return how many threads to compute with: OMP_NUM_THREADS, or the processors that this process may use."""
    asked = os.environ.get("OMP_NUM_THREADS", "")
    if asked.isdigit() and int(asked):
        return int(asked)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def is_out_of_memory(error: RuntimeError) -> bool:
    """Return whether an error of PyTorch means that memory did not suffice, on a GPU or on a CPU."""
    import torch

    return isinstance(error, torch.OutOfMemoryError) or "DefaultCPUAllocator" in str(error)


def seed_everything(seed: int) -> None:
    """Seed every generator that training draws from."""
    import random

    import numpy as np
    import torch

    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)
