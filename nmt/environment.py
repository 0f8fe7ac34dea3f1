"""What the libraries under PyTorch read from the environment when they are loaded; to be set before that."""

from __future__ import annotations

import os

DEFAULTS = {
    # OpenMP's threads spin while they wait for each other; as long as they do by default, that is ruinous beside other
    # programs.
    "GOMP_SPINCOUNT": "10000",
    # Every batch has a shape of its own, and for each oneDNN keeps what it made for it. A thousand of those take
    # gigabytes and are hardly ever used again; making them anew costs nothing that could be measured.
    "ONEDNN_PRIMITIVE_CACHE_CAPACITY": "64",
    "LRU_CACHE_CAPACITY": "64",  # PyTorch's own cache around it
}


def set_defaults() -> None:
    """Set what is not set already."""
    for name, value in DEFAULTS.items():
        os.environ.setdefault(name, value)
