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
import torch
from numpy.typing import NDArray
from torch import Tensor

from nmt.core import untrusted_files
from nmt.core.compression import zstd
from nmt.core.config import Config, DataConfig, ModelConfig, TokenizerConfig, TrainConfig
from nmt.core.console import counted, log
from nmt.core.errors import CheckpointError
from nmt.core.paths import sha256
from nmt.models import marian_binary
from nmt.models.firefox_layout import (
    EMBEDDINGS,
    MULTIPLIER,
    OUTPUT_BIAS,
    OUTPUT_MULTIPLIER,
    Matrix,
    matrices,
    norms,
)
from nmt.models.importers.common import (
    MASKED,
    RETRY,
    UNKNOWN_LANGUAGES,
    ImportedModel,
    Vocabulary,
    check_supported,
    conversion_errors,
    join_vocabularies,
    select_rows,
)
from nmt.models.importers.marian import SUPPORTED as MARIAN_OPTIONS
from nmt.models.importers.marian import as_mapping
from nmt.models.marian_binary import OPTIONS, Item, Quantized
from nmt.search.shortlist import MAX_BYTES as MAX_SHORTLIST_BYTES
from nmt.search.shortlist import Shortlist
from nmt.text.language_codes import NAMES, base_language
from nmt.text.tokenizer import BOS, EOS, PAD, UNK, load_processor

PATTERN = "model*.bin*"
SHORTLISTS = "lex*.s2t.bin*"
MAX_MODEL_BYTES = 1 << 30
MAX_OPTIONS_BYTES = 1 << 16
MAX_UNKNOWN = 5
"""Number of unknown options that are named."""
MAX_LENGTH = 256
"""Firefox translates at most this number of tokens."""
SIZES = {
    "dim-emb": "dim",
    "transformer-heads": "heads",
    "transformer-dim-ffn": "ffn_dim",
    "enc-depth": "encoder_layers",
    "dec-depth": "decoder_layers",
}
"""Options of a model that state its size, with their names in nmt."""
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
OTHER_MODEL = "use another model"
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
        converter = _Converter(items, config, vocabulary)
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
        num_rows = len(ids)
        if isinstance(weights, np.ndarray) and weights.ndim == 2:
            num_rows = len(weights)
        if len(ids) != num_rows:
            raise CheckpointError(
                f"{file} has {len(ids):,} pieces, and the embeddings of the model have"
                f" {num_rows:,} rows",
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
    missing = SIZES.keys() - options.keys()
    if missing:
        raise ValueError(f"it has no option {min(missing)}")
    sizes = {name: options[name] for name in SIZES}
    untrusted_files.check(sizes, dict[str, untrusted_files.Size])
    return ModelConfig(
        **{SIZES[name]: size for name, size in sizes.items()},
        decoder="ssru",
        norm_position="post",
        norm_epsilon=1e-6,
        position_encoding="sinusoidal_marian",
        tie_embeddings=EMBEDDINGS in items,
        output_bias=True,
        target_bos=False,
        dropout=0.1,
    )


class _Converter:
    """Converts the items of a model to the weights of nmt, and collects the multipliers."""

    def __init__(
        self, items: Mapping[str, Item], config: ModelConfig, vocabulary: Vocabulary
    ) -> None:
        self.items = items
        self.unused = {name for name in items if not name.endswith(MULTIPLIER)} - {OPTIONS}
        self.config = config
        self.vocabulary = vocabulary
        self.weights: dict[str, Tensor] = {}
        self.multipliers: dict[str, NDArray[np.float32]] = {}
        """Of each matrix, as the native engine reads them; empty if the model is not calibrated."""

    def convert(self) -> dict[str, Tensor]:
        """Return the weights by the names of nmt.

        Raises:
            CheckpointError: the model has a parameter that is not supported.
            ValueError: a parameter is missing or damaged.
        """
        for name, marian_name in norms(self.config):
            self.weights[f"{name}.weight"] = self._vector(f"{marian_name}_scale")
            self.weights[f"{name}.bias"] = self._vector(f"{marian_name}_bias")
        for matrix in matrices(self.config):
            parts_OI = [self._weight(each).T for each in matrix.weights]
            if len({part_OI.shape[1] for part_OI in parts_OI}) > 1:
                names = " and ".join(matrix.weights)
                raise ValueError(f"the inputs of {names} have different widths")
            self.weights[f"{matrix.name}.weight"] = torch.from_numpy(np.concatenate(parts_OI))
            if matrix.biases:
                vectors = [self._vector(each) for each in matrix.biases]
                self.weights[f"{matrix.name}.bias"] = torch.cat(vectors)
            self._collect_multipliers(matrix)
        self._embeddings()
        if self.unused:
            raise CheckpointError(
                f"the parameter {min(self.unused)} of the model is not supported", OTHER_MODEL
            )
        num_matrices = sum(1 for _ in matrices(self.config)) + 1
        if len(self.multipliers) not in (0, num_matrices):
            raise ValueError("some matrices are in int8, and others in float32")
        return self.weights

    def _collect_multipliers(self, matrix: Matrix) -> None:
        """Keep the multipliers of a matrix, unless it is in float32."""
        quantized = []
        for name in matrix.weights:
            item = self._item(name)
            if not isinstance(item, Quantized):
                return
            quantized.append(item)
        inputs = {self._multiplier(f"{each}{MULTIPLIER}") for each in matrix.weights}
        if len(inputs) > 1:
            names = " and ".join(matrix.weights)
            raise ValueError(f"the inputs of {names} have different multipliers")
        outputs = [np.full(len(each.values), each.multiplier) for each in quantized]
        multipliers = np.concatenate([[*inputs], *outputs])
        self.multipliers[f"{matrix.name}.weight"] = multipliers.astype(np.float32)

    def _embeddings(self) -> None:
        names = {"shared": EMBEDDINGS}
        if not self.config.tie_embeddings:
            names = {role: f"{stack}_Wemb" for role, stack in _STACKS.items()}
        for role, name in names.items():
            is_source = role == "source"
            rows_V = self.vocabulary.source_rows_V if is_source else self.vocabulary.target_rows_V
            table = torch.from_numpy(self._weight(name))
            self.weights[f"embeddings.{role}"] = select_rows(table, rows_V)
        self._output_bias(len(table))
        item = self._item(name)
        if isinstance(item, Quantized):
            output_name = OUTPUT_MULTIPLIER if role == "shared" else f"{name}{MULTIPLIER}"
            multipliers = np.full(1 + len(rows_V), item.multiplier, np.float32)
            multipliers[0] = self._multiplier(output_name)
            self.multipliers[f"embeddings.{role}"] = multipliers

    def _output_bias(self, num_embeddings: int) -> None:
        bias = self._vector(OUTPUT_BIAS)
        if len(bias) != num_embeddings:
            raise ValueError(f"{OUTPUT_BIAS} does not have a value for each embedding")
        rows_V = self.vocabulary.target_rows_V
        bias_V = select_rows(bias, rows_V)
        bias_V[rows_V < 0] = MASKED
        bias_V[[PAD, BOS]] = MASKED
        self.weights["output_bias_V"] = bias_V

    def _item(self, name: str) -> Item:
        if name not in self.items:
            raise ValueError(f"it has no {name}")
        self.unused.discard(name)
        return self.items[name]

    def _weight(self, name: str) -> NDArray[np.float32]:
        """Return a matrix in float32 as Marian has it: [inputs, outputs], or embeddings [V, D]."""
        item = self._item(name)
        if isinstance(item, Quantized):
            weight = item.dequantize()
            return weight if name.endswith(EMBEDDINGS) else weight.T
        weight = _finite(name, item)
        if weight.ndim != 2:
            raise ValueError(f"{name} is not a matrix")
        return weight

    def _vector(self, name: str) -> Tensor:
        vector = _finite(name, self._item(name))
        return torch.from_numpy(vector.flatten())

    def _multiplier(self, name: str) -> float:
        """Return a multiplier of activations; two vocabularies have one that is quantized."""
        item = self._item(name)
        if isinstance(item, Quantized):
            item = item.dequantize()
        if isinstance(item, bytes) or item.size != 1:
            raise ValueError(f"{name} is not a number")
        multiplier = float(item.item())
        marian_binary.check_multiplier(name, multiplier)
        return multiplier


def _finite(name: str, item: Item) -> NDArray[np.float32]:
    """Return an item in float32, after checking its type and its values."""
    if not isinstance(item, np.ndarray):
        raise ValueError(f"{name} has the wrong type")
    if not np.isfinite(item).all():
        raise ValueError(f"{name} has infinite or undefined values")
    return item


_STACKS = {"source": "encoder", "target": "decoder", "output": "decoder"}
"""Stacks whose embeddings each embedding of nmt has, in a model with two vocabularies."""
