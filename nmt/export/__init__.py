"""Export of models to other engines.

Each module has `export(loaded, directory)` and `load(directory)`, which returns a function that translates with the
exported model. Options of `export` are keyword-only arguments. To add a format, write a module and register it in both
tables. An export is kept only if it passes the verification in `nmt.export.verify`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from nmt.export import ctranslate2, huggingface, onnx, safetensors
from nmt.export.common import Translate

EXPORTS: dict[str, Callable[..., None]] = {
    "ctranslate2": ctranslate2.export,
    "safetensors": safetensors.export,
    "onnx": onnx.export,
    "transformers": huggingface.export,
}
LOADERS: dict[str, Callable[[Path], Translate]] = {
    "ctranslate2": ctranslate2.load,
    "safetensors": safetensors.load,
    "onnx": onnx.load,
    "transformers": huggingface.load,
}

__all__ = ["EXPORTS", "LOADERS", "Translate"]
