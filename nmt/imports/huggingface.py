"""Import of Marian models in the format of Hugging Face Transformers, such as those of OPUS-MT.

MarianMT models are post-norm Transformers. `nmt export --to transformers` writes pre-norm models as Pegasus with the
tokenizer of Marian, and these can be imported, too. In Transformers, decoding starts from the padding token, whose
embedding is zero; in nmt it starts from BOS, so BOS gets the row of the padding token. The rows are permuted so that
PAD, UNK, BOS and EOS come first.
"""

from __future__ import annotations

import pickle
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from nmt.config import Config, DataConfig, ModelConfig, TokenizerConfig, TrainConfig
from nmt.data.separate_tokenizer import SOURCE, TARGET, SeparateTokenizer
from nmt.data.tokenizer import BOS, EOS, PAD, UNK, Tokenizer
from nmt.errors import CheckpointError
from nmt.imports.common import (
    MASKED,
    RETRY,
    UNKNOWN_LANGUAGES,
    ImportedModel,
    Vocabulary,
    Weights,
    join_vocabularies,
    read_bytes,
    read_json,
    read_kept_data,
    select_rows,
)
from nmt.model.marian_names import LAYER
from nmt.paths import sha256

EMBEDDINGS = {
    "source": ("model.encoder.embed_tokens.weight", "model.shared.weight"),
    "target": ("model.decoder.embed_tokens.weight", "model.shared.weight"),
    "output": ("lm_head.weight", "model.decoder.embed_tokens.weight", "model.shared.weight"),
}
"""The embeddings of nmt, and their names in Transformers: the first that is in the file."""
FILES = (
    "config.json", "generation_config.json", "tokenizer_config.json", "vocab.json", "target_vocab.json", "data.json",
    SOURCE, TARGET,
)  # fmt: skip
"""Files other than the weights."""
WEIGHT_FILES = ("model.safetensors", "pytorch_model.bin")
"""Files of the weights in order of preference; the second is a pickle, loaded with `weights_only=True`."""
ACTIVATIONS = {"swish": "silu", "silu": "silu", "relu": "relu", "gelu": "gelu"}
SUPPORTED = {
    "scale_embedding": True, "normalize_embedding": False, "static_position_embeddings": True,
    "add_bias_logits": False, "extra_pos_embeddings": 0, "encoder_layerdrop": 0.0, "decoder_layerdrop": 0.0,
}  # fmt: skip
"""Options of config.json with the only supported value, which is also that of a missing option."""


def read(directory: Path) -> ImportedModel:
    """Read a model in Hugging Face format.

    Raises:
        CheckpointError: a file is missing or damaged, or the model is not supported.
    """
    options = read_json(directory / "config.json")
    check_type(options, str(directory))
    file, weights = _read_weights(directory)
    try:
        vocabulary = _read_vocabulary(directory, options)
        has_bias = isinstance(vocabulary.tokenizer, SeparateTokenizer) or bool(weights["final_logits_bias"].any())
        config = _config(directory, options, vocabulary.tokenizer, output_bias=has_bias)
        converted = convert(weights, config.model, vocabulary)
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        raise CheckpointError(f"{directory / 'config.json'} is incomplete or damaged: {error}", RETRY) from None
    except IndexError:
        raise CheckpointError(f"{directory / 'vocab.json'} does not fit the weights", RETRY) from None
    return ImportedModel(config, vocabulary.tokenizer, converted, sha256(file), read_kept_data(directory))


def check_type(options: Mapping[str, Any], name: str) -> None:
    """Raise a CheckpointError if the options of config.json are those of another type of model."""
    if (kind := options.get("model_type")) not in ("marian", "pegasus"):
        raise CheckpointError(f"{name} has a model of type '{kind}'", "import a MarianMT model, e.g. of OPUS-MT")


def _config(directory: Path, options: dict[str, Any], tokenizer: Tokenizer, *, output_bias: bool) -> Config:
    tokenizer_options = read_json(directory / "tokenizer_config.json", default={})
    named = (tokenizer_options.get("source_lang"), tokenizer_options.get("target_lang"))
    source, target = (  # the languages of multilingual models are joined by +
        re.sub(r"[^A-Za-z0-9-]+", "_", str(name or "")).strip("_") or unknown
        for name, unknown in zip(named, UNKNOWN_LANGUAGES, strict=True)
    )
    if source == target:  # a group of languages
        source, target = UNKNOWN_LANGUAGES
    num_positions = int(options.get("max_position_embeddings", 512))
    max_length = min(num_positions, int(tokenizer_options.get("model_max_length", num_positions)))
    generation = options | read_json(directory / "generation_config.json", default={})
    return Config(
        search=f"beam(beam_size={max(1, int(generation.get('num_beams') or 1))}, length_normalization='average')",
        data=DataConfig(source, target),
        tokenizer=TokenizerConfig(vocab_size=len(tokenizer)),
        model=model_config(options, output_bias=output_bias),
        train=TrainConfig(max_length=max_length, batch_tokens=max(max_length, TrainConfig.batch_tokens)),
    )


def model_config(options: dict[str, Any], *, output_bias: bool) -> ModelConfig:
    """Return the architecture for the options of config.json.

    Raises:
        CheckpointError: an option is not supported.
        KeyError: an option is missing.
    """
    is_pegasus = options["model_type"] == "pegasus"
    for name, value in (SUPPORTED | {"normalize_before": is_pegasus, "add_final_layer_norm": is_pegasus}).items():
        if options.get(name, value) != value:
            raise CheckpointError(f"{name}={options[name]} of the model is not supported", "use another model")
    sizes = {}
    for name in ("attention_heads", "ffn_dim"):
        encoder, decoder = (int(options[f"{stack}_{name}"]) for stack in ("encoder", "decoder"))
        if encoder != decoder:
            raise CheckpointError(f"encoder_{name}={encoder} and decoder_{name}={decoder} differ", "use another model")
        sizes[name] = encoder
    activation = options["activation_function"]
    ties = (options.get("tie_word_embeddings", True), options.get("share_encoder_decoder_embeddings", True))
    if activation not in ACTIVATIONS:
        raise CheckpointError(f"activation_function={activation} of the model is not supported", "use another model")
    return ModelConfig(
        dim=int(options["d_model"]),
        heads=sizes["attention_heads"],
        ffn_dim=sizes["ffn_dim"],
        encoder_layers=int(options["encoder_layers"]),
        decoder_layers=int(options["decoder_layers"]),
        norm_position="pre" if is_pegasus else "post",
        activation=ACTIVATIONS[activation],
        position_encoding="sinusoidal_concatenated",
        dropout=float(options.get("dropout", 0.1)),
        attention_dropout=float(options.get("attention_dropout", 0.0)),
        activation_dropout=float(options.get("activation_dropout", 0.0)),
        tie_embeddings=all(ties),
        output_bias=output_bias,
    )


def _read_weights(directory: Path) -> tuple[Path, Weights]:
    file = next((directory / name for name in WEIGHT_FILES if (directory / name).exists()), None)
    if file is None:
        raise CheckpointError(f"{directory} has neither {' nor '.join(WEIGHT_FILES)}", RETRY)
    try:
        tensors = load_file(file) if file.suffix == ".safetensors" else torch.load(file, "cpu", weights_only=True)
        return file, Weights(file, {name: tensor.float() for name, tensor in tensors.items()})
    except MemoryError:
        raise
    except Exception as error:  # a damaged pickle raises almost anything
        with file.open("rb") as content:
            is_pickle = content.read(1) in (b"P", b"\x80")  # in a zip file or not; a pointer of Git LFS is text
        if is_pickle and isinstance(error, pickle.UnpicklingError):
            raise CheckpointError(
                f"{file} is damaged, or contains more than tensors, and loading it could run code",
                "download it again, or convert it to model.safetensors with Transformers if you trust it",
            ) from None
        raise CheckpointError(f"{file} is damaged", RETRY) from None


def _read_vocabulary(directory: Path, options: dict[str, Any]) -> Vocabulary:
    source_model, target_model = (read_bytes(directory / name) for name in (SOURCE, TARGET))
    source_ids = read_json(directory / "vocab.json")
    target_ids = read_json(directory / "target_vocab.json", default=source_ids)
    special = [options["pad_token_id"], source_ids["<unk>"], options["decoder_start_token_id"], options["eos_token_id"]]
    if special == [PAD, UNK, BOS, EOS] and source_model == target_model:
        with suppress(CheckpointError):  # a SentencePiece model with other ids, which `vocab.json` maps
            joint = Tokenizer.parse(source_model, directory / SOURCE)
            if source_ids == {piece: i for i, piece in enumerate(joint.ids_to_pieces(range(len(joint))))}:
                return Vocabulary(joint, torch.arange(len(joint)), torch.arange(len(joint)))
    return join_vocabularies(source_model, target_model, source_ids, target_ids, special, special)


def convert(weights: Weights, config: ModelConfig, vocabulary: Vocabulary) -> dict[str, Tensor]:
    """Return the weights by the names of nmt."""
    if config.tie_embeddings:
        converted = {"embeddings.shared": select_rows(weights.first(*EMBEDDINGS["source"]), vocabulary.source_rows_V)}
    else:
        rows = {name: vocabulary.source_rows_V if name == "source" else vocabulary.target_rows_V for name in EMBEDDINGS}
        converted = {f"embeddings.{name}": select_rows(weights.first(*EMBEDDINGS[name]), rows[name]) for name in rows}
    if config.output_bias:
        bias_V = select_rows(weights["final_logits_bias"].view(-1), vocabulary.target_rows_V)
        bias_V[vocabulary.target_rows_V < 0] = MASKED
        bias_V[[PAD, BOS]] = MASKED
        converted["output_bias_V"] = bias_V
    for stack, layers in (("encoder", config.encoder_layers), ("decoder", config.decoder_layers)):
        for layer in range(layers):
            for name, parts in LAYER[stack].items():
                for kind in ("weight", "bias"):
                    tensors = [weights[f"model.{stack}.layers.{layer}.{part}.{kind}"] for part in parts]
                    converted[f"{stack}.{layer}.{name}.{kind}"] = torch.cat(tensors)
        if config.norm_position == "pre":
            for kind in ("weight", "bias"):
                converted[f"{stack}_norm.{kind}"] = weights[f"model.{stack}.layer_norm.{kind}"]
    return converted
