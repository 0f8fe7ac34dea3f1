"""Compilation of parts of an update with torch.compile (`train.compile`)."""

from __future__ import annotations

import functools
import os
import shutil
import sysconfig
from importlib.util import find_spec
from pathlib import Path

import torch

from nmt.core.config import Config, TrainConfig
from nmt.core.errors import ConfigError, UsageError, suggest
from nmt.model.transformer import DecoderLayer, EncoderLayer, LayerFunctions
from nmt.training.loss import LogitsLoss, compiled_logits_loss, logits_loss, packed_logits_loss

PARTS = ("auto", "loss", "layers")
MIN_CAPABILITY = (7, 0)
"""Compute capability of a GPU that Triton needs."""


def check_compile(config: Config) -> None:
    """Raise a ConfigError if `train.compile` names an unknown part."""
    for part in config.train.compile:
        if part not in PARTS:
            raise ConfigError(f"train.compile: unknown part '{part}'", suggest(part, PARTS))


def check_packed_parts(config: TrainConfig, *, packed: bool) -> None:
    """Raise a ConfigError if `train.compile` names a part of packed batches, and they are
    padded."""
    if "layers" in config.compile and not packed:
        raise ConfigError(
            "train.compile=[layers] is for packed batches, and this run pads its batches",
            "packing needs a GPU, train.packing, and a model that supports it; set"
            " train.compile=[loss]",
        )


def require_compiler(config: Config, device: torch.device) -> None:
    """Raise a UsageError if `train.compile` names a part that cannot be compiled with this device
    or installation; `auto` does without."""
    if not set(config.train.compile) - {"auto"}:
        return
    hint = "set train.compile=[]"
    if device.type == "cuda":
        if missing := _missing_for_gpu():
            raise UsageError(f"train.compile needs {missing}", f"install it, or {hint}")
        if torch.cuda.get_device_capability(device) < MIN_CAPABILITY:
            raise UsageError("train.compile needs a GPU of compute capability 7.0 or higher", hint)
        return
    compilers = ("g++", "clang++", "cl")
    if "CXX" not in os.environ and not any(map(shutil.which, compilers)):
        raise UsageError("train.compile needs a C++ compiler", f"install it, or {hint}")
    if " " in torch.__file__:  # PyTorch does not quote it for the linker
        raise UsageError(
            f"train.compile: the path of PyTorch contains a space: {torch.__file__}",
            f"install nmt in another directory, or {hint}",
        )


def _missing_for_gpu() -> str:
    """Return what compiling for a GPU needs and this installation lacks; empty: nothing. Triton
    builds its launcher in C."""
    if find_spec("triton") is None:
        return "Triton"
    if "CC" not in os.environ and not any(map(shutil.which, ("gcc", "clang"))):
        return "a C compiler"
    header = Path(sysconfig.get_path("include"), "Python.h")
    return "" if header.is_file() else f"the headers of Python ({header})"


def compiles(part: str, config: TrainConfig, device: torch.device, *, packed: bool) -> bool:
    """Return whether an update compiles a part; `auto` does so on a GPU where torch.compile
    works."""
    if part in config.compile:
        return True
    if "auto" not in config.compile or not packed or device.type != "cuda":
        return False
    return not _missing_for_gpu() and torch.cuda.get_device_capability(device) >= MIN_CAPABILITY


def loss_function(config: TrainConfig, device: torch.device, *, packed: bool) -> LogitsLoss:
    """Return what computes the loss of a chunk of logits."""
    if not compiles("loss", config, device, packed=packed):
        return logits_loss
    return packed_logits_loss if packed else compiled_logits_loss


def layer_functions(config: TrainConfig, device: torch.device) -> LayerFunctions:
    """Return what runs the layers of packed batches."""
    if compiles("layers", config, device, packed=True):
        return compiled_layers()
    return LayerFunctions()


@functools.cache
def compiled_layers() -> LayerFunctions:
    """Compile the methods of both kinds of layers, each once for all of its layers: sizes are
    constants, because all packed batches have the same."""
    return LayerFunctions(
        torch.compile(EncoderLayer.forward, dynamic=False),
        torch.compile(DecoderLayer.forward, dynamic=False),
    )
