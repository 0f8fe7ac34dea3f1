"""Shared parts of all imports: the imported model, and reading files that may be damaged."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from nmt.config import Config
from nmt.data.tokenizer import Tokenizer
from nmt.errors import CheckpointError

MASKED = -1e3
"""Output bias of tokens that are never generated. It is finite, because label smoothing sums all log-probabilities."""
RETRY = "download the model again"


@dataclass(frozen=True)
class ImportedModel:
    """A converted model of another toolkit."""

    config: Config
    tokenizer: Tokenizer
    weights: Mapping[str, Tensor]
    """Weights by the names of the parameters of `nmt.model`."""
    checksum: str
    """SHA-256 of the original file of the weights."""


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


def read_bytes(path: Path) -> bytes:
    """Read a file.

    Raises:
        CheckpointError: the file cannot be read.
    """
    try:
        return path.read_bytes()
    except OSError as error:
        raise CheckpointError(f"cannot read {path}: {error.strerror}", RETRY) from None


def read_json(path: Path, default: dict[str, Any] | None = None) -> dict[str, Any]:
    """Read a JSON object; return `default` if the file does not exist and there is a default.

    Raises:
        CheckpointError: the file cannot be read or is not a JSON object.
    """
    if default is not None and not path.exists():
        return default
    try:
        value = json.loads(read_bytes(path))
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise CheckpointError(f"{path} is not a JSON object", RETRY)
    return value
