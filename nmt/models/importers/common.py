"""Shared parts of all imports: the imported model, and reading files that may be damaged."""

from __future__ import annotations

import contextlib
import tempfile
import zipfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nmt.core import untrusted_files
from nmt.core.config import Config
from nmt.core.console import log
from nmt.core.errors import CheckpointError, DownloadError
from nmt.core.untrusted_files import Size
from nmt.data import archives
from nmt.runs.model_files import LIMITS
from nmt.search.shortlist import Shortlist
from nmt.text.separate_tokenizer import SPECIAL_PIECES, SeparateTokenizer
from nmt.text.tokenizer import UNK, Tokenizer

MASKED = -1e3
"""Output bias of tokens that are never generated. It is finite, because label smoothing sums all
log-probabilities."""
RETRY = "download the model again"
OTHER_MODEL = "use another model"
UNKNOWN_LANGUAGES = ("src", "tgt")
"""Language codes of a model whose files do not state them."""


@dataclass(frozen=True)
class ImportedModel:
    """A converted model of another toolkit."""

    config: Config
    tokenizer: Tokenizer
    weights: Mapping[str, Tensor]
    """Weights by the names of the parameters of `nmt.model`."""
    checksum: str
    """SHA-256 of the original file of the weights."""
    limits: dict[str, Any] = field(default_factory=dict)
    """Limits of a line, by default those of a model that translates single sentences."""
    multipliers: Mapping[str, NDArray[np.float32]] = field(default_factory=dict)
    """Multipliers of a calibrated model; see `nmt.runs.quantization`."""
    shortlist: Shortlist | None = None


@dataclass(frozen=True)
class Vocabulary:
    """A tokenizer, and for each of its ids the row in the original matrices; -1: none."""

    tokenizer: Tokenizer
    source_rows_V: Tensor
    target_rows_V: Tensor


class Weights(dict[str, Tensor]):
    """The tensors of a file, by name."""

    def __init__(self, file: Path, tensors: Mapping[str, Tensor]) -> None:
        super().__init__(tensors)
        self.file = file

    def __missing__(self, name: str) -> Tensor:
        raise CheckpointError(f"{self.file} has no tensor {name}", RETRY)

    def first(self, *names: str) -> Tensor:
        """Return the first of these tensors that exists."""
        return self[next((name for name in names if name in self), names[0])]


@contextlib.contextmanager
def extracted(file: Path) -> Iterator[Path]:
    """Yield a temporary directory with the content of a zip file.

    Raises:
        CheckpointError: it is not a zip file, damaged or unsafe.
    """
    if file.is_file() and not zipfile.is_zipfile(file):
        raise CheckpointError(
            f"{file} is not an intact zip file", "download it again, or import a directory"
        )
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name) / "content"
        with untrusted_files.errors_of(file, RETRY):
            untrusted_files.check_zip_expansion(file)
        try:
            archives.extract(file, directory)
        except DownloadError as error:
            raise CheckpointError(error.message, RETRY) from None
        yield directory


def read_bytes(path: Path) -> bytes:
    """Read a file other than the weights.

    Raises:
        CheckpointError: the file cannot be read, or is too large.
    """
    with untrusted_files.errors_of(path, RETRY):
        return untrusted_files.read_bytes(path)


def read_json(path: Path, schema: Any, default: Any = None) -> Any:
    """Read a JSON object; return `default` if the file does not exist and there is a default.

    Raises:
        CheckpointError: the file cannot be read, is not a JSON object, or does not have the types
            of the schema.
    """
    if default is not None and not path.exists():
        return default
    try:
        value = untrusted_files.parse_json(read_bytes(path))
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise CheckpointError(f"{path} is not a JSON object", RETRY)
    with untrusted_files.errors_of(path, RETRY):
        untrusted_files.check(value, schema)
    return value


def check_supported(options: Mapping[str, Any], supported: Mapping[str, Collection[Any]]) -> None:
    """Raise a CheckpointError for an option of a model that has none of its supported values."""
    for name, values in supported.items():
        if name in options and options[name] not in values:
            raise CheckpointError(
                f"{name}={options[name]} of the model is not supported", OTHER_MODEL
            )


@contextlib.contextmanager
def conversion_errors(file: Path, vocabulary: str) -> Iterator[None]:
    """Raise a CheckpointError for the errors of the conversion of a damaged model.

    Args:
        file: the file of the options.
        vocabulary: name of the files whose ids select the rows of the embeddings.
    """
    try:
        yield
    except IndexError:
        raise CheckpointError(f"{vocabulary} does not fit the weights", RETRY) from None
    except (KeyError, TypeError, ValueError, RuntimeError, ArithmeticError) as error:
        reason = str(error).split("\n")[0]
        raise CheckpointError(f"{file} is incomplete or damaged: {reason}", RETRY) from None


def read_limits(directory: Path) -> dict[str, Any]:
    """Return the limits of a line in an export's `data.json`. Invalid ones are left out: other
    programs may have a file of this name."""
    path = directory / "data.json"
    data = untrusted_files.read_record(path)
    if path.is_file() and not data:
        log(f"ignoring {path}: it is damaged, or of another program")
    return {name: data[name] for name in LIMITS if untrusted_files.matches(data.get(name), Size)}


def join_vocabularies(
    source_model: bytes,
    target_model: bytes,
    source_ids: dict[str, int],
    target_ids: dict[str, int],
    special: Sequence[int],
) -> Vocabulary:
    """Return the union of two vocabularies. A piece of the target vocabulary only is unknown on the
    source side.

    Args:
        source_model: SentencePiece model of the source side.
        target_model: SentencePiece model of the target side.
        source_ids: original ids of the source pieces.
        target_ids: original ids of the target pieces; equal to `source_ids` in a joint vocabulary.
        special: original rows of PAD, UNK, BOS and EOS on either side; -1: none.

    Raises:
        CheckpointError: a file is not a SentencePiece model.
    """
    pieces = []
    for piece in target_ids | source_ids:  # in the order of the target ids, as in shortlists
        if source_ids.get(piece) not in special and target_ids.get(piece) not in special:
            pieces.append(piece)
    # Such as an unused <s>.
    names = [f"{piece}_" if piece in SPECIAL_PIECES else piece for piece in pieces]
    source_rows = [*special, *(source_ids.get(piece, special[UNK]) for piece in pieces)]
    target_rows = [*special, *(target_ids.get(piece, -1) for piece in pieces)]
    tokenizer = SeparateTokenizer(source_model, target_model, [*SPECIAL_PIECES, *names])
    return Vocabulary(tokenizer, torch.tensor(source_rows), torch.tensor(target_rows))


def select_rows(table: Tensor, rows_V: Tensor) -> Tensor:
    """Return these rows of a matrix or vector; zeros for row -1.

    Raises:
        IndexError: the table does not have these rows.
    """
    if len(rows_V) > 2 * len(table) + len(SPECIAL_PIECES):  # the union of two vocabularies
        raise IndexError("the vocabulary has more pieces than the table has rows")
    selected = table[rows_V.clamp(min=0)].clone()
    selected[rows_V < 0] = 0.0
    return selected
