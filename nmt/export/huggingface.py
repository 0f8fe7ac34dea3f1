"""Export to Hugging Face Transformers: a directory for `AutoModelForSeq2SeqLM` and `AutoTokenizer`.

Post-norm models become MarianMT, pre-norm models become Pegasus, which differs only in the position
of the norms. Their position encodings concatenate sines and cosines, where nmt interleaves them.
The order of the D features between layers is arbitrary, so the export reorders them in every weight
that reads or writes them, and the model computes exactly the same function.

Models with rotary positions, RMSNorm, SwiGLU or grouped-query attention become a model of nmt's
own, whose code (`modeling_nmt.py`) is a part of the export. All use Marian's tokenizer.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import warnings
from collections.abc import Container, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from nmt.core.packages import require_package
from nmt.core.registry import parse
from nmt.engines import max_target_length
from nmt.export import common
from nmt.export.common import (
    Translate,
    num_positions,
    require_transformer,
    unsupported_option,
)
from nmt.model.marian_names import LAYER
from nmt.model.position_formulas import ROTARY_BASE
from nmt.model.transformer import Transformer
from nmt.runs.model_files import LoadedModel
from nmt.search import parse_search
from nmt.search.beam import Beam
from nmt.text.separate_tokenizer import SOURCE, TARGET, VOCABULARY, SeparateTokenizer
from nmt.text.tokenizer import BOS, EOS, PAD, UNK

Weights = dict[str, Tensor]
EMBEDDINGS = {
    "model.encoder.embed_tokens.weight": "source",
    "model.decoder.embed_tokens.weight": "target",
    "model.shared.weight": "source",
    "lm_head.weight": "output",
}
MARIAN = {
    "position_encoding": ("sinusoidal", "sinusoidal_concatenated"),
    "activation": ("relu", "gelu", "silu"),
}
"""Options of models that become MarianMT or Pegasus."""
SUPPORTED = {
    "position_encoding": ("rotary", *MARIAN["position_encoding"]),
    "activation": (),
    "norm": (),
    "kv_heads": (),
}
"""Options of all models that can be exported; see `require_transformer`."""
READERS = ("self_attention.qkv", "cross_attention.q", "cross_attention.kv", "feed_forward.up")
"""Parts of a layer whose inputs are the features; those of the others are the outputs."""


def export(loaded: LoadedModel, directory: Path) -> None:
    """Write model and tokenizer into an existing directory, in float32.

    By default, `generate` has the beam size of the run. Normalize text with
    `nmt.text.normalization.normalize_source`.

    Raises:
        UsageError: Transformers is not installed, or does not support the model.
    """
    model = require_transformer(loaded, "Transformers", SUPPORTED)
    transformers = require_package("Transformers", "transformers")
    search = parse_search(loaded.config.search)
    # For nmt import: the origin of the model.
    shutil.copyfile(loaded.run / "data.json", directory / "data.json")
    with _quiet(transformers):
        is_marian = not unsupported_option(model.config, MARIAN)
        hf_model = _marian(loaded, model, transformers) if is_marian else _own_model(loaded)
        hf_model.generation_config = transformers.GenerationConfig(
            num_beams=search.beam_size if isinstance(search, Beam) else 1,
            do_sample=False,
            max_length=max_target_length(loaded.max_source_length) + 2,
            **_special_ids(),
        )
        hf_model.save_pretrained(directory)
        _save_tokenizer(loaded, directory, transformers)


def load(directory: Path) -> Translate:
    """Return a function that translates with a directory written by `export`, whose code it runs.

    Raises:
        UsageError: Transformers is not installed.
    """
    transformers = require_package("Transformers", "transformers")
    with _quiet(transformers):
        model = transformers.AutoModelForSeq2SeqLM.from_pretrained(
            directory, local_files_only=True, trust_remote_code=True, dtype=torch.float32
        )
        tokenizer = transformers.AutoTokenizer.from_pretrained(
            directory, local_files_only=True, trust_remote_code=True
        )
    model.eval()

    @torch.inference_mode()
    def translate(batch: list[str]) -> list[str]:
        inputs = tokenizer(batch, return_tensors="pt", padding=True)
        num_source_tokens = inputs["attention_mask"].sum(1).tolist()
        limits = [max_target_length(length - 1) for length in num_source_tokens]
        outputs = model.generate(**inputs, do_sample=False, num_beams=1, max_length=max(limits) + 2)
        ids = [row[1 : 1 + limit] for row, limit in zip(outputs.tolist(), limits, strict=True)]
        texts: list[str] = tokenizer.batch_decode(ids, skip_special_tokens=True)
        return texts

    return lambda sentences: common.translate_in_batches(sentences, translate)


def _own_model(loaded: LoadedModel) -> Any:
    """Return the model of `modeling_nmt`, whose `save_pretrained` copies this module, too."""
    from nmt.export import modeling_nmt  # imports Transformers

    config = loaded.config.model
    name, options = parse(config.position_encoding)
    arguments = {
        option: getattr(config, option)
        for option in modeling_nmt.NmtConfig.__annotations__
        if hasattr(config, option)
    }
    arguments |= {
        "vocab_size": len(loaded.tokenizer),
        "kv_heads": config.kv_heads or config.heads,
        "position_encoding": name,
        "rotary_base": options.get("base", ROTARY_BASE),
        "tokenizer_class": "MarianTokenizer",
    }
    hf_config: Any = modeling_nmt.NmtConfig(**arguments, **_special_ids())
    hf_model: Any = modeling_nmt.NmtForSeq2SeqLM(hf_config)
    hf_config.register_for_auto_class()
    hf_model.register_for_auto_class("AutoModelForSeq2SeqLM")
    hf_model.load_state_dict(loaded.model.state_dict())
    return hf_model


def _marian(loaded: LoadedModel, model: Transformer, transformers: Any) -> Any:
    """Return a MarianMT or Pegasus model."""
    config_class, model_class = transformers.MarianConfig, transformers.MarianMTModel
    if model.config.norm_position == "pre":
        config_class = transformers.PegasusConfig
        model_class = transformers.PegasusForConditionalGeneration
    hf_model = model_class(config_class(**_config(loaded)))
    weights = hf_model.state_dict()
    if model.output_bias_V is not None:
        weights["final_logits_bias"] = model.output_bias_V[None]
    hf_model.load_state_dict(weights | _weights(model, weights.keys()))
    return hf_model


def _config(loaded: LoadedModel) -> dict[str, Any]:
    """Return the arguments of the config of a MarianMT or Pegasus model."""
    config, vocab_size = loaded.config.model, len(loaded.tokenizer)
    arguments = {
        "vocab_size": vocab_size,
        "d_model": config.dim,
        "max_position_embeddings": num_positions(loaded),
        "scale_embedding": True,
        "activation_function": config.activation,
        "dropout": config.dropout,
        "attention_dropout": config.attention_dropout,
        "activation_dropout": config.activation_dropout,
        "tie_word_embeddings": config.tie_embeddings,
    }
    for stack in LAYER:
        arguments[f"{stack}_layers"] = getattr(config, f"{stack}_layers")
        arguments[f"{stack}_ffn_dim"] = config.ffn_dim
        arguments[f"{stack}_attention_heads"] = config.heads
    if config.norm_position == "post":
        arguments["share_encoder_decoder_embeddings"] = config.tie_embeddings
        arguments["decoder_vocab_size"] = vocab_size
    return arguments | _special_ids()


def _special_ids() -> dict[str, Any]:
    return {
        "pad_token_id": PAD,
        "bos_token_id": BOS,
        "eos_token_id": EOS,
        "decoder_start_token_id": BOS,
        "forced_eos_token_id": None,
    }


def _save_tokenizer(loaded: LoadedModel, directory: Path, transformers: Any) -> None:
    """Write the tokenizer: the SentencePiece models of both sides, and the ids of the pieces."""
    tokenizer = loaded.tokenizer
    files = {name: directory / name for name in (SOURCE, TARGET, VOCABULARY)}
    source = target = tokenizer.model
    if isinstance(tokenizer, SeparateTokenizer):
        source, target = tokenizer.source, tokenizer.target
    files[SOURCE].write_bytes(source)
    files[TARGET].write_bytes(target)
    pieces = tokenizer.ids_to_pieces(range(len(tokenizer)))
    ids = {piece: i for i, piece in enumerate(pieces)}
    files[VOCABULARY].write_text(json.dumps(ids, ensure_ascii=False, indent=0), encoding="utf-8")
    transformers.MarianTokenizer(
        *map(str, files.values()),
        source_lang=loaded.config.data.src,
        target_lang=loaded.config.data.tgt,
        pad_token=pieces[PAD],
        unk_token=pieces[UNK],
        bos_token=pieces[BOS],
        eos_token=pieces[EOS],
        model_max_length=loaded.max_source_length + 1,
        clean_up_tokenization_spaces=False,
        split_special_tokens=True,  # tokenize "</s>" in the input as text
    ).save_pretrained(directory)


def _weights(model: Transformer, hf_names: Container[str]) -> Weights:
    """Return the weights under their Transformers names, with reordered features."""
    order_D = torch.arange(model.config.dim)
    if model.config.position_encoding == "sinusoidal":
        order_D = order_D.view(-1, 2).t().flatten()  # 0 2 4 ... 1 3 5 ...
    weights: Weights = {}
    for name, role in EMBEDDINGS.items():
        if name in hf_names:
            weights[name] = model.embedding_weight(role)[:, order_D]
    for stack, names in LAYER.items():
        for i, layer in enumerate(getattr(model, f"{stack}_layers")):
            for name, parts in names.items():
                for kind, tensor in _reordered(name, layer.get_submodule(name), order_D).items():
                    chunks = tensor.chunk(len(parts))
                    for part, chunk in zip(parts, chunks, strict=True):
                        weights[f"model.{stack}.layers.{i}.{part}.{kind}"] = chunk
        if model.config.norm_position == "pre":
            for kind, tensor in getattr(model, f"{stack}_norm").named_parameters():
                weights[f"model.{stack}.layer_norm.{kind}"] = tensor[order_D]
    return weights


def _reordered(name: str, module: nn.Module, order_D: Tensor) -> Weights:
    """Return weight and bias of a part of a layer, with reordered features."""
    weights: Weights = dict(module.named_parameters())
    if name in READERS:
        return weights | {"weight": weights["weight"][:, order_D]}
    return {kind: tensor[order_D] for kind, tensor in weights.items()}


@contextlib.contextmanager
def _quiet(transformers: Any) -> Iterator[None]:
    """Suppress warnings, and progress bars for the rest of the process."""
    transformers.utils.logging.disable_progress_bar()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
