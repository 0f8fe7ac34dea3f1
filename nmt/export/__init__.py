"""Export of models to other engines.

Each module has `export(loaded, directory)` and `engine(directory)`, which translates with the exported model. Options
of `export` are keyword-only arguments. To add a format, write a module and register it in both tables. An export is
kept only if it passes the verification in `nmt.export.verify`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from nmt.export import ctranslate2, huggingface, onnx, safetensors
from nmt.export.common import Engine

EXPORTS: dict[str, Callable[..., None]] = {
    "ctranslate2": ctranslate2.export,
    "safetensors": safetensors.export,
    "onnx": onnx.export,
    "hf-marian": huggingface.export,
}
ENGINES: dict[str, Callable[[Path], Engine]] = {
    "ctranslate2": ctranslate2.engine,
    "safetensors": safetensors.engine,
    "onnx": onnx.engine,
    "hf-marian": huggingface.engine,
}

__all__ = ["ENGINES", "EXPORTS", "Engine"]
