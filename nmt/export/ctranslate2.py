"""Export in float32 to CTranslate2, a C++ inference engine for CPUs and GPUs.

CTranslate2 also computes in int8 and other types.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nmt.core.config import ModelConfig
from nmt.core.packages import require_package
from nmt.core.registry import parse
from nmt.engines import Source
from nmt.engines.ctranslate2 import CTranslate2Engine
from nmt.export.common import Translate, copy_run_files, num_positions, require_transformer
from nmt.model.ctranslate2_names import LAYER
from nmt.model.layers import LayerNorm
from nmt.model.position_formulas import ROTARY_BASE
from nmt.model.positions.absolute import SINUSOIDS
from nmt.model.transformer import Transformer
from nmt.runs.model_files import LoadedModel
from nmt.search import parse_search
from nmt.text.tokenizer import BOS, EOS, UNK
from nmt.text.tokenizers import load_tokenizer, tokenizer_file
from nmt.translation import confidence

ACTIVATIONS = {"relu": "RELU", "gelu": "GELU", "silu": "SWISH"}
"""Activation functions of nmt, and their names in CTranslate2."""


def export(loaded: LoadedModel, directory: Path) -> None:
    """Write the model in float32 and the files of the run into an existing directory; CTranslate2
    quantizes on loading.

    CTranslate2 reads and writes pieces. Normalize text with
    `nmt.text.normalization.normalize_source`, and split and join it with the `spm.model` of the
    run.

    Raises:
        UsageError: CTranslate2 is not installed, or does not support the model.
    """
    supported = {
        "position_encoding": ("rotary", "learned", *SINUSOIDS),
        "activation": ACTIVATIONS,
        "source_eos": (),
    }
    model = require_transformer(loaded, "CTranslate2", supported)
    specs = require_package("CTranslate2", "ctranslate2").specs
    copy_run_files(loaded, directory)
    confidence.copy(loaded, directory)
    spec = _spec(model.config, specs)
    weights = _weights(model)
    for stack, side in (("encoder", "source"), ("decoder", "target")):
        if hasattr(getattr(spec, stack), "position_encodings"):
            table_ND = _positions(model, side, num_positions(loaded))
            weights[f"{stack}/position_encodings/encodings"] = table_ND
    for name, weight in weights.items():
        scope, _, attribute = name.rpartition("/")
        array = np.ascontiguousarray(weight.detach().float().cpu().numpy())
        setattr(specs.model_spec.index_spec(spec, scope), attribute, array)
    _set_vocabulary(spec, loaded)
    spec.validate()
    spec.optimize(quantization=None)
    spec.save(str(directory))


def load(directory: Path) -> Translate:
    """Return a function that translates with a directory written by `export`.

    Raises:
        UsageError: CTranslate2 is not installed.
    """
    tokenizer = load_tokenizer(tokenizer_file(directory))
    ctranslate2_engine = CTranslate2Engine(directory, tokenizer, "cpu", "fp32")

    def translate(sentences: Sequence[str]) -> list[str]:
        sources = [Source(tokenizer.encode(text)) for text in sentences]
        hypotheses = ctranslate2_engine.search(sources, parse_search("greedy"), lambda _: None)
        return [tokenizer.decode(n_best[0].ids) for n_best in hypotheses]

    return translate


def _spec(config: ModelConfig, specs: Any) -> Any:
    """Return a model of CTranslate2 without weights."""
    encoding, position_options = parse(config.position_encoding)
    options: dict[str, Any] = {
        "pre_norm": config.norm_position == "pre",
        "activation": getattr(specs.Activation, ACTIVATIONS[config.activation]),
    }
    if encoding == "rotary":
        options["rotary_dim"] = config.dim // config.heads
        options["rotary_base"] = position_options.get("base", ROTARY_BASE)
    encoder = specs.TransformerEncoderSpec(config.encoder_layers, config.heads, **options)
    decoder = specs.TransformerDecoderSpec(config.decoder_layers, config.heads, **options)
    return specs.TransformerSpec(encoder, decoder)


def _set_vocabulary(spec: Any, loaded: LoadedModel) -> None:
    pieces = loaded.tokenizer.ids_to_pieces(range(len(loaded.tokenizer)))
    spec.register_source_vocabulary(pieces)
    spec.register_target_vocabulary(pieces)
    config = spec.config
    config.unk_token = pieces[UNK]
    config.bos_token = config.decoder_start_token = pieces[BOS]
    config.eos_token = pieces[EOS]
    config.add_source_bos = False
    config.add_source_eos = loaded.config.model.source_eos


def _weights(model: Transformer) -> dict[str, Tensor]:
    """Return the weights under their names in CTranslate2, except for tables of positions."""
    weights = {
        "encoder/embeddings_0/weight": model.embedding_weight("source"),
        "decoder/embeddings/weight": model.embedding_weight("target"),
        "decoder/projection/weight": model.output_weight_VD,
    }
    if model.output_bias_V is not None:
        weights["decoder/projection/bias"] = model.output_bias_V
    modules: dict[str, Any] = {}
    for stack, scopes in LAYER.items():
        for i, layer in enumerate(getattr(model, f"{stack}_layers")):
            for name, scope in scopes.items():
                modules[f"{stack}/layer_{i}/{scope}"] = layer.get_submodule(name)
        if model.config.norm_position == "pre":
            modules[f"{stack}/layer_norm"] = getattr(model, f"{stack}_norm")
    for scope, module in modules.items():
        weight, bias = ("gamma", "beta") if isinstance(module, LayerNorm) else ("weight", "bias")
        weights[f"{scope}/{weight}"] = module.weight
        weights[f"{scope}/{bias}"] = module.bias
    return weights


def _positions(model: Transformer, side: str, length: int) -> Tensor:
    """Return the table that CTranslate2 adds to the embeddings of one side."""
    encoding = parse(model.config.position_encoding)[0]
    if encoding == "rotary":  # its encoder adds a table as well
        return torch.zeros(length, model.config.dim)
    if encoding == "learned":
        # Padded, because CTranslate2 fails if a translation is longer than the table.
        table_ND: Tensor = getattr(model, f"{side}_positions").table_ND
        num_missing = max(0, length - len(table_ND))
        return torch.cat([table_ND, table_ND[-1:].expand(num_missing, -1)])
    return SINUSOIDS[encoding](length, model.config.dim)
