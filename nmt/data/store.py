"""The prepared corpus on disk: cleaned plain text and its token ids, both memory-mapped.

Each language of a split (train or valid) has three files: `train.en` (text, one sentence per line),
`train.en.ids` (concatenated ids) and `train.en.ends` (end offset of each sentence in the ids and in
the bytes of the text). Only the pages that are read occupy memory, so memory use does not grow with
the corpus. Shape suffix: N pairs.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from nmt.core.errors import DataError
from nmt.text.tokenizer import Tokenizer

VERSION = 5
"""Part of every fingerprint. Increase it when the file format changes, or when cleaning,
placeholders or tokenization give another result for the same options."""
CHUNK_SIZE = 20_000
"""Sentences tokenized at a time."""

Tokens = NDArray[np.uint16]
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
            self._ids = _map(_beside(text, ".ids"), np.uint16)
            ends = _map(_beside(text, ".ends"), np.int64)
            self._ends_N2 = ends.reshape(-1, 2)
            self._text = _map(text, np.uint8)
        except (OSError, ValueError) as error:
            raise DataError(f"prepared text {text} is corrupted: {error}", hint) from None
        sizes = (len(self._ids), len(self._text))
        last_ends = self._ends_N2[-1] if len(self) else (0, 0)
        if tuple(last_ends) != sizes:
            raise DataError(f"prepared text {text} is truncated or was modified", hint)

    def __len__(self) -> int:
        return len(self._ends_N2)

    def ids(self, i: int) -> Tokens:
        """Return the token ids of sentence `i`."""
        start = self._start(i, 0)
        end = self._ends_N2[i, 0]
        return self._ids[start:end]

    def text(self, i: int) -> str:
        """Return sentence `i`."""
        start = self._start(i, 1)
        end = self._ends_N2[i, 1]
        line = bytes(self._text[start:end])
        text = line.decode()
        return text.rstrip("\n")

    def lengths(self) -> NDArray[np.int32]:
        """Return the token counts of all sentences."""
        ends_N = self._ends_N2[:, 0]
        lengths_N = np.diff(ends_N, prepend=0)
        return lengths_N.astype(np.int32)

    def _start(self, i: int, column: int) -> int:
        if not i:
            return 0
        end = self._ends_N2[i - 1, column]
        return int(end)


def _beside(text: Path, suffix: str) -> Path:
    return text.with_name(text.name + suffix)


def _map(path: Path, dtype: type[Number]) -> NDArray[Number]:
    if path.stat().st_size == 0:  # an empty file cannot be mapped
        return np.empty(0, dtype)
    mapped = np.memmap(path, dtype, mode="r")
    return np.asarray(mapped)  # slices of a memmap object take ten times as long


class Store:
    """The sentence pairs of one split of a prepared directory."""

    def __init__(self, directory: Path, split: str, src: str, tgt: str) -> None:
        self.src = TextStore(directory / f"{split}.{src}")
        self.tgt = TextStore(directory / f"{split}.{tgt}")
        lengths = (self.src.lengths(), self.tgt.lengths())
        self.lengths_N2 = np.stack(lengths, axis=1)

    def __len__(self) -> int:
        return len(self.src)

    def __getitem__(self, i: int) -> tuple[Tokens, Tokens]:
        return self.src.ids(i), self.tgt.ids(i)


def encode_file(text: Path, tokenizer: Tokenizer, *, target: bool) -> Iterator[int]:
    """Tokenize the text file `text` into its `.ids` and `.ends` files; yield the number of
    sentences of each chunk.

    The tokenizer must have at most `MAX_VOCAB_SIZE` tokens.
    """
    ends = np.zeros(2, np.int64)  # of the last sentence, in the ids and in the text
    ids_part = _beside(text, ".ids.part")
    ends_part = _beside(text, ".ends.part")
    with (
        open(text, "rb") as lines,  # binary: `ends` counts every byte, including a byte order mark
        open(ids_part, "wb") as ids_file,
        open(ends_part, "wb") as ends_file,
    ):
        while chunk := list(islice(lines, CHUNK_SIZE)):
            sentences = [line.decode().removesuffix("\n") for line in chunk]
            rows = tokenizer.encode_batch(sentences, target=target)
            ids = np.fromiter(chain.from_iterable(rows), np.uint16)
            ids_file.write(ids.tobytes())
            num_ids = list(map(len, rows))
            num_bytes = list(map(len, chunk))
            lengths_2N = np.array([num_ids, num_bytes])
            ends_N2 = ends + lengths_2N.T.cumsum(axis=0)
            ends_file.write(ends_N2.tobytes())
            ends = ends_N2[-1]
            yield len(chunk)
    os.replace(ids_part, _beside(text, ".ids"))
    os.replace(ends_part, _beside(text, ".ends"))  # last, because `is_encoded` tests for this file


def is_encoded(text: Path) -> bool:
    """Return whether `encode_file` has finished for a text file."""
    return _beside(text, ".ends").is_file()
