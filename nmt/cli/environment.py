"""What the commands set for the libraries under PyTorch, before it is loaded. Importing nmt sets none of it."""

from __future__ import annotations

import ctypes
import os
import sys

# OpenMP's threads spin while they wait for each other; as long as they do by default, that is ruinous beside other
# programs. oneDNN, and PyTorch around it, keep a routine of half a megabyte or more for each shape; a training run has
# thousands of shapes, and making routines again costs nothing that could be measured.
DEFAULTS = {"GOMP_SPINCOUNT": "10000", "ONEDNN_PRIMITIVE_CACHE_CAPACITY": "64", "LRU_CACHE_CAPACITY": "64"}
M_MMAP_MAX, M_TRIM_THRESHOLD = -4, -1


def set_defaults() -> None:
    """Set what is not set already."""
    for name, value in DEFAULTS.items():
        os.environ.setdefault(name, value)


def tune_malloc_for_training() -> None:
    """Let the C library keep freed memory for the next tensor instead of returning it to the system.

    Large tensors come and go in every update; mapping and clearing their pages again costs about a twelfth of the time
    on a CPU. Does nothing where the C library is not glibc.
    """
    set_option = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if set_option:
        set_option(M_MMAP_MAX, 0)  # no mappings
        set_option(M_TRIM_THRESHOLD, 2**31 - 1)  # the top of the heap stays
