"""Which engine runs a model: the native one where it can, PyTorch elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from nmt import runtime
from nmt.config import ModelConfig
from nmt.errors import NMTError, UsageError
from nmt.inference import native
from nmt.inference.batch import BatchEngine, Model
from nmt.inference.ensemble import NativeEnsemble
from nmt.inference.native import NativeModel
from nmt.runs import checkpoint, discovery
from nmt.runs.discovery import ModelFiles

if TYPE_CHECKING:  # what the native engine runs needs no PyTorch
    from nmt.model.seq2seq import Seq2Seq

Weights = Mapping[str, NDArray[np.float32]]
Detokenize = Callable[[Sequence[int]], str]


def load_engine(models: Sequence[ModelFiles], device: str, precision: str, detokenize: Detokenize) -> BatchEngine:
    """Return the engine for one model on disk, or for the mean of several that share a tokenizer.

    Args:
        models: the models.
        device: see `runtime.resolve_device`.
        precision: of the search: auto, fp32, bf16, fp16 or int8.
        detokenize: returns the text of ids.

    Raises:
        CheckpointError: weights are missing or damaged, or do not fit their configuration.
        UsageError: the precision is not to be had for this model on this device.
    """
    if runs_natively([each.config.model for each in models], device):

        def make_native(precision: str) -> Model:
            return _native([_load_native(each, precision) for each in models])

        precision = _native_precision(precision, models[0].config.model)
        return BatchEngine(make_native, precision, detokenize, runtime.num_threads())
    networks = [discovery.load(each.checkpoint).model for each in models]
    return _pytorch_engine(networks, device, precision, detokenize)


def engine_of(networks: Sequence[Seq2Seq], device: str, precision: str, detokenize: Detokenize) -> BatchEngine:
    """Return the engine for networks that are in memory; later changes of their weights do not reach it.

    Raises:
        UsageError: the precision is not to be had for them on this device.
    """
    if not runs_natively([network.config for network in networks], device):
        return _pytorch_engine(networks, device, precision, detokenize, copy=True)

    def make_native(precision: str) -> Model:
        return _native([NativeModel(n.config, _arrays(n.state_dict()), precision) for n in networks])

    precision = _native_precision(precision, networks[0].config)
    return BatchEngine(make_native, precision, detokenize, runtime.num_threads())


def runs_natively(configs: Sequence[ModelConfig], device: str) -> bool:
    """Return whether the native engine computes these models on this device."""
    return device == "cpu" and all(map(native.supports, configs)) and native.available()


def _native_precision(precision: str, config: ModelConfig) -> str:
    return native.fastest_precision(config) if precision == "auto" else precision


def _native(models: Sequence[NativeModel]) -> Model:
    return models[0] if len(models) == 1 else NativeEnsemble(models)


def _load_native(files: ModelFiles, precision: str) -> NativeModel:
    try:
        model = NativeModel(files.config.model, checkpoint.read_weights(files.checkpoint), precision)
    except ValueError:
        raise files.mismatch_error() from None
    except MemoryError:
        raise NMTError("the model does not fit into memory", "--precision int8 needs a quarter of it") from None
    if model.vocab_size != len(files.tokenizer):
        raise files.mismatch_error()
    return model


def _arrays(tensors: Mapping[str, Any]) -> Weights:
    return {name: tensor.detach().float().cpu().numpy() for name, tensor in tensors.items()}


def _pytorch_engine(
    networks: Sequence[Seq2Seq], device: str, precision: str, detokenize: Detokenize, *, copy: bool = False
) -> BatchEngine:
    import torch

    from nmt.inference.pytorch import TorchModel

    if precision == "int8":
        reason = native.problem() or "it does not compute this kind of model"
        raise UsageError(f"int8 needs the native engine: {reason}", "--precision auto picks what is fast here")
    if precision == "auto":
        precision = runtime.gpu_precision(torch.device(device)) if device != "cpu" else "fp32"
    placed = [network.to(device) for network in networks]

    def make(precision: str) -> Model:
        return TorchModel(placed, None if precision == "fp32" and not copy else runtime.torch_dtype(precision))

    return BatchEngine(make, precision, detokenize)
