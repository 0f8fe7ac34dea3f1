"""Process settings for the libraries that PyTorch uses. Commands apply them before it loads;
`import nmt` does not."""

from __future__ import annotations

import ctypes
import os
import platform
import sys

# OpenMP threads spin while they wait. The default spin time is far too long when other programs use
# the same cores. oneDNN and PyTorch cache a kernel of half a megabyte or more for each shape.
# Training uses thousands of shapes, and creating a kernel again has no measurable cost, so the
# caches are small. If NCCL loses another rank, PyTorch by default aborts the process with a stack
# dump. CleanUpOnly (2) makes the next operation raise, which becomes an error message.
DEFAULTS = {
    "GOMP_SPINCOUNT": "10000",
    "ONEDNN_PRIMITIVE_CACHE_CAPACITY": "64",
    "LRU_CACHE_CAPACITY": "64",
    "TORCH_NCCL_ASYNC_ERROR_HANDLING": "2",
}
M_MMAP_MAX, M_TRIM_THRESHOLD = -4, -1


def set_defaults() -> None:
    """Set the environment variables in `DEFAULTS` that are unset."""
    for name, value in DEFAULTS.items():
        os.environ.setdefault(name, value)


def use_one_thread_for_numpy() -> None:
    """Let NumPy start no threads, which takes 15 ms, for commands that need only its arrays.

    Does nothing on ARM, where PyTorch would read the variable of NumPy's library, too.
    """
    if platform.machine() in ("x86_64", "AMD64"):
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def tune_malloc_for_training() -> None:
    """Configure glibc's malloc to keep freed memory instead of returning it to the system.

    Every update allocates and frees large tensors. Mapping and zeroing their pages again takes
    about 8% of the training time on a CPU. Does nothing without glibc.
    """
    set_option = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if set_option:
        set_option(M_MMAP_MAX, 0)  # allocate from the heap only
        set_option(M_TRIM_THRESHOLD, 2**31 - 1)  # never shrink the heap
