"""CTranslate2: an engine in C++ for translating on CPUs and GPUs, in float32, int8 and more."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from nmt.data.tokenizer import BOS, EOS, UNK, Tokenizer
from nmt.export.common import Engine, copy_run_files, missing, positions, transformer
from nmt.inference import Source
from nmt.inference.ctranslate2 import CTranslate2Engine
from nmt.model.attention import SelfAttention
from nmt.model.layers import Linear
from nmt.model.positions.absolute import sinusoids
from nmt.model.transformer import DecoderLayer, EncoderLayer
from nmt.registry import parse
from nmt.runs.discovery import LoadedModel
from nmt.search import search


def export(loaded: LoadedModel, folder: Path) -> None:
    """Write the model, in float32, and the run's files into `folder`, which stands; CTranslate2 quantizes on loading.

    It takes pieces for input and gives pieces: text is segmented and joined with the run's `spm.model`, and normalized
    by `nmt.text.normalize` before.

    Raises:
        UsageError: CTranslate2 is not installed, or has no such model.
    """
    config = loaded.config.model
    encoding, options = parse(config.position_encoding)
    rotary = encoding == "rotary"
    model = transformer(loaded, "CTranslate2", ("position_encoding",) if rotary else ())
    specs = _ctranslate2().specs
    copy_run_files(loaded, folder)
    common = {"pre_norm": config.norm_position == "pre", "activation": specs.Activation.RELU}
    if rotary:
        common |= {"rotary_dim": config.dim // config.heads, "rotary_base": options.get("base", 10000.0)}
    spec = specs.TransformerSpec(
        specs.TransformerEncoderSpec(config.encoder_layers, config.heads, **common),
        specs.TransformerDecoderSpec(config.decoder_layers, config.heads, **common),
    )
    table = _array(sinusoids(positions(loaded), config.dim))
    for side, role in ((spec.encoder, "source"), (spec.decoder, "target")):
        embeddings = side.embeddings[0] if role == "source" else side.embeddings
        embeddings.weight = _array(model.table(role))
        if hasattr(side, "position_encodings"):  # where queries and keys are turned, an encoder still adds a table
            side.position_encodings.encodings = 0 * table if rotary else table
    if config.norm_position == "pre":
        _norm(spec.encoder.layer_norm, model.encoder_norm)
        _norm(spec.decoder.layer_norm, model.decoder_norm)
    spec.decoder.projection.weight = _array(model.output_weight_VD)
    for layer, own in zip(spec.encoder.layer, model.encoder_layers, strict=True):
        _encoder_layer(layer, own)
    for layer, decoder in zip(spec.decoder.layer, model.decoder_layers, strict=True):
        _decoder_layer(layer, decoder)
    pieces = loaded.tokenizer.ids_to_pieces(range(len(loaded.tokenizer)))
    spec.register_source_vocabulary(pieces)
    spec.register_target_vocabulary(pieces)
    spec.config.unk_token, spec.config.bos_token, spec.config.eos_token = (pieces[i] for i in (UNK, BOS, EOS))
    spec.config.decoder_start_token = pieces[BOS]
    spec.config.add_source_bos = False
    spec.config.add_source_eos = True
    spec.validate()
    spec.optimize(quantization=None)
    spec.save(str(folder))


def engine(folder: Path) -> Engine:
    """Return a translator of what `export` wrote.

    Raises:
        UsageError: CTranslate2 is not installed.
    """
    tokenizer = Tokenizer.load(folder / "spm.model")
    own = CTranslate2Engine(folder, tokenizer, "cpu", "fp32")

    def translate(batch: Sequence[str]) -> list[str]:
        found = own.search([Source(tokenizer.encode(text)) for text in batch], search("greedy"), lambda _: None)
        return [tokenizer.decode(hypotheses[0].ids) for hypotheses in found]

    return translate


def _ctranslate2() -> Any:
    try:
        import ctranslate2
    except ImportError:
        raise missing("CTranslate2", "ctranslate2") from None
    return ctranslate2


def _encoder_layer(spec: Any, layer: EncoderLayer | DecoderLayer) -> None:
    _self_attention(spec.self_attention, layer.attention)
    _norm(spec.self_attention.layer_norm, layer.attention_residual.norm)
    _feed_forward(spec.ffn, layer)


def _decoder_layer(spec: Any, layer: DecoderLayer) -> None:
    _encoder_layer(spec, layer)
    for linear, own in zip(spec.attention.linear, (layer.cross.q, layer.cross.kv, layer.cross.out), strict=True):
        _linear(linear, own)
    _norm(spec.attention.layer_norm, layer.cross_attention_residual.norm)


def _self_attention(spec: Any, attention: SelfAttention) -> None:
    _linear(spec.linear[0], attention.qkv)
    _linear(spec.linear[1], attention.out)


def _feed_forward(spec: Any, layer: EncoderLayer | DecoderLayer) -> None:
    _linear(spec.linear_0, layer.feed_forward.up)
    _linear(spec.linear_1, layer.feed_forward.down)
    _norm(spec.layer_norm, layer.ffn_residual.norm)


def _linear(spec: Any, layer: Linear) -> None:
    spec.weight, spec.bias = _array(layer.weight), _array(layer.bias)


def _norm(spec: Any, norm: Any) -> None:
    spec.gamma, spec.beta = _array(norm.weight), _array(norm.bias)


def _array(tensor: Tensor) -> NDArray[np.float32]:
    return np.ascontiguousarray(tensor.detach().float().cpu().numpy())
