"""Export in float32 to CTranslate2, a C++ inference engine for CPUs and GPUs.

CTranslate2 also computes in int8 and other types.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from nmt.core.registry import parse
from nmt.core.runtime import require_package
from nmt.engines import Source
from nmt.engines.ctranslate2 import CTranslate2Engine
from nmt.export.common import Translate, copy_run_files, num_positions, require_transformer
from nmt.model.ctranslate2_names import LAYER
from nmt.model.layers import LayerNorm
from nmt.model.position_formulas import ROTARY_BASE
from nmt.model.positions.absolute import SINUSOIDS, sinusoids
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

    CTranslate2 reads and writes pieces. Normalize text with `nmt.text.normalization.normalize`, and
    split and join it with the `spm.model` of the run.

    Raises:
        UsageError: CTranslate2 is not installed, or does not support the model.
    """
    config = loaded.config.model
    encoding, options = parse(config.position_encoding)
    rotary = encoding == "rotary"
    model = require_transformer(
        loaded,
        "CTranslate2",
        {
            "position_encoding": ("rotary", "learned", *SINUSOIDS),
            "activation": ACTIVATIONS,
            "source_eos": (),
        },
    )
    specs = require_package("CTranslate2", "ctranslate2").specs
    copy_run_files(loaded, directory)
    confidence.copy(loaded, directory)
    common = {
        "pre_norm": config.norm_position == "pre",
        "activation": getattr(specs.Activation, ACTIVATIONS[config.activation]),
    }
    if rotary:
        common |= {
            "rotary_dim": config.dim // config.heads,
            "rotary_base": options.get("base", ROTARY_BASE),
        }
    spec = specs.TransformerSpec(
        specs.TransformerEncoderSpec(config.encoder_layers, config.heads, **common),
        specs.TransformerDecoderSpec(config.decoder_layers, config.heads, **common),
    )
    sinusoids_ND = _array(SINUSOIDS.get(encoding, sinusoids)(num_positions(loaded), config.dim))
    for stack, role in ((spec.encoder, "source"), (spec.decoder, "target")):
        embeddings = stack.embeddings[0] if role == "source" else stack.embeddings
        embeddings.weight = _array(model.embedding_weight(role))
        if hasattr(
            stack, "position_encodings"
        ):  # a rotary encoder adds them as well, so they must be zero
            positions_ND = sinusoids_ND
            if (
                encoding == "learned"
            ):  # padded, because CTranslate2 fails if a translation is longer than the table
                table_ND = _array(getattr(model, f"{role}_positions").table_ND)
                padding = max(0, len(sinusoids_ND) - len(table_ND))
                positions_ND = np.pad(table_ND, ((0, padding), (0, 0)), mode="edge")
            stack.position_encodings.encodings = 0 * positions_ND if rotary else positions_ND
    if config.norm_position == "pre":
        _copy(model.encoder_norm, spec.encoder.layer_norm)
        _copy(model.decoder_norm, spec.decoder.layer_norm)
    spec.decoder.projection.weight = _array(model.output_weight_VD)
    if model.output_bias_V is not None:
        spec.decoder.projection.bias = _array(model.output_bias_V)
    layers: dict[str, Sequence[nn.Module]] = {
        "encoder": model.encoder_layers,
        "decoder": model.decoder_layers,
    }
    for stack in layers:
        for layer, layer_spec in zip(layers[stack], getattr(spec, stack).layer, strict=True):
            for name, scope in LAYER[stack].items():
                _copy(layer.get_submodule(name), specs.model_spec.index_spec(layer_spec, scope))
    pieces = loaded.tokenizer.ids_to_pieces(range(len(loaded.tokenizer)))
    spec.register_source_vocabulary(pieces)
    spec.register_target_vocabulary(pieces)
    spec.config.unk_token, spec.config.bos_token, spec.config.eos_token = (
        pieces[i] for i in (UNK, BOS, EOS)
    )
    spec.config.decoder_start_token = pieces[BOS]
    spec.config.add_source_bos = False
    spec.config.add_source_eos = config.source_eos
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


def _copy(module: nn.Module, spec: Any) -> None:
    """Copy weight and bias of a linear or normalization layer."""
    names = ("gamma", "beta") if isinstance(module, LayerNorm) else ("weight", "bias")
    for name, kind in zip(names, ("weight", "bias"), strict=True):
        setattr(spec, name, _array(module.get_parameter(kind)))


def _array(tensor: Tensor) -> NDArray[np.float32]:
    return np.ascontiguousarray(tensor.detach().float().cpu().numpy())
