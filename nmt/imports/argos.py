"""Import of packages of Argos Translate: a model of CTranslate2 with one SentencePiece model for both sides."""

from __future__ import annotations

from pathlib import Path

from nmt.config import Config, DataConfig, TokenizerConfig, TrainConfig
from nmt.errors import CheckpointError
from nmt.imports import ctranslate2
from nmt.imports.common import UNKNOWN_LANGUAGES, ImportedModel, join_vocabularies, read_bytes, read_json
from nmt.model.build import max_positions
from nmt.paths import sha256

METADATA, TOKENIZER, MODEL = "metadata.json", "sentencepiece.model", "model"
SEARCH = "beam(beam_size=4, length_penalty=0.2, length_normalization='average')"
"""The search of Argos Translate."""
MAX_LENGTH = 512
"""Maximum number of tokens: packages do not state that of their training."""


def read(directory: Path) -> ImportedModel:
    """Read the directory of a package.

    Raises:
        CheckpointError: a file is missing or damaged, or the model is not supported.
    """
    metadata = read_json(directory / METADATA)
    if prefix := metadata.get("target_prefix"):
        raise CheckpointError(f"target_prefix={prefix} of {directory} is not supported", "use another package")
    if not (directory / TOKENIZER).exists() and (directory / "bpe.model").exists():
        raise CheckpointError(f"{directory} has no {TOKENIZER}: BPE models are not supported", "use a newer package")
    model, tokenizer = ctranslate2.read_model(directory / MODEL), read_bytes(directory / TOKENIZER)
    special = [[ids.get(token, -1) for token in model.special] for ids in model.vocabularies]
    vocabulary = join_vocabularies(tokenizer, tokenizer, *model.vocabularies, *special)
    config, weights = ctranslate2.convert(model, vocabulary)
    languages = [metadata.get(name) for name in ("from_code", "to_code")]
    src, tgt = (str(code or name) for code, name in zip(languages, UNKNOWN_LANGUAGES, strict=True))
    return ImportedModel(
        Config(
            search=SEARCH,
            data=DataConfig(src, tgt),
            tokenizer=TokenizerConfig(vocab_size=len(vocabulary.tokenizer)),
            model=config,
            train=TrainConfig(max_length=min(MAX_LENGTH, max_positions(config) or MAX_LENGTH)),
        ),
        vocabulary.tokenizer, weights, sha256(directory / MODEL / ctranslate2.MODEL),
    )  # fmt: skip
