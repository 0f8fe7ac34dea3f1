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
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nmt.core import untrusted_files
from nmt.core.compression import zstd
from nmt.core.config import Config, DataConfig, ModelConfig, TokenizerConfig, TrainConfig
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
from nmt.search.shortlist import Shortlist
from nmt.text.tokenizer import BOS, PAD, load_processor

PATTERN = "model.*.bin*"
SHORTLISTS = "lex.*.s2t.bin*"
MAX_MODEL_BYTES = 1 << 30
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
_LANGUAGES = re.compile(r"model\.([a-z]{2,3})-?([a-z]{2,3})\.")


def read(directory: Path) -> ImportedModel:
    """Read a model of Firefox.

    Raises:
        CheckpointError: a file is missing or damaged, or the model is not supported.
    """
    file = _find(directory, PATTERN)
    with untrusted_files.errors_of(file, RETRY):
        items = marian_binary.read(_content(file))
    options = as_mapping(file, _bytes(file, items).rstrip(b"\0"))
    check_supported(options, SUPPORTED)
    with conversion_errors(file, f"the vocabulary of {directory}"):
        vocabulary = _read_vocabulary(directory)
        config = _model_config(options, items)
        converter = _Converter(items, config, vocabulary)
        weights = converter.convert()
        shortlist = _read_shortlist(directory, vocabulary)
    match = _LANGUAGES.match(file.name)
    src, tgt = (match[1], match[2]) if match else UNKNOWN_LANGUAGES
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


def _find(directory: Path, pattern: str) -> Path:
    """Return the only file of a pattern."""
    files = sorted(directory.glob(pattern))
    if len(files) != 1:
        number = "no file" if not files else "several files"
        raise CheckpointError(f"{directory} has {number} {pattern}", RETRY)
    return files[0]


def _content(file: Path) -> bytes:
    """Return the decompressed content of a file.

    Raises:
        OSError: the file cannot be read.
        ValueError: it is damaged or too large.
    """
    content = untrusted_files.read_bytes(file, MAX_MODEL_BYTES)
    try:
        if file.suffix == ".gz":
            content = gzip.decompress(content)
        elif file.suffix == ".zst":
            content = zstd.decompress(content)
    except (EOFError, zstd.ZstdError) as error:
        raise ValueError(str(error)) from None
    return content


def _bytes(file: Path, items: Mapping[str, Item]) -> bytes:
    options = items.get(OPTIONS)
    if not isinstance(options, bytes):
        raise CheckpointError(f"{file} has no {OPTIONS}", RETRY)
    return options


def _read_vocabulary(directory: Path) -> Vocabulary:
    """Read the SentencePiece models, whose ids are those of the embeddings."""
    is_joint = bool(sorted(directory.glob("vocab.*.spm*")))
    names = ("vocab", "vocab") if is_joint else ("srcvocab", "trgvocab")
    models = []
    for name in names:
        file = _find(directory, f"{name}.*.spm*")
        with untrusted_files.errors_of(file, RETRY):
            models.append(_content(file))
    processors = [load_processor(model) for model in models]
    ids = []
    for processor in processors:
        pieces = map(processor.id_to_piece, range(processor.get_piece_size()))
        ids.append({piece: i for i, piece in enumerate(pieces)})
    source = processors[0]
    special = [-1, source.unk_id(), -1, source.eos_id()]
    return join_vocabularies(models[0], models[1], ids[0], ids[1], special)


def _read_shortlist(directory: Path, vocabulary: Vocabulary) -> Shortlist | None:
    """Return the shortlist with the ids of nmt; None: there is none."""
    if not sorted(directory.glob(SHORTLISTS)):
        return None
    file = _find(directory, SHORTLISTS)
    source_rows_V = vocabulary.source_rows_V.numpy()
    target_rows_V = vocabulary.target_rows_V.numpy()
    sizes = int(source_rows_V.max()) + 1, int(target_rows_V.max()) + 1
    with untrusted_files.errors_of(file, RETRY):
        shortlist = Shortlist.read(_content(file), *sizes)
    return shortlist.with_ids(source_rows_V, target_rows_V)


def _model_config(options: dict[str, Any], items: Mapping[str, Item]) -> ModelConfig:
    """Return the architecture.

    Raises:
        KeyError: an option is missing.
        ValueError: an option is out of range.
    """
    sizes = {
        "dim": options["dim-emb"],
        "heads": options["transformer-heads"],
        "ffn_dim": options["transformer-dim-ffn"],
        "encoder_layers": options["enc-depth"],
        "decoder_layers": options["dec-depth"],
    }
    untrusted_files.check(sizes, dict[str, untrusted_files.Size])
    return ModelConfig(
        **sizes,
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
        self.config = config
        self.vocabulary = vocabulary
        self.weights: dict[str, Tensor] = {}
        self.multipliers: dict[str, NDArray[np.float32]] = {}
        """Of each matrix, as the native engine reads them; empty if the model is not calibrated."""

    def convert(self) -> dict[str, Tensor]:
        """Return the weights by the names of nmt."""
        for name, marian_name in norms(self.config):
            self.weights[f"{name}.weight"] = self._vector(f"{marian_name}_scale")
            self.weights[f"{name}.bias"] = self._vector(f"{marian_name}_bias")
        for matrix in matrices(self.config):
            parts_OI = [self._weight(each).T for each in matrix.weights]
            self.weights[f"{matrix.name}.weight"] = torch.from_numpy(np.concatenate(parts_OI))
            if matrix.biases:
                vectors = [self._vector(each) for each in matrix.biases]
                self.weights[f"{matrix.name}.bias"] = torch.cat(vectors)
            self._collect_multipliers(matrix)
        self._embeddings()
        return self.weights

    def _collect_multipliers(self, matrix: Matrix) -> None:
        """Keep the multipliers of a matrix, unless it is in float32."""
        quantized = []
        for name in matrix.weights:
            item = self.items[name]
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
        rows_V = self.vocabulary.target_rows_V
        bias_V = select_rows(self._vector(OUTPUT_BIAS), rows_V)
        bias_V[rows_V < 0] = MASKED
        bias_V[[PAD, BOS]] = MASKED
        self.weights["output_bias_V"] = bias_V
        role, name = next(reversed(names.items()))
        item = self.items[name]
        if isinstance(item, Quantized):
            output_name = OUTPUT_MULTIPLIER if role == "shared" else f"{name}{MULTIPLIER}"
            multipliers = np.full(1 + len(rows_V), item.multiplier, np.float32)
            multipliers[0] = self._multiplier(output_name)
            self.multipliers[f"embeddings.{role}"] = multipliers

    def _weight(self, name: str) -> NDArray[np.float32]:
        """Return a matrix in float32 as Marian has it: [inputs, outputs], or embeddings [V, D]."""
        item = self.items[name]
        if isinstance(item, Quantized):
            weight = item.dequantize()
            return weight if name.endswith("Wemb") else weight.T
        if isinstance(item, bytes):
            raise ValueError(f"{name} has the wrong type")
        return item

    def _vector(self, name: str) -> Tensor:
        item = self.items[name]
        if not isinstance(item, np.ndarray):
            raise ValueError(f"{name} has the wrong type")
        return torch.from_numpy(item.flatten())

    def _multiplier(self, name: str) -> float:
        """Return a multiplier of activations; two vocabularies have one that is quantized."""
        item = self.items[name]
        if isinstance(item, Quantized):
            item = item.dequantize()
        if isinstance(item, bytes) or item.size != 1 or not 0 < float(item.item()) < 1e30:
            raise ValueError(f"{name} is not a positive number")
        return float(item.item())


_STACKS = {"source": "encoder", "target": "decoder", "output": "decoder"}
"""Stacks whose embeddings each embedding of nmt has, in a model with two vocabularies."""
