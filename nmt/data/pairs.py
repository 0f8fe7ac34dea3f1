"""Aligned text on disk: two files with one sentence a line, or one TSV; plain or compressed; always UTF-8.

A line is what ends in `\\n` and nothing else. U+0085, U+2028, form feed and vertical tab stay inside it, since
real corpora contain them and line counts would drift apart otherwise.
"""

from __future__ import annotations

import bz2
import contextlib
import gzip
import io
import itertools
import lzma
import os
import stat
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, cast

import zstandard

from nmt.errors import DataError

Pair = tuple[str, str]

COMPRESSED = {".gz": "gzip", ".xz": "xz", ".bz2": "bzip2", ".zst": "zstandard"}
_MAGIC = {"gzip": b"\x1f\x8b", "xz": b"\xfd7zXZ\x00", "bzip2": b"BZh", "zstandard": b"\x28\xb5\x2f\xfd"}
_DAMAGE = (EOFError, OSError, zlib.error, lzma.LZMAError, zstandard.ZstdError)
_BLOCK = 1 << 14
_BOM = b"\xef\xbb\xbf"


class UnequalLengthsError(DataError):
    """Two files that should be aligned have different numbers of lines."""


def open_text(path: Path) -> BinaryIO:
    """Open a plain, .gz, .xz, .bz2 or .zst file for reading bytes; iterating it gives lines that end in `\\n`.

    Raises:
        DataError: no such file, a folder, no permission, or the content is not what the suffix says.
    """
    try:
        if path.exists() and stat.S_ISFIFO(path.stat().st_mode):  # texts are read more than once
            raise DataError(f"{path} is a pipe", "write the text to a file first")
        with path.open("rb") as file:
            head = file.read(8)
    except FileNotFoundError:
        raise DataError(f"no such file: {path}", f"relative paths start at {Path.cwd()}") from None
    except IsADirectoryError:
        raise DataError(f"{path} is a folder, not a text file", "name a file in it") from None
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}") from None
    kind = COMPRESSED.get(path.suffix, "")
    if kind and not head.startswith(_MAGIC[kind]):
        raise DataError(f"{path} is not a {kind} file, although its name says so", "rename it, or get it again")
    if kind == "zstandard":
        return io.BufferedReader(_Zstandard(path))
    if kind == "gzip":
        return cast(BinaryIO, gzip.open(path, "rb"))
    if kind == "xz":
        return cast(BinaryIO, lzma.open(path, "rb"))
    return cast(BinaryIO, bz2.open(path, "rb")) if kind else path.open("rb")


class _Zstandard(io.RawIOBase):
    """Reads every frame of a .zst file; unlike zstandard's own reader it notices a file that was cut short."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("rb")
        self._frame = zstandard.ZstdDecompressor().decompressobj()
        self._ready = b""

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        self._file.close()
        super().close()

    def readinto(self, buffer: object) -> int:
        view = memoryview(cast(bytearray, buffer))
        while not self._ready:
            if self._frame.eof:
                rest = self._frame.unused_data or self._file.read(_BLOCK)
                if not rest:
                    return 0
                self._frame = zstandard.ZstdDecompressor().decompressobj()
            elif not (rest := self._file.read(_BLOCK)):
                raise EOFError("compressed file ended before the end of the stream")
            self._ready = self._frame.decompress(rest)
        count = min(len(view), len(self._ready))
        view[:count], self._ready = self._ready[:count], self._ready[count:]
        return count


def read_lines(path: Path, errors: str = "strict") -> Iterator[str]:
    """Yield the lines of a text without their `\\n` or `\\r\\n`; a byte order mark at the start is dropped.

    Args:
        path: a plain or compressed text.
        errors: "strict" refuses bytes that are not UTF-8, "replace" turns them into U+FFFD.

    Raises:
        DataError: no such file, a damaged one, or a line that is not UTF-8 (named with its byte, counted from 1).
    """
    return decode_lines(_raw_lines(path), str(path), errors)


def decode_lines(raw_lines: Iterable[bytes], name: str, errors: str = "strict") -> Iterator[str]:
    """Yield the text of raw lines, as `read_lines` does; `name` is what messages call their origin."""
    for number, raw in enumerate(raw_lines, 1):
        if number == 1:
            raw = raw.removeprefix(_BOM)
        line = raw.removesuffix(b"\n").removesuffix(b"\r")
        try:
            yield line.decode("utf-8", errors)
        except UnicodeDecodeError as error:
            raise DataError(
                f"{name}, line {number}, byte {error.start + 1} of the line: not UTF-8 (0x{line[error.start]:02x})",
                "save it as UTF-8, or put U+FFFD for bad bytes: --encoding-errors replace, or errors='replace' in files(...)",
            ) from None


def count_lines(path: Path) -> int:
    """Count the lines of a text; damage is left for the reading itself to report."""
    count, last = 0, b"\n"
    with open_text(path) as file, contextlib.suppress(*_DAMAGE):
        while block := file.read(1 << 20):
            count += block.count(b"\n")
            last = block[-1:]
    return count + (last != b"\n")  # the last line may lack its end


def _raw_lines(path: Path) -> Iterator[bytes]:
    with open_text(path) as file:
        try:
            yield from file
        except _DAMAGE as error:
            raise DataError(f"{path} is damaged or cut short: {error}", "get the file again") from None


def read_pairs(src: Path, tgt: Path, *, errors: str = "strict") -> Iterator[Pair]:
    """Yield the pairs of two aligned files.

    Raises:
        UnequalLengthsError: the files have different numbers of lines (the message has both).
        DataError: see `read_lines`.
    """
    sources, targets = read_lines(src, errors), read_lines(tgt, errors)
    for number, (source, target) in enumerate(itertools.zip_longest(sources, targets)):
        if source is None or target is None:
            n_src, n_tgt = (
                (number, number + 1 + sum(1 for _ in targets))
                if source is None
                else (number + 1 + sum(1 for _ in sources), number)
            )
            raise UnequalLengthsError(
                f"{src} has {n_src:,} lines and {tgt} has {n_tgt:,}",
                "line n of one file must be the translation of line n of the other",
            )
        yield source, target


def read_tsv(path: Path, errors: str = "strict") -> Iterator[Pair]:
    """Yield the first two columns of a tab-separated file; further columns are ignored, quotes are plain characters.

    An empty line is a pair of blanks, which cleaning drops and counts.

    Raises:
        DataError: a line without a tab, or see `read_lines`.
    """
    for number, line in enumerate(read_lines(path, errors), 1):
        columns = line.split("\t", 2)
        if line and len(columns) < 2:
            raise DataError(f"{path}, line {number}: no tab", "each line is SOURCE, a tab, TARGET")
        yield (columns[0], columns[1]) if line else ("", "")


def write_pairs(src: Path, tgt: Path, pairs: Iterable[Pair]) -> int:
    """Write pairs as two aligned files, gzipped where the name ends in .gz, and return how many.

    A line break inside a sentence becomes a space, so the files always stay aligned. They get their names when they are
    whole; what stood there is read until then.
    """
    count = 0
    with _create(src) as sources, _create(tgt) as targets:
        for source, target in pairs:
            sources.write(_one_line(source))
            targets.write(_one_line(target))
            count += 1
    return count


def _one_line(text: str) -> bytes:
    if "\n" in text or "\r" in text:
        text = text.replace("\r\n", " ").replace("\n", " ").replace("\r", " ")
    return text.encode("utf-8", "replace") + b"\n"


@contextlib.contextmanager
def _create(path: Path) -> Iterator[BinaryIO]:
    work = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with work.open("wb") as file:
            if path.suffix != ".gz":
                yield file
            else:
                with gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0) as packed:  # same text, same bytes
                    yield cast(BinaryIO, packed)
        os.replace(work, path)
    finally:
        work.unlink(missing_ok=True)
