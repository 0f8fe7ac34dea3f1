"""Packages that not every installation has, and the line that installs each.

The distribution `nmtkit-core` has what translating needs. `nmtkit` depends on it, on PyTorch and on
what else training needs, and has extras for what few users need.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any

from nmt.core.errors import MissingPackageError

CORE = "nmtkit-core"
FULL = "nmtkit"
EXTRAS = {
    "comet": "comet",
    "ctranslate2": "ctranslate2",
    "fxtranslate": "firefox",
    "matplotlib": "plot",
    "mlflow": "mlflow",
    "mtdata": "mtdata",
    "onnxruntime": "onnx",
    "onnxscript": "onnx",
    "prometheus_client": "serve",
    "python_multipart": "serve",
    "ray": "ray",
    "starlette": "serve",
    "tensorboard": "tensorboard",
    "trackio": "trackio",
    "transformers": "huggingface",
    "uvicorn": "serve",
    "wandb": "wandb",
}
"""Modules and the extras that install them; `nmtkit` itself installs all others."""
CORE_EXTRA = "serve"
"""The extra that both distributions have."""


def require_package(name: str, module: str, purpose: str = "") -> Any:
    """Import and return a module of a package that may be missing.

    Args:
        name: the name of the package, for the error.
        module: such as `matplotlib.figure`.
        purpose: what needs it, for the error.

    Raises:
        MissingPackageError: it is not installed.
    """
    try:
        return importlib.import_module(module)
    except ImportError:
        problem = f"{name} is not installed"
        if purpose:
            problem = f"{purpose} needs the package {name}, which is not installed"
        raise MissingPackageError(problem, install_line(module)) from None


def is_optional(module: str) -> bool:
    """Return whether a module is that of another package, which may be missing."""
    top_level = module.partition(".")[0]
    return top_level not in ("", "nmt", *sys.stdlib_module_names)


def install_line(module: str) -> str:
    """Return the command that installs a module."""
    extra = EXTRAS.get(module.partition(".")[0], "")
    distribution = CORE if extra == CORE_EXTRA and not _has_training() else FULL
    return f"pip install '{distribution}[{extra}]'" if extra else f"pip install {distribution}"


def _has_training() -> bool:
    from importlib import metadata  # slow to import

    try:
        metadata.distribution(FULL)
    except metadata.PackageNotFoundError:
        return False
    return True
