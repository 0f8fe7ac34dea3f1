"""Import of the translation models of Firefox: binary Marian models with an SSRU decoder.

A directory has a model (`model.ende.intgemm.alphas.bin`), and a SentencePiece model for both
languages (`vocab.ende.spm`) or one for each (`srcvocab.enja.spm`, `trgvocab.enja.spm`), plain or
compressed with gzip or zstandard. It may have a lexical shortlist (`lex.50.50.ende.s2t.bin`), which
the import keeps. The activations of such a model are rounded to 8 bits, too, with
multipliers from a calibration. The import keeps them, so that `--precision int8` computes the same
integers as Firefox.
"""

from __future__ import annotations

import gzip
import io
import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from nmt.core import untrusted_files
from nmt.core.compression import zstd
from nmt.core.config import Config, DataConfig, ModelConfig, TokenizerConfig, TrainConfig
from nmt.core.console import counted, log
from nmt.core.errors import CheckpointError
from nmt.core.paths import sha256
from nmt.models import marian_binary
from nmt.models.importers.common import (
    OTHER_MODEL,
    RETRY,
    UNKNOWN_LANGUAGES,
    ImportedModel,
    Vocabulary,
    check_supported,
    conversion_errors,
    join_vocabularies,
)
from nmt.models.importers.marian import SUPPORTED as MARIAN_OPTIONS
from nmt.models.importers.marian import as_mapping
from nmt.models.importers.marian_weights import SIZES, Converter, read_sizes
from nmt.models.marian_binary import OPTIONS, Item, Quantized
from nmt.models.marian_layout import EMBEDDINGS
from nmt.search.shortlist import MAX_BYTES as MAX_SHORTLIST_BYTES
from nmt.search.shortlist import Shortlist
from nmt.text.language_codes import NAMES, base_language
from nmt.text.tokenizer import EOS, UNK, load_processor

PATTERN = "model*.bin*"
SHORTLISTS = "lex*.s2t.bin*"
MAX_MODEL_BYTES = 1 << 30
MAX_OPTIONS_BYTES = 1 << 16
MAX_UNKNOWN = 5
"""Number of unknown options that are named."""
MAX_LENGTH = 256
"""Firefox translates at most this number of tokens."""
SUPPORTED: dict[str, tuple[Any, ...]] = MARIAN_OPTIONS | {
    "transformer-decoder-autoreg": ("rnn",),
    "dec-cell": ("ssru",),
    "dec-cell-base-depth": (2,),
    "dec-cell-high-depth": (1,),
    "transformer-ffn-activation": ("relu",),
    "layer-normalization": (False,),
    "skip": (False,),
}
"""Options of a model with their supported values, one of which a missing option has, too."""
IGNORED = (
    "version",
    # The parameters in the file tell the size of the vocabulary, and which embeddings are tied.
    "dim-vocabs",
    "special-vocab",
    "tied-embeddings",
    "tied-embeddings-all",
    "tied-embeddings-src",
    # Of the initialization, and of outputs other than the translation.
    "transformer-depth-scaling",
    "transformer-guided-alignment-layer",
    "output-approx-knn",
    # Of other networks.
    "dim-rnn",
    "enc-type",
    "enc-cell",
    "enc-cell-depth",
    "factors-dim-emb",
    "lemma-dependency",
    "transformer-dim-aan",
    "transformer-aan-depth",
    "transformer-aan-activation",
    "transformer-aan-nogate",
    "ulr-dim-emb",
    "ulr-trainable-transformation",
    "bert-train-type-embeddings",
    "bert-type-vocab-size",
    "char-stride",
    "char-highway",
    "char-conv-filters-num",
    "char-conv-filters-widths",
)
"""Options that change nothing in a supported model."""
_DECOMPRESSORS: dict[str, Any] = {".gz": gzip.open, ".zst": zstd.open}
OWN_VOCABULARY = "use the vocabulary that was published with this model"
_CODE = "([a-z]{2,3}(?:[-_][A-Z][A-Za-z]+)*)"
_LANGUAGES = re.compile(rf"model\.{_CODE}-?{_CODE}\.")


def read(directory: Path) -> ImportedModel:
    """Read a model of Firefox.

    Raises:
        CheckpointError: a file is missing or damaged, or the model is not supported.
    """
    file = _find(directory, PATTERN)
    with untrusted_files.errors_of(file, RETRY):
        items = marian_binary.read(_content(file, MAX_MODEL_BYTES))
    options = _read_options(file, items)
    vocabulary = _read_vocabulary(directory, items)
    with conversion_errors(file, f"the vocabulary of {directory}"):
        config = _model_config(options, items)
        converter = Converter(items, config, vocabulary)
        weights = converter.convert()
        shortlist = _read_shortlist(directory, vocabulary)
    src, tgt = _languages(file)
    return ImportedModel(
        config=Config(
            search="greedy",
            data=DataConfig(src, tgt),
            tokenizer=TokenizerConfig(vocab_size=len(vocabulary.tokenizer)),
            model=config,
            train=TrainConfig(max_length=MAX_LENGTH),
        ),
        tokenizer=vocabulary.tokenizer,
        weights=weights,
        checksum=sha256(file),
        multipliers=converter.multipliers,
        shortlist=shortlist,
    )


def name_pair(src: str, tgt: str) -> str:
    """Return the languages as the names of files have them: ende. Longer codes have a hyphen
    between them, as in en-fil."""
    return src + tgt if len(src) == len(tgt) == 2 else f"{src}-{tgt}"


def _languages(file: Path) -> tuple[str, str]:
    """Return the languages in the name of a model; other names may look like these, such as
    `model.tiny.bin`."""
    match = _LANGUAGES.match(file.name)
    if match and NAMES.keys() & set(map(base_language, match.groups())):
        return match[1], match[2]
    return UNKNOWN_LANGUAGES


def _find(directory: Path, pattern: str) -> Path:
    """Return the only file of a pattern."""
    files = sorted(directory.glob(pattern))
    if not files:
        raise CheckpointError(f"{directory} has no file {pattern}", RETRY)
    if len(files) > 1:
        names = ", ".join(file.name for file in files)
        raise CheckpointError(
            f"{directory} has several files {pattern}: {names}", "leave one of them there"
        )
    return files[0]


def _content(file: Path, max_bytes: int) -> bytes:
    """Return the decompressed content of a file.

    Raises:
        OSError: the file cannot be read.
        ValueError: it is damaged or too large.
    """
    content = untrusted_files.read_bytes(file, max_bytes)
    decompress = _DECOMPRESSORS.get(file.suffix)
    if decompress is None:
        return content
    limit = max(untrusted_files.MIN_EXPANDED_BYTES, untrusted_files.MAX_EXPANSION * len(content))
    limit = min(limit, max_bytes)
    try:
        with decompress(io.BytesIO(content)) as stream:
            expanded: bytes = stream.read(limit + 1)
    except (EOFError, gzip.BadGzipFile, zlib.error, zstd.ZstdError):
        raise ValueError(f"it is not an intact {file.suffix} file") from None
    if len(expanded) > limit:
        raise ValueError(f"{len(content):,} bytes expand to more than {limit:,}")
    return expanded


def _read_options(file: Path, items: Mapping[str, Item]) -> dict[str, Any]:
    """Return the options of a model, after checking that they are supported."""
    content = items.get(OPTIONS)
    if not isinstance(content, bytes) or len(content) > MAX_OPTIONS_BYTES:
        raise CheckpointError(f"{file} has no valid {OPTIONS}", RETRY)
    options = as_mapping(Path(f"{OPTIONS} of {file}"), content.rstrip(b"\0"))
    check_supported(options, SUPPORTED)
    unknown = sorted(map(str, options.keys() - {*SIZES, *SUPPORTED, *IGNORED}))
    if unknown:
        names = ", ".join(map(repr, unknown[:MAX_UNKNOWN]))
        count = counted(len(unknown), "unknown option")
        log(f"warning: ignoring {count} of the model, which may change translations: {names}")
    return options


def _read_vocabulary(directory: Path, items: Mapping[str, Item]) -> Vocabulary:
    """Read the SentencePiece models, whose ids are those of the embeddings."""
    has_one = any(directory.glob("vocab*.spm*"))
    if has_one and any(directory.glob("???vocab*.spm*")):
        raise CheckpointError(
            f"{directory} has a vocabulary of both languages and one of a language",
            "leave those of the model there",
        )
    source_name, target_name = ("vocab", "vocab") if has_one else ("srcvocab", "trgvocab")
    source_file = _find(directory, f"{source_name}*.spm*")
    target_file = _find(directory, f"{target_name}*.spm*")
    source = _Side.read(source_file, items, f"encoder_{EMBEDDINGS}")
    target = _Side.read(target_file, items, f"decoder_{EMBEDDINGS}")
    if source.special != target.special:
        raise CheckpointError(
            f"{source_file} and {target_file} have different ids of <unk> and </s>", OTHER_MODEL
        )
    if EMBEDDINGS in items and source.ids != target.ids:
        raise CheckpointError(
            f"the model in {directory} has one vocabulary, and not those of"
            f" {source_file.name} and {target_file.name}",
            OWN_VOCABULARY,
        )
    return join_vocabularies(source.model, target.model, source.ids, target.ids, source.special)


@dataclass(frozen=True)
class _Side:
    """The vocabulary of a side."""

    model: bytes
    ids: dict[str, int]
    """By piece."""
    special: list[int]
    """Rows of PAD, UNK, BOS and EOS; -1: none."""

    @classmethod
    def read(cls, file: Path, items: Mapping[str, Item], table_name: str) -> _Side:
        """Read a SentencePiece model, and check that the embeddings have as many rows."""
        with untrusted_files.errors_of(file, RETRY):
            model = _content(file, untrusted_files.MAX_BYTES)
            processor = load_processor(model)
            try:
                pieces = map(processor.id_to_piece, range(processor.get_piece_size()))
                ids = {piece: i for i, piece in enumerate(pieces)}
            except UnicodeDecodeError:
                raise ValueError("it has pieces that are not UTF-8") from None
        special = [-1, processor.unk_id(), -1, processor.eos_id()]
        if min(special[UNK], special[EOS]) < 0:
            raise CheckpointError(f"{file} has no <unk> or no </s>", OWN_VOCABULARY)
        table = items.get(EMBEDDINGS, items.get(table_name))
        weights = table.values if isinstance(table, Quantized) else table
        # Others are errors of the conversion.
        if isinstance(weights, np.ndarray) and weights.ndim == 2 and len(weights) != len(ids):
            raise CheckpointError(
                f"{file} has {len(ids):,} pieces, and the embeddings of the model have"
                f" {len(weights):,} rows",
                OWN_VOCABULARY,
            )
        return cls(model, ids, special)


def _read_shortlist(directory: Path, vocabulary: Vocabulary) -> Shortlist | None:
    """Return the shortlist with the ids of nmt; None: there is none."""
    if not sorted(directory.glob(SHORTLISTS)):
        return None
    file = _find(directory, SHORTLISTS)
    source_rows_V = vocabulary.source_rows_V.numpy()
    target_rows_V = vocabulary.target_rows_V.numpy()
    sizes = int(source_rows_V.max()) + 1, int(target_rows_V.max()) + 1
    with untrusted_files.errors_of(file, RETRY):
        shortlist = Shortlist.read(_content(file, MAX_SHORTLIST_BYTES), *sizes)
    return shortlist.with_ids(source_rows_V, target_rows_V).of_tokenizer(vocabulary.tokenizer)


def _model_config(options: dict[str, Any], items: Mapping[str, Item]) -> ModelConfig:
    """Return the architecture.

    Raises:
        ValueError: an option is missing or out of range.
    """
    return ModelConfig(
        **read_sizes(options),
        decoder="ssru",
        norm_position="post",
        norm_epsilon=1e-6,
        position_encoding="sinusoidal_marian",
        tie_embeddings=EMBEDDINGS in items,
        output_bias=True,
        target_bos=False,
        dropout=0.1,
    )
