"""The features of all pairs in files, one for each feature, which are mapped into memory.

Shape suffix: N pairs.
"""

from __future__ import annotations

import math
import mmap
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nmt.data.check.features import RECORD, Records


class Features:
    """The features of some consecutive pairs by name; see `nmt.data.check.features.RECORD`."""

    def __init__(self, columns: Mapping[str, NDArray[Any]]) -> None:
        self._columns = columns

    def __len__(self) -> int:
        return len(self._columns["problems"])

    def __getitem__(self, name: str) -> NDArray[Any]:
        return self._columns[name]

    def part(self, start: int, end: int) -> Features:
        """Return the features of the pairs from `start` to `end`."""
        columns = {}
        for name, column in self._columns.items():
            columns[name] = column[start:end]
        return Features(columns)

    def release(self) -> None:
        """Give the memory of mapped files back, which are read again when they are needed."""
        for column in self._columns.values():
            mapped: Any = column
            while isinstance(mapped, np.ndarray):
                mapped = mapped.base
            if isinstance(mapped, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
                mapped.madvise(mmap.MADV_DONTNEED)


def join_records(parts: Iterable[tuple[Path, int]], directory: Path) -> Features:
    """Join files of records, each given with its number of records, and return their features in
    files of `directory`.

    A part is deleted when its records are in these files. An interrupted call continues after the
    last complete part.
    """
    *names, last = ("pair", "source", "digest", "words", "test", "chars", "problems")
    end = 0
    for part, num_records in parts:
        start = end
        end += num_records
        if _num_values(_file(directory, last), last) < end:
            records = np.fromfile(part, RECORD)
            for name in (*names, last):
                _write(_file(directory, name), start, records[name])
        part.unlink(missing_ok=True)
    return Features({name: _map(_file(directory, name), name) for name in (*names, last)})


def _file(directory: Path, name: str) -> Path:
    """Return the file of a feature."""
    return directory / f"{name}.feature"


def _num_values(path: Path, name: str) -> int:
    if not path.exists():
        return 0
    return path.stat().st_size // RECORD[name].itemsize


def _write(path: Path, start: int, values_N: Records) -> None:
    """Write values after the first `start` ones."""
    content = np.ascontiguousarray(values_N).tobytes()
    size = values_N.dtype.itemsize * math.prod(values_N.shape[1:])
    with path.open("ab") as file:
        file.truncate(start * size)
        file.write(content)


def _map(path: Path, name: str) -> NDArray[Any]:
    """Map the file of a feature as a plain array, whose slices are fast."""
    dtype = RECORD[name]
    mapped = np.memmap(path, dtype.base, "r").reshape(-1, *dtype.shape)
    return np.asarray(mapped)
