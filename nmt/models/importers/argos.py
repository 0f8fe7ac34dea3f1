"""Import of packages of Argos Translate: a model of CTranslate2 with one SentencePiece model for
both sides."""

from __future__ import annotations

from pathlib import Path
from typing import TypedDict

from nmt.core.config import Config, DataConfig, TokenizerConfig, TrainConfig
from nmt.core.errors import CheckpointError
from nmt.core.paths import sha256
from nmt.model.build import max_positions
from nmt.models.importers import ctranslate2
from nmt.models.importers.common import (
    UNKNOWN_LANGUAGES,
    ImportedModel,
    join_vocabularies,
    read_bytes,
    read_json,
)

METADATA, TOKENIZER, MODEL = "metadata.json", "sentencepiece.model", "model"
SEARCH = "beam(beam_size=4, length_penalty=0.2, length_normalization='average')"
"""The search of Argos Translate."""
MAX_LENGTH = 512
"""Maximum number of tokens: packages do not state that of their training."""


class Metadata(TypedDict, total=False):
    """The content of metadata.json that an import reads."""

    from_code: str | None
    to_code: str | None


def read(directory: Path) -> ImportedModel:
    """Read the directory of a package.

    Raises:
        CheckpointError: a file is missing or damaged, or the model is not supported.
    """
    metadata = read_json(directory / METADATA, Metadata)
    if prefix := metadata.get("target_prefix"):
        raise CheckpointError(
            f"target_prefix={prefix} of {directory} is not supported", "use another package"
        )
    if not (directory / TOKENIZER).exists() and (directory / "bpe.model").exists():
        raise CheckpointError(
            f"{directory} has no {TOKENIZER}: BPE models are not supported", "use a newer package"
        )
    model = ctranslate2.read_model(directory / MODEL)
    tokenizer = read_bytes(directory / TOKENIZER)
    special = [[ids.get(token, -1) for token in model.special] for ids in model.vocabularies]
    vocabulary = join_vocabularies(tokenizer, tokenizer, *model.vocabularies, *special)
    config, weights = ctranslate2.convert(model, vocabulary)
    unknown_src, unknown_tgt = UNKNOWN_LANGUAGES
    src = metadata.get("from_code") or unknown_src
    tgt = metadata.get("to_code") or unknown_tgt
    return ImportedModel(
        config=Config(
            search=SEARCH,
            data=DataConfig(src, tgt),
            tokenizer=TokenizerConfig(vocab_size=len(vocabulary.tokenizer)),
            model=config,
            train=TrainConfig(max_length=min(MAX_LENGTH, max_positions(config) or MAX_LENGTH)),
        ),
        tokenizer=vocabulary.tokenizer,
        weights=weights,
        checksum=sha256(directory / MODEL / ctranslate2.MODEL),
    )
