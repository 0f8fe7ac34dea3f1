"""Models for other engines. Each is one file: `export(loaded, folder)` writes one, `engine(folder)` translates with it.

A new one is a file and a line in both tables. Options of `export` are keyword-only arguments. No export is kept that
has not proven itself; see `nmt.prove`.
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
