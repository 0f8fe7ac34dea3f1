"""The features of all pairs in files: those that are random bits in a mapped file for each feature,
the others compressed.

Shape suffix: N pairs.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import accumulate
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from nmt.core.compression import zstd
from nmt.core.paths import write_bytes
from nmt.data.arrays import Indices, map_file, release
from nmt.data.check.features import LINE, PAIR, Records

LEVEL = 1
"""Compression of lines, which higher levels hardly improve."""
NUM_CACHED_FILES = 8
"""Number of files whose lines are in memory."""


class Features(dict[str, NDArray[Any]]):
    """The features of pairs by name; see `nmt.data.check.features.PAIR`."""

    @classmethod
    def read(cls, directory: Path) -> Self:
        """Map the files of a directory; see `join_records`."""
        features = cls()
        for name in PAIR.names or ():
            dtype = PAIR[name]
            values = map_file(feature_file(directory, name), dtype.base)
            features[name] = values.reshape(-1, *dtype.shape)
        return features

    def release(self) -> None:
        """Give the memory of mapped files back, which are read again when they are needed."""
        for column in self.values():
            release(column)


class Lines:
    """The features that tell which lines of a corpus are translations of each other; see
    `nmt.data.check.features.LINE`."""

    def __init__(self, files: Sequence[tuple[Path, int]]) -> None:
        """Take compressed files of consecutive lines, each given with its number of lines."""
        self._paths = [path for path, _ in files]
        sizes = [num_lines for _, num_lines in files]
        self._starts = [0, *accumulate(sizes)]
        self._read = lru_cache(maxsize=NUM_CACHED_FILES)(self._read_file)

    def __len__(self) -> int:
        return self._starts[-1]

    def __getitem__(self, line_N: Indices) -> Records:
        """Return the features of lines, [N], or of an array of another shape."""
        file_N = np.searchsorted(self._starts, line_N, "right") - 1
        records_N = np.empty(line_N.shape, LINE)
        for file in np.unique(file_N).tolist():
            is_inside_N = file_N == file
            inside_N = line_N[is_inside_N] - self._starts[file]
            records_N[is_inside_N] = self._read(file)[inside_N]
        return records_N

    def _read_file(self, index: int) -> Records:
        content = zstd.decompress(self._paths[index].read_bytes())
        return np.frombuffer(content, LINE)

    def delete(self) -> None:
        """Delete the files."""
        for path in self._paths:
            path.unlink(missing_ok=True)


def write_lines(path: Path, lines_N: Records) -> None:
    """Write the features of lines."""
    write_bytes(path, zstd.compress(lines_N.tobytes(), LEVEL))


def join_records(parts: Iterable[tuple[Path, int]], directory: Path) -> None:
    """Join files of records of type `PAIR`, each given with its number of records, as files of
    `directory`, one for each feature.

    A part is deleted when its records are in these files. An interrupted call continues after the
    last complete part.
    """
    *names, last = ("pair", "source", "digest", "problems")
    end = 0
    for part, num_records in parts:
        start = end
        end += num_records
        if _num_values(feature_file(directory, last), last) < end:
            records = np.fromfile(part, PAIR)
            for name in (*names, last):
                _write(feature_file(directory, name), start, records[name])
        part.unlink(missing_ok=True)


def feature_file(directory: Path, name: str) -> Path:
    """Return the file of a feature."""
    return directory / f"{name}.feature"


def _num_values(path: Path, name: str) -> int:
    if not path.exists():
        return 0
    return path.stat().st_size // PAIR[name].itemsize


def _write(path: Path, start: int, values_N: Records) -> None:
    """Write values after the first `start` ones."""
    content = np.ascontiguousarray(values_N).tobytes()
    size = values_N.dtype.itemsize * math.prod(values_N.shape[1:])
    with path.open("ab") as file:
        file.truncate(start * size)
        file.write(content)
