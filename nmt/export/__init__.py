"""Export of models to other engines.

Each module has `export(loaded, directory)` and `load(directory)`, which returns a function that
translates with the exported model. Options of `export` are keyword-only arguments. To add a format,
write a module and register it in `_MODULES`. An export is kept only if it passes the verification
in `nmt.export.verify`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from nmt.export import ctranslate2, huggingface, onnx, safetensors
from nmt.export.common import Translate

_MODULES: dict[str, Any] = {
    "ctranslate2": ctranslate2,
    "safetensors": safetensors,
    "onnx": onnx,
    "transformers": huggingface,
}
EXPORTS: dict[str, Callable[..., None]] = {name: module.export for name, module in _MODULES.items()}
LOADERS: dict[str, Callable[[Path], Translate]] = {
    name: module.load for name, module in _MODULES.items()
}

__all__ = ["EXPORTS", "LOADERS", "Translate"]
