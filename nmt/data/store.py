"""The prepared corpus on disk: cleaned plain text and its token ids, both memory-mapped.

Each language of a split (train or valid) has three files: `train.en` (text, one sentence per line),
`train.en.ids` (concatenated ids) and `train.en.ends` (end offset of each sentence in the ids and in the bytes of the
text). Only the pages that are read occupy memory, so memory use does not grow with the corpus. Shape suffix: N pairs.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from nmt.data.tokenizer import Tokenizer
from nmt.errors import DataError

VERSION = 5
"""Part of every fingerprint. Increase it when the file format changes, or when cleaning, placeholders or tokenization
give another result for the same options."""
CHUNK_SIZE = 20_000
"""Sentences tokenized at a time."""

Number = TypeVar("Number", bound=np.generic)


class TextStore:
    """One language of a split."""

    def __init__(self, text: Path) -> None:
        """Map the text file `text` and its token ids.

        Raises:
            DataError: a file is missing or has the wrong size.
        """
        hint = "delete its directory and re-run the command"
        try:
            self._ids = _map(text.with_name(text.name + ".ids"), np.uint16)
            self._ends_N2 = _map(text.with_name(text.name + ".ends"), np.int64).reshape(-1, 2)
            self._text = _map(text, np.uint8)
        except (OSError, ValueError) as error:
            raise DataError(f"prepared text {text} is corrupted: {error}", hint) from None
        last = self._ends_N2[-1] if len(self._ends_N2) else (0, 0)
        if tuple(last) != (len(self._ids), len(self._text)):
            raise DataError(f"prepared text {text} is truncated or was modified", hint)

    def __len__(self) -> int:
        return len(self._ends_N2)

    def ids(self, i: int) -> NDArray[np.uint16]:
        """Return the token ids of sentence `i`."""
        return self._ids[self._start(i, 0) : self._ends_N2[i, 0]]

    def text(self, i: int) -> str:
        """Return sentence `i`."""
        return bytes(self._text[self._start(i, 1) : self._ends_N2[i, 1]]).decode().rstrip("\n")

    def lengths(self) -> NDArray[np.int32]:
        """Return the token counts of all sentences."""
        return np.diff(self._ends_N2[:, 0], prepend=0).astype(np.int32)

    def _start(self, i: int, column: int) -> int:
        return int(self._ends_N2[i - 1, column]) if i else 0


def _map(path: Path, dtype: type[Number]) -> NDArray[Number]:
    if path.stat().st_size == 0:  # an empty file cannot be mapped
        return np.empty(0, dtype)
    return np.asarray(np.memmap(path, dtype, mode="r"))  # slices of a memmap object take ten times as long


class Store:
    """The sentence pairs of one split of a prepared directory."""

    def __init__(self, directory: Path, split: str, src: str, tgt: str) -> None:
        self.src = TextStore(directory / f"{split}.{src}")
        self.tgt = TextStore(directory / f"{split}.{tgt}")
        self.lengths_N2 = np.stack((self.src.lengths(), self.tgt.lengths()), axis=1)

    def __len__(self) -> int:
        return len(self.src)

    def __getitem__(self, i: int) -> tuple[NDArray[np.uint16], NDArray[np.uint16]]:
        return self.src.ids(i), self.tgt.ids(i)


def encode_file(text: Path, tokenizer: Tokenizer, *, target: bool) -> Iterator[int]:
    """Tokenize the text file `text` into its `.ids` and `.ends` files; yield the number of sentences of each chunk.

    The tokenizer must have at most `MAX_VOCAB_SIZE` tokens.
    """
    id_end = byte_end = 0
    ids_path, ends_path = (text.with_name(text.name + suffix) for suffix in (".ids", ".ends"))
    ids_part, ends_part = (path.with_name(path.name + ".part") for path in (ids_path, ends_path))
    with (
        open(text, "rb") as lines,  # binary: `ends` counts every byte, including a byte order mark
        open(ids_part, "wb") as ids_file,
        open(ends_part, "wb") as ends_file,
    ):
        while chunk := list(islice(lines, CHUNK_SIZE)):
            ids = tokenizer.encode_batch([line.decode().removesuffix("\n") for line in chunk], target=target)
            ids_file.write(np.fromiter((i for row in ids for i in row), np.uint16).tobytes())
            counts = np.array([(len(row), len(line)) for row, line in zip(ids, chunk, strict=True)])
            ends = np.cumsum(counts, axis=0, dtype=np.int64) + (id_end, byte_end)
            ends_file.write(ends.tobytes())
            id_end, byte_end = ends[-1].tolist()
            yield len(chunk)
    os.replace(ids_part, ids_path)
    os.replace(ends_part, ends_path)  # last, because `is_encoded` tests for this file


def is_encoded(text: Path) -> bool:
    """Return whether `encode_file` has finished for a text file."""
    return text.with_name(text.name + ".ends").is_file()
