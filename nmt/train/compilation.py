"""Compilation of parts of an update with torch.compile (`train.compile`)."""

from __future__ import annotations

import os
import shutil
from importlib.util import find_spec

import torch

from nmt.core.config import Config
from nmt.core.errors import ConfigError, UsageError, suggest
from nmt.model.build import MODELS
from nmt.model.seq2seq import Seq2Seq

PARTS = ("loss", "model")
BACKEND = "inductor"
"""The compiler of torch.compile."""


def check_compile(config: Config) -> None:
    """Check `train.compile`.

    Raises:
        ConfigError: a part is unknown, or the model cannot be compiled.
    """
    for part in config.train.compile:
        if part not in PARTS:
            raise ConfigError(f"train.compile: unknown part '{part}'", suggest(part, PARTS))
    if "model" not in config.train.compile:
        return
    hint = "set train.compile=[loss]"
    arch = config.model.arch
    if not MODELS[arch].supports_compilation:
        raise ConfigError(
            f"train.compile=[model] does not support model.arch={arch}, whose lengths are data",
            hint,
        )
    if config.model.position_encoding.startswith("floater"):
        raise ConfigError(
            "train.compile=[model] does not support model.position_encoding=floater", hint
        )


def require_compiler(config: Config, device: torch.device) -> None:
    """Raise a UsageError if `train.compile` is set and cannot work with this device or
    installation."""
    if not config.train.compile:
        return
    if device.type == "cuda":
        is_available, name = find_spec("triton") is not None, "Triton"
        if is_available and torch.cuda.get_device_capability(device) < (7, 0):
            raise UsageError(
                "train.compile needs a GPU of compute capability 7.0 or higher",
                "set train.compile=[]",
            )
    else:
        compilers = ("g++", "clang++", "cl")
        is_available, name = (
            "CXX" in os.environ or any(map(shutil.which, compilers)),
            "a C++ compiler",
        )
    if not is_available:
        raise UsageError(f"train.compile needs {name}", "install it, or set train.compile=[]")
    if device.type == "cpu" and " " in torch.__file__:  # PyTorch does not quote it for the linker
        hint = "install nmt in another directory, or set train.compile=[]"
        raise UsageError(
            f"train.compile: the path of PyTorch contains a space: {torch.__file__}", hint
        )


def compile_model(model: Seq2Seq) -> None:
    """Compile the training forward pass in place. Sizes are symbolic, so that a few graphs cover
    all batches."""
    model.compile(dynamic=True, backend=BACKEND)
