"""A prepared corpus on disk: cleaned text one can read, and its token ids, both memory-mapped.

A side of a split is three files: `train.en` (text, a sentence a line), `train.en.ids` (ids one after another) and
`train.en.ends` (where each sentence ends: in ids, and in bytes of the text). Reading touches only the pages it
needs, so memory does not grow with the corpus. Letters: N pairs.
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

VERSION = 3
"""Part of every fingerprint: raise it when the files change their meaning."""
Number = TypeVar("Number", bound=np.generic)

CHUNK = 20_000
"""Sentences tokenized at a time."""


class Side:
    """One language of a split."""

    def __init__(self, text: Path) -> None:
        """Map the files of the side whose text is at `text`.

        Raises:
            DataError: a file is missing or has the wrong size.
        """
        try:
            self._ids = _map(text.with_name(text.name + ".ids"), np.uint16)
            self._ends_N2 = _map(text.with_name(text.name + ".ends"), np.int64).reshape(-1, 2)
            self._text = _map(text, np.uint8)
        except (OSError, ValueError) as error:
            raise DataError(f"prepared text {text} is damaged: {error}", "delete its folder and run again") from None
        last = self._ends_N2[-1] if len(self._ends_N2) else (0, 0)
        if tuple(last) != (len(self._ids), len(self._text)):
            raise DataError(f"prepared text {text} is cut or was changed", "delete its folder and run again")

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


def _map(path: Path, kind: type[Number]) -> NDArray[Number]:
    if path.stat().st_size == 0:  # an empty file cannot be mapped
        return np.empty(0, kind)
    return np.memmap(path, kind, mode="r")


class Store:
    """The pairs of one split of a prepared folder."""

    def __init__(self, folder: Path, split: str, src: str, tgt: str) -> None:
        self.src = Side(folder / f"{split}.{src}")
        self.tgt = Side(folder / f"{split}.{tgt}")
        self.lengths_N2 = np.stack((self.src.lengths(), self.tgt.lengths()), axis=1)

    def __len__(self) -> int:
        return len(self.src)

    def __getitem__(self, i: int) -> tuple[NDArray[np.uint16], NDArray[np.uint16]]:
        return self.src.ids(i), self.tgt.ids(i)


def encode_side(text: Path, tokenizer: Tokenizer) -> Iterator[int]:
    """Write the ids and ends of the text file `text` beside it; yield the sentences done after each chunk.

    Raises:
        DataError: the tokenizer has more pieces than 16-bit ids can name.
    """
    if len(tokenizer) > 2**16:
        raise DataError(f"a tokenizer of {len(tokenizer)} pieces is too large", "use at most 65536")
    id_end = byte_end = 0
    ids_path, ends_path = (text.with_name(text.name + ending) for ending in (".ids", ".ends"))
    work = [path.with_name(path.name + ".part") for path in (ids_path, ends_path)]
    with (
        open(text, "rb") as lines,  # raw: the ends count every byte, a byte order mark too
        open(work[0], "wb") as ids_file,
        open(work[1], "wb") as ends_file,
    ):
        while chunk := list(islice(lines, CHUNK)):
            ids = tokenizer.encode_all([line.decode() for line in chunk])
            ids_file.write(np.fromiter((i for row in ids for i in row), np.uint16).tobytes())
            counts = np.array([(len(row), len(line)) for row, line in zip(ids, chunk, strict=True)])
            ends = np.cumsum(counts, axis=0, dtype=np.int64) + (id_end, byte_end)
            ends_file.write(ends.tobytes())
            id_end, byte_end = ends[-1].tolist()
            yield len(chunk)
    os.replace(work[0], ids_path)
    os.replace(work[1], ends_path)  # last: it says that both are whole


def is_encoded(text: Path) -> bool:
    """Say whether `encode_side` has finished with a text."""
    return text.with_name(text.name + ".ends").is_file()
