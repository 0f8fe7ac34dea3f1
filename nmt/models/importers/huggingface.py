"""Import of Marian models in the format of Hugging Face Transformers, such as those of OPUS-MT.

MarianMT models are post-norm Transformers. `nmt export --to transformers` writes pre-norm models as
Pegasus or as `nmt.export.modeling_nmt`, with the tokenizer of Marian. These can be imported, too;
the code in an export is not run. In Transformers, decoding
starts from the padding token, whose embedding is zero; in nmt it starts from BOS, so BOS gets the
row of the padding token. The rows are permuted so that PAD, UNK, BOS and EOS come first.
"""

from __future__ import annotations

import pickle
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, TypedDict

import torch
from safetensors.torch import load_file
from torch import Tensor

from nmt.core import untrusted_files
from nmt.core.config import (
    MAX_VOCAB_SIZE,
    Config,
    DataConfig,
    ModelConfig,
    TokenizerConfig,
    TrainConfig,
)
from nmt.core.errors import CheckpointError
from nmt.core.paths import sha256
from nmt.core.ranges import Range
from nmt.core.untrusted_files import JsonObject, Number, Size
from nmt.model.marian_names import LAYER
from nmt.models.importers.common import (
    MASKED,
    OTHER_MODEL,
    RETRY,
    UNKNOWN_LANGUAGES,
    ImportedModel,
    Vocabulary,
    Weights,
    check_supported,
    conversion_errors,
    join_vocabularies,
    read_bytes,
    read_json,
    read_limits,
    select_rows,
)
from nmt.text.separate_tokenizer import SOURCE, TARGET, SeparateTokenizer
from nmt.text.tokenizer import BOS, EOS, PAD, UNK, Tokenizer

OWN_TYPE = "nmt"
"""Type of models with the weights and option names of nmt."""
EMBEDDINGS = {
    "source": ("model.encoder.embed_tokens.weight", "model.shared.weight"),
    "target": ("model.decoder.embed_tokens.weight", "model.shared.weight"),
    "output": ("lm_head.weight", "model.decoder.embed_tokens.weight", "model.shared.weight"),
}
"""The embeddings of nmt, and their names in Transformers: the first that is in the file."""
FILES = (
    "config.json",
    "generation_config.json",
    "tokenizer_config.json",
    "vocab.json",
    "target_vocab.json",
    "data.json",
    SOURCE,
    TARGET,
)
"""Files other than the weights."""
WEIGHT_FILES = ("model.safetensors", "pytorch_model.bin")
"""Files of the weights in order of preference; the second is a pickle, loaded with
`weights_only=True`."""
ACTIVATIONS = {"swish": "silu", "silu": "silu", "relu": "relu", "gelu": "gelu"}
SUPPORTED: dict[str, tuple[Any, ...]] = {
    "scale_embedding": (True,),
    "normalize_embedding": (False,),
    "static_position_embeddings": (True,),
    "add_bias_logits": (False,),
    "extra_pos_embeddings": (0,),
    "encoder_layerdrop": (0.0,),
    "decoder_layerdrop": (0.0,),
    "activation_function": tuple(ACTIVATIONS),
}
"""Options of config.json with their supported values, one of which a missing option has, too."""


Id = Annotated[int, Range(0, MAX_VOCAB_SIZE)]
"""Id of a piece."""


class Options(TypedDict, total=False):
    """The numbers of config.json and generation_config.json that an import reads."""

    d_model: Size
    encoder_layers: Size
    decoder_layers: Size
    dim: Size
    heads: Size
    kv_heads: Size
    ffn_dim: Size
    layer_sharing: Size
    norm_position: str
    norm: str
    activation: str
    position_encoding: str
    rotary_base: float
    tie_embeddings: bool
    output_bias: bool
    encoder_attention_heads: Size
    decoder_attention_heads: Size
    encoder_ffn_dim: Size
    decoder_ffn_dim: Size
    max_position_embeddings: Size
    dropout: Number
    attention_dropout: Number
    activation_dropout: Number
    pad_token_id: Id
    eos_token_id: Id
    decoder_start_token_id: Id


class Generation(TypedDict, total=False):
    """The content of generation_config.json that an import reads."""

    num_beams: Size | None


class TokenizerOptions(TypedDict, total=False):
    """The content of tokenizer_config.json that an import reads."""

    source_lang: str | None
    target_lang: str | None
    model_max_length: float


def read(directory: Path) -> ImportedModel:
    """Read a model in Hugging Face format.

    Raises:
        CheckpointError: a file is missing or damaged, or the model is not supported.
    """
    options = read_json(directory / "config.json", Options)
    check_type(options, str(directory))
    file, weights = _read_weights(directory)
    with conversion_errors(directory / "config.json", str(directory / "vocab.json")):
        vocabulary = _read_vocabulary(directory, options)
        is_separate = isinstance(vocabulary.tokenizer, SeparateTokenizer)
        if options["model_type"] == OWN_TYPE:
            architecture = _own_model_config(options)
            converted = dict(weights)
        else:
            has_bias = is_separate or bool(weights["final_logits_bias"].any())
            architecture = model_config(options, output_bias=has_bias)
            converted = convert(weights, architecture, vocabulary)
        config = _config(directory, options, vocabulary.tokenizer, architecture)
    return ImportedModel(
        config, vocabulary.tokenizer, converted, sha256(file), read_limits(directory)
    )


def check_type(options: Mapping[str, Any], name: str) -> None:
    """Raise a CheckpointError if the options of config.json are those of another type of model."""
    if (kind := options.get("model_type")) not in ("marian", "pegasus", OWN_TYPE):
        raise CheckpointError(
            f"{name} has a model of type '{kind}'", "import a MarianMT model, e.g. of OPUS-MT"
        )


def _own_model_config(options: JsonObject) -> ModelConfig:
    """Return the architecture of a model that nmt has exported with code of its own."""
    names = Options.__annotations__.keys() & ModelConfig.__annotations__.keys()
    arguments = {name: options[name] for name in names if name in options}
    if options["position_encoding"] == "rotary":
        arguments["position_encoding"] = f"rotary(base={options['rotary_base']})"
    return ModelConfig(**arguments)


def _config(
    directory: Path, options: JsonObject, tokenizer: Tokenizer, architecture: ModelConfig
) -> Config:
    tokenizer_options = read_json(directory / "tokenizer_config.json", TokenizerOptions, default={})
    unknown_source, unknown_target = UNKNOWN_LANGUAGES
    source = _language(tokenizer_options.get("source_lang")) or unknown_source
    target = _language(tokenizer_options.get("target_lang")) or unknown_target
    if source == target:  # a group of languages
        source, target = UNKNOWN_LANGUAGES
    num_positions = options.get("max_position_embeddings", 512)
    max_length = int(min(num_positions, tokenizer_options.get("model_max_length", num_positions)))
    generation = options | read_json(directory / "generation_config.json", Generation, default={})
    num_beams = int(generation.get("num_beams") or 1)
    return Config(
        search=f"beam(beam_size={max(1, num_beams)}, length_normalization='average')",
        data=DataConfig(source, target),
        tokenizer=TokenizerConfig(vocab_size=len(tokenizer)),
        model=architecture,
        train=TrainConfig(
            max_length=max_length, batch_tokens=max(max_length, TrainConfig.batch_tokens)
        ),
    )


def _language(name: str | None) -> str:
    """Return a language code. The languages of multilingual models are joined by +."""
    return re.sub(r"[^A-Za-z0-9-]+", "_", name or "").strip("_")


def model_config(options: JsonObject, *, output_bias: bool) -> ModelConfig:
    """Return the architecture for the options of config.json.

    Raises:
        CheckpointError: an option is not supported.
        KeyError: an option is missing.
    """
    is_pegasus = options["model_type"] == "pegasus"
    norms = ("normalize_before", "add_final_layer_norm")
    check_supported(options, SUPPORTED | dict.fromkeys(norms, (is_pegasus,)))
    sizes = {}
    for name in ("attention_heads", "ffn_dim"):
        encoder, decoder = options[f"encoder_{name}"], options[f"decoder_{name}"]
        if encoder != decoder:
            raise CheckpointError(
                f"encoder_{name}={encoder} and decoder_{name}={decoder} differ", OTHER_MODEL
            )
        sizes[name] = encoder
    ties = (
        options.get("tie_word_embeddings", True),
        options.get("share_encoder_decoder_embeddings", True),
    )
    return ModelConfig(
        dim=options["d_model"],
        heads=sizes["attention_heads"],
        ffn_dim=sizes["ffn_dim"],
        encoder_layers=options["encoder_layers"],
        decoder_layers=options["decoder_layers"],
        norm_position="pre" if is_pegasus else "post",
        activation=ACTIVATIONS[options["activation_function"]],
        position_encoding="sinusoidal_concatenated",
        dropout=options.get("dropout", 0.1),
        attention_dropout=options.get("attention_dropout", 0.0),
        activation_dropout=options.get("activation_dropout", 0.0),
        tie_embeddings=all(ties),
        output_bias=output_bias,
    )


def _read_weights(directory: Path) -> tuple[Path, Weights]:
    file = next((directory / name for name in WEIGHT_FILES if (directory / name).exists()), None)
    if file is None:
        raise CheckpointError(f"{directory} has neither {' nor '.join(WEIGHT_FILES)}", RETRY)
    try:
        with untrusted_files.errors_of(file, RETRY):
            return file, Weights(file, _load_tensors(file))
    except (MemoryError, CheckpointError):
        raise
    except Exception as error:  # a damaged pickle raises almost anything
        with file.open("rb") as content:
            # In a zip file or not; a pointer of Git LFS is text.
            is_pickle = content.read(1) in (
                b"P",
                b"\x80",
            )
        if is_pickle and isinstance(error, pickle.UnpicklingError):
            raise CheckpointError(
                f"{file} is damaged, or contains more than tensors, and loading it could run code",
                "download it again, or convert it to model.safetensors with Transformers if you"
                " trust it",
            ) from None
        raise CheckpointError(f"{file} is damaged", RETRY) from None


def _load_tensors(file: Path) -> dict[str, Tensor]:
    """Return the tensors of a file in float32.

    Raises:
        ValueError: a tensor is larger than its part of the file.
    """
    untrusted_files.check_zip_expansion(file)
    tensors = (
        load_file(file)
        if file.suffix == ".safetensors"
        else torch.load(file, "cpu", weights_only=True)
    )
    loaded = {}
    for name, tensor in tensors.items():
        # An expanded one.
        if tensor.numel() * tensor.element_size() > tensor.untyped_storage().nbytes():
            raise ValueError(f"{name} has a damaged shape")
        loaded[name] = tensor.float()
    return loaded


def _read_vocabulary(directory: Path, options: JsonObject) -> Vocabulary:
    source_model = read_bytes(directory / SOURCE)
    target_model = read_bytes(directory / TARGET)
    source_ids = read_json(directory / "vocab.json", dict[str, Id])
    target_ids = read_json(directory / "target_vocab.json", dict[str, Id], default=source_ids)
    special = [
        options["pad_token_id"],
        source_ids["<unk>"],
        options["decoder_start_token_id"],
        options["eos_token_id"],
    ]
    if special == [PAD, UNK, BOS, EOS] and source_model == target_model:
        # A SentencePiece model with other ids, which `vocab.json` maps.
        with suppress(CheckpointError):
            joint = Tokenizer.parse(source_model, directory / SOURCE)
            if source_ids == {
                piece: i for i, piece in enumerate(joint.ids_to_pieces(range(len(joint))))
            }:
                return Vocabulary(joint, torch.arange(len(joint)), torch.arange(len(joint)))
    return join_vocabularies(source_model, target_model, source_ids, target_ids, special)


def convert(weights: Weights, config: ModelConfig, vocabulary: Vocabulary) -> dict[str, Tensor]:
    """Return the weights by the names of nmt.

    Raises:
        CheckpointError: a tensor is missing.
        IndexError: the vocabulary does not fit the embeddings.
        RuntimeError: tensors that are concatenated have different shapes.
    """
    converted = {}
    names = ("shared",) if config.tie_embeddings else tuple(EMBEDDINGS)
    for name in names:
        role = "source" if name == "shared" else name
        rows_V = vocabulary.source_rows_V if role == "source" else vocabulary.target_rows_V
        converted[f"embeddings.{name}"] = select_rows(weights.first(*EMBEDDINGS[role]), rows_V)
    if config.output_bias:
        bias_V = select_rows(weights["final_logits_bias"].view(-1), vocabulary.target_rows_V)
        bias_V[vocabulary.target_rows_V < 0] = MASKED
        bias_V[[PAD, BOS]] = MASKED
        converted["output_bias_V"] = bias_V
    for stack, layers in (("encoder", config.encoder_layers), ("decoder", config.decoder_layers)):
        for layer in range(layers):
            converted |= _convert_layer(weights, stack, layer)
        if config.norm_position == "pre":
            for kind in ("weight", "bias"):
                converted[f"{stack}_norm.{kind}"] = weights[f"model.{stack}.layer_norm.{kind}"]
    return converted


def _convert_layer(weights: Weights, stack: str, layer: int) -> dict[str, Tensor]:
    converted = {}
    for name, parts in LAYER[stack].items():
        for kind in ("weight", "bias"):
            tensors = [weights[f"model.{stack}.layers.{layer}.{part}.{kind}"] for part in parts]
            converted[f"{stack}.{layer}.{name}.{kind}"] = torch.cat(tensors)
    return converted
