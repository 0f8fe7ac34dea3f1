"""Import of Marian releases, as OPUS-MT-train and the Tatoeba Challenge publish them.

A release is a directory or zip file with `decoder.yml`, which names the model (`.npz`) and the
vocabularies (`.yml`, one per side), and the SentencePiece models `source.spm` and `target.spm`. The
model contains the options of its training under the name `special:model.yml`. Matrices are stored
as [inputs, outputs].
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypedDict

import numpy as np

from nmt.core import untrusted_files
from nmt.core.config import Config, DataConfig, ModelConfig, TokenizerConfig, TrainConfig
from nmt.core.errors import CheckpointError
from nmt.core.paths import sha256
from nmt.core.untrusted_files import MAX_CONFIG_BYTES, JsonObject, Number
from nmt.models.importers.common import (
    MASKED,
    OTHER_MODEL,
    RETRY,
    UNKNOWN_LANGUAGES,
    ImportedModel,
    check_supported,
    conversion_errors,
    join_vocabularies,
    read_bytes,
)
from nmt.models.importers.huggingface import ACTIVATIONS, Id
from nmt.models.importers.marian_weights import Converter, read_sizes
from nmt.models.marian_binary import OPTIONS
from nmt.text.separate_tokenizer import SOURCE, TARGET
from nmt.text.tokenizer import UNK

DECODER = "decoder.yml"
MAX_LENGTH = 512
"""Maximum number of tokens, as in MarianMT: the releases do not state that of their training."""
SUPPORTED: dict[str, tuple[Any, ...]] = {
    "type": ("transformer",),
    "transformer-preprocess": ("",),
    "transformer-postprocess": ("dan",),
    "transformer-postprocess-emb": ("d", ""),
    "transformer-postprocess-top": ("",),
    "transformer-train-position-embeddings": (False,),
    "transformer-decoder-autoreg": ("self-attention",),
    "transformer-tied-layers": ([],),
    "transformer-no-projection": (False,),
    "transformer-rnn-projection": (False,),
    "transformer-ffn-depth": (2,),
    "transformer-decoder-dim-ffn": (0,),
    "transformer-decoder-ffn-depth": (0, 2),
    "transformer-pool": (False,),
    "transformer-ffn-activation": ("swish", "relu"),
    "input-types": ([],),
    "factors-combine": ("sum",),
    "lemma-dim-emb": (0,),
    "transformer-no-bias": (False,),
    "transformer-no-affine": (False,),
    "ulr": (False,),
    "output-omit-bias": (False,),
    "right-left": (False,),
}
"""Options of a Marian model with their supported values. Missing options have one of these values,
too."""
DROPOUTS = {
    "transformer-dropout": ("dropout", 0.1),
    "transformer-dropout-attention": ("attention_dropout", 0.0),
    "transformer-dropout-ffn": ("activation_dropout", 0.0),
}
"""Options of a Marian model with their names in nmt and their defaults."""


class Decoder(TypedDict):
    """The names of files in decoder.yml. It has options of the search, too."""

    models: list[str]
    vocabs: list[str]


def read(directory: Path) -> ImportedModel:
    """Read a release in a directory.

    Raises:
        CheckpointError: a file is missing or damaged, or the model is not supported.
    """
    decoder = _read_decoder(directory)
    file = directory / Path(decoder["models"][0]).name
    arrays, options = _read_model(file)
    source_ids, target_ids = (
        _read_vocabulary(directory / Path(name).name) for name in decoder["vocabs"]
    )
    with conversion_errors(file, f"the vocabulary of {directory}"):
        special = [-1, source_ids["<unk>"], -1, source_ids["</s>"]]
        vocabulary = join_vocabularies(
            read_bytes(directory / SOURCE),
            read_bytes(directory / TARGET),
            source_ids,
            target_ids,
            special,
        )
        config = _model_config(options)
        items = {name: np.asarray(array, np.float32) for name, array in arrays.items()}
        weights = Converter(items, config, vocabulary).convert()
        if not decoder.get("allow-unk"):
            weights["output_bias_V"][UNK] = MASKED
        search = _search(decoder)
    return ImportedModel(
        config=Config(
            search=search,
            data=DataConfig(*UNKNOWN_LANGUAGES),
            tokenizer=TokenizerConfig(vocab_size=len(vocabulary.tokenizer)),
            model=config,
            train=TrainConfig(max_length=MAX_LENGTH),
        ),
        tokenizer=vocabulary.tokenizer,
        weights=weights,
        checksum=sha256(file),
    )


def _read_decoder(directory: Path) -> JsonObject:
    """Read decoder.yml, and check that it is one of a supported model."""
    path = directory / DECODER
    with untrusted_files.errors_of(path, RETRY):
        decoder = as_mapping(path, untrusted_files.read_bytes(path, MAX_CONFIG_BYTES))
    if (
        not untrusted_files.matches(decoder, Decoder)
        or not decoder["models"]
        or not decoder["vocabs"]
    ):
        raise CheckpointError(f"{path} names no models and vocabs", RETRY)
    if len(decoder["models"]) != 1 or len(decoder["vocabs"]) != 2:
        raise CheckpointError(f"{directory} is not one model with two vocabularies", OTHER_MODEL)
    if not (directory / SOURCE).exists():
        raise CheckpointError(
            f"{directory} has no {SOURCE}: BPE models are not supported",
            "use a SentencePiece model",
        )
    return decoder


def _search(decoder: Mapping[str, Any]) -> str:
    """Return the search of decoder.yml.

    Raises:
        CheckpointError: an option is not supported.
        ValueError: an option is not a number.
    """
    if float(decoder.get("word-penalty", 0)):
        raise CheckpointError("word-penalty of decoder.yml is not supported", OTHER_MODEL)
    beam_size = max(1, int(decoder.get("beam-size", 12)))
    length_penalty = float(decoder.get("normalize", 0))
    return (
        f"beam(beam_size={beam_size}, length_penalty={length_penalty},"
        " length_normalization='average')"
    )


def _read_model(file: Path) -> tuple[JsonObject, JsonObject]:
    """Read the parameters and the options of a model, and check that the options are supported."""
    try:
        arrays = untrusted_files.read_arrays(file)
    except (OSError, ValueError):
        raise CheckpointError(f"{file} is missing or damaged", RETRY) from None
    if OPTIONS not in arrays:
        raise CheckpointError(f"{file} has no {OPTIONS}: it is not a Marian model", OTHER_MODEL)
    options = as_mapping(file, arrays.pop(OPTIONS).tobytes().rstrip(b"\0"))
    check_supported(options, SUPPORTED)
    return arrays, options


def _read_vocabulary(path: Path) -> dict[str, int]:
    """Read a vocabulary as text: otherwise YAML reads `no` as a boolean and `10` as a number."""
    pieces = as_mapping(path, read_bytes(path), as_text=True)
    try:
        ids = {piece: int(i) for piece, i in pieces.items()}
        untrusted_files.check(ids, dict[str, Id])
    except (ValueError, TypeError):
        raise CheckpointError(f"{path} is not a vocabulary", RETRY) from None
    return ids


def as_mapping(path: Path, content: bytes, *, as_text: bool = False) -> JsonObject:
    """Parse the YAML mapping of a file."""
    try:
        value = untrusted_files.parse_yaml(content.decode("utf-8"), as_text=as_text)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise CheckpointError(f"{path} is not valid YAML", RETRY)
    return value


def _model_config(options: JsonObject) -> ModelConfig:
    """Return the architecture.

    Raises:
        ValueError: an option is missing, not a number, or out of range.
    """
    dropouts = {}
    for marian_name, (name, default) in DROPOUTS.items():
        dropouts[name] = options.get(marian_name, default)
    untrusted_files.check(dropouts, dict[str, Number])
    return ModelConfig(
        **read_sizes(options),
        **dropouts,
        norm_position="post",
        activation=ACTIVATIONS[options.get("transformer-ffn-activation", "swish")],
        position_encoding="sinusoidal_marian",
        tie_embeddings=bool(options.get("tied-embeddings-all", False)),
        output_bias=True,
    )
