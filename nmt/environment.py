"""What the libraries under PyTorch read from the environment when they are loaded; to be set before that."""

from __future__ import annotations

import os

# OpenMP's threads spin while they wait for each other; as long as they do by default, that is ruinous beside other
# programs.
PATIENCE = {"GOMP_SPINCOUNT": "10000"}


def _routines(number: int) -> dict[str, str]:
    """Bound what oneDNN keeps, and PyTorch around it: a routine of half a megabyte or more for each shape."""
    return {"ONEDNN_PRIMITIVE_CACHE_CAPACITY": str(number), "LRU_CACHE_CAPACITY": str(number)}


SEARCH = PATIENCE | _routines(256)  # without a C compiler, some 200 shapes come again and again
TRAINING = PATIENCE | _routines(64)  # there are thousands; making routines anew costs nothing that could be measured


def set_defaults(*, training: bool = False) -> None:
    """Set what is not set already, for training or else for search."""
    for name, value in (TRAINING if training else SEARCH).items():
        os.environ.setdefault(name, value)
