"""Load models into an engine: the native engine if it supports them, otherwise PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from nmt.core import runtime
from nmt.core.config import ModelConfig
from nmt.core.errors import NMTError, UsageError
from nmt.engines import native
from nmt.engines.batch_engine import GPU_BATCH_SCALE, BatchEngine, Model
from nmt.engines.ensemble import NativeEnsemble
from nmt.engines.native import NativeModel
from nmt.runs import checkpoint
from nmt.runs.model_files import ModelFiles, load_model
from nmt.runs.quantization import is_calibrated, read_multipliers
from nmt.search.shortlist import Shortlist

if TYPE_CHECKING:  # the native engine does not need PyTorch
    from nmt.model.seq2seq import Seq2Seq

Detokenize = Callable[[Sequence[int]], str]


def load_engine(
    files: Sequence[ModelFiles], device: str, precision: str, detokenize: Detokenize
) -> BatchEngine:
    """Load one model, or an ensemble that averages the probabilities of several models with the
    same tokenizer.

    Args:
        files: the models on disk.
        device: device name as returned by `runtime.resolve_device`.
        precision: precision of the search: auto, fp32, bf16, fp16 or int8.
        detokenize: returns the text of token ids.

    Raises:
        CheckpointError: weights are missing or damaged, or do not match their configuration.
        UsageError: the device does not support the precision for this model.
    """
    configs = [each.config.model for each in files]
    shortlist = Shortlist.find(files[0].run, files[0].tokenizer)
    if not runs_natively(configs, device):
        models = [load_model(each).model for each in files]
        return _pytorch_engine(models, device, precision, detokenize, shortlist)
    if precision == "auto":
        for each in files:
            _check_sizes(each)
        if all(is_calibrated(each.checkpoint) for each in files):
            precision = "int8"
    return _native_engine(
        configs[0],
        lambda precision: [_load_native(each, precision) for each in files],
        precision,
        detokenize,
        shortlist,
    )


def engine_from_models(
    models: Sequence[Seq2Seq], device: str, precision: str, detokenize: Detokenize
) -> BatchEngine:
    """Return an engine that copies the weights of PyTorch models, so that their training may
    continue.

    Raises:
        UsageError: the device does not support the precision for these models.
    """
    configs = [model.config for model in models]
    if not runs_natively(configs, device):
        return _pytorch_engine(models, device, precision, detokenize, copy=True)

    def load(precision: str) -> list[NativeModel]:
        weights = (
            {name: t.float().cpu().numpy() for name, t in m.state_dict().items()} for m in models
        )
        return [
            NativeModel(m.config, each, precision) for m, each in zip(models, weights, strict=True)
        ]

    return _native_engine(configs[0], load, precision, detokenize)


def runs_natively(configs: Sequence[ModelConfig], device: str) -> bool:
    """Return whether the native engine supports these models on this device."""
    return device == "cpu" and all(map(native.supports, configs)) and native.is_available()


def _native_engine(
    config: ModelConfig,
    load: Callable[[str], list[NativeModel]],
    precision: str,
    detokenize: Detokenize,
    shortlist: Shortlist | None = None,
) -> BatchEngine:
    def make_model(precision: str) -> Model:
        models = load(precision)
        return models[0] if len(models) == 1 else NativeEnsemble(models)

    precision = native.fastest_precision(config) if precision == "auto" else precision
    return BatchEngine(
        make_model,
        precision,
        detokenize,
        runtime.num_threads(),
        source_eos=config.source_eos,
        shortlist=shortlist,
    )


def _check_sizes(files: ModelFiles) -> None:
    """Compare the sizes in the config with the weights: precision `auto` multiplies matrices of
    these sizes."""
    config = files.config.model
    shapes = checkpoint.read_shapes(files.checkpoint)
    if shapes.get("encoder.0.feed_forward.down.weight") != (config.dim, config.ffn_dim):
        raise files.mismatch_error()


def _load_native(files: ModelFiles, precision: str) -> NativeModel:
    try:
        multipliers = read_multipliers(files.checkpoint) if precision == "int8" else None
        weights = checkpoint.read_stored_weights(files.checkpoint)
        model = NativeModel(files.config.model, weights, precision, multipliers)
    except (ValueError, TypeError):  # TypeError: an edited option of the position encoding
        raise files.mismatch_error() from None
    except MemoryError:
        hint = "" if precision == "int8" else "--precision int8 needs a quarter of the memory"
        raise NMTError("the model does not fit into memory", hint) from None
    if model.vocab_size != len(files.tokenizer):
        raise files.mismatch_error()
    return model


def _pytorch_engine(
    models: Sequence[Seq2Seq],
    device: str,
    precision: str,
    detokenize: Detokenize,
    shortlist: Shortlist | None = None,
    *,
    copy: bool = False,
) -> BatchEngine:
    import torch

    from nmt.engines import device_search
    from nmt.engines.pytorch import TorchModel

    if precision == "int8":
        reason = native.unavailable_reason() or "it does not support this model"
        raise UsageError(
            f"int8 needs the native engine: {reason}",
            "use --precision auto, which selects fp32 or bf16",
        )
    if precision == "auto":
        precision = runtime.gpu_precision(torch.device(device)) if device != "cpu" else "fp32"

    def make_model(precision: str) -> Model:
        with runtime.out_of_memory_as(
            NMTError("the model does not fit into memory", "use --device cpu")
        ):
            on_device = [model.to(device) for model in models]
            return TorchModel(
                on_device,
                None if precision == "fp32" and not copy else runtime.torch_dtype(precision),
            )

    return BatchEngine(
        make_model,
        precision,
        detokenize,
        source_eos=models[0].config.source_eos,
        batch_scale=1 if device == "cpu" else GPU_BATCH_SCALE,
        search_function=device_search.search,
        shortlist=shortlist,
    )
