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

from nmt.export import ctranslate2, firefox, huggingface, onnx, safetensors
from nmt.export.common import Translate

_MODULES: dict[str, Any] = {
    "ctranslate2": ctranslate2,
    "safetensors": safetensors,
    "onnx": onnx,
    "transformers": huggingface,
    "firefox": firefox,
}
EXPORTS: dict[str, Callable[..., None]] = {name: module.export for name, module in _MODULES.items()}
LOADERS: dict[str, Callable[[Path], Translate]] = {
    name: module.load for name, module in _MODULES.items()
}
REFERENCES: dict[str, Callable[[Path], Translate]] = {"firefox": firefox.reference}
"""Functions that translate with nmt as the export should, where it is not the model in float32."""

__all__ = ["EXPORTS", "LOADERS", "REFERENCES", "Translate"]
