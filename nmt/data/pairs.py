"""Reading and writing parallel text: two files with one sentence per line or one TSV file, plain or
compressed, UTF-8.

Only `\\n` ends a line. U+0085, U+2028, form feed and vertical tab occur inside sentences of real
corpora; splitting at them would misalign the two files.
"""

from __future__ import annotations

import bz2
import contextlib
import errno
import gzip
import hashlib
import io
import itertools
import lzma
import os
import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Any, BinaryIO, Protocol, TextIO, cast

from nmt.core.compression import zstd
from nmt.core.console import counted, log_once
from nmt.core.errors import DataError
from nmt.core.paths import new_file
from nmt.text.decoding import decode_lines

Pair = tuple[str, str]

COMPRESSED = {".gz": "gzip", ".xz": "xz", ".bz2": "bzip2", ".zst": "zstandard"}
# Regular expressions; the second one of zstandard is a skippable frame, with which pzstd starts
_MAGIC = {
    "gzip": rb"\x1f\x8b",
    "xz": rb"\xfd7zXZ\x00",
    "bzip2": rb"BZh",
    "zstandard": rb"\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18",
}
MAX_LINE_BYTES = 100_000_000
"""Limit of a line, which is read into memory at once."""
MAX_LINES_IN_WARNING = 5
ZSTD_LEVEL = 3
"""Smaller than gzip at its level 6, and eight times as fast."""
SAMPLE_BYTES = 32 << 20
"""Text from which the number of lines of a file is estimated."""
_DECOMPRESSORS = {"xz": lzma.LZMADecompressor, "bzip2": bz2.BZ2Decompressor}
_READ_ERRORS = (EOFError, OSError, zlib.error, lzma.LZMAError, zstd.ZstdError)
BUFFER_SIZE = 1 << 18


class UnequalLineCountsError(DataError):
    """Two parallel files have different numbers of lines."""


class ArchivedFile(Protocol):
    """A file in an archive, such as `nmt.data.archives.SourceFile`."""

    @property
    def suffix(self) -> str:
        """The suffix of its name."""

    def open_text(self) -> BinaryIO:
        """Open it as `open_text` does."""


InputFile = Path | ArchivedFile


def open_text(path: InputFile) -> BinaryIO:
    """Open a plain, .gz, .xz, .bz2 or .zst file in binary mode; iteration yields lines that end in
    `\\n`.

    Raises:
        DataError: the file is missing, unreadable, a directory, a pipe or a device, or its content
            does not match its suffix.
    """
    if not isinstance(path, Path):
        return path.open_text()
    try:
        # Files are read twice.
        if path.is_fifo() or (path.is_char_device() and path.resolve() != Path(os.devnull)):
            raise DataError(f"{path} is a pipe or a device", "write its content to a file first")
        with path.open("rb") as file:
            head = file.read(8)
    except FileNotFoundError:
        raise DataError(
            f"no such file: {path}", f"relative paths are resolved against {Path.cwd()}"
        ) from None
    except IsADirectoryError:
        raise DataError(f"{path} is a directory, not a text file", "specify a file in it") from None
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}") from None
    compression = find_compression(path, head)
    if compression == "gzip":
        return cast(BinaryIO, gzip.open(path, "rb"))
    if compression == "zstandard":
        return _buffered(zstd.open(path))
    return decompress(path.open("rb"), compression)


def find_compression(path: InputFile, head: bytes) -> str:
    """Return the compression of a file by its suffix, or an empty string.

    Raises:
        DataError: `head`, the first bytes of the file, does not match the suffix.
    """
    compression = COMPRESSED.get(path.suffix, "")
    if compression and not re.match(_MAGIC[compression], head):
        raise DataError(
            f"{path} is not a {compression} file despite its suffix",
            "rename it, or download it again",
        )
    return compression


def decompress(file: BinaryIO, compression: str) -> BinaryIO:
    """Return the decompressed content of an open file; closing it closes the file, unless it is
    gzip or zstandard."""
    if not compression:
        return file
    if compression == "gzip":
        return cast(BinaryIO, gzip.GzipFile(fileobj=file))
    if compression == "zstandard":
        return _buffered(zstd.open(file))
    return _buffered(_Decompressed(file, _DECOMPRESSORS[compression]))


def _buffered(content: Any) -> BinaryIO:
    """Return content whose lines are read fast."""
    return cast(BinaryIO, io.BufferedReader(content, BUFFER_SIZE))


class _Decompressed(io.RawIOBase):
    """The content of xz or bzip2 streams. `lzma.open` and `bz2.open` would end at a damaged stream
    without error."""

    def __init__(
        self,
        file: BinaryIO,
        new_decompressor: Callable[[], lzma.LZMADecompressor | bz2.BZ2Decompressor],
    ) -> None:
        self._file = file
        self._new_decompressor = new_decompressor
        self._decompressor = new_decompressor()

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read at most as many bytes as the buffer has; 0 at the end. Raises an EOFError if the
        file is truncated."""
        content = b""
        while not content:
            data = b""
            if self._decompressor.eof:
                data = self._next_stream(self._decompressor.unused_data)
                if not data:
                    return 0
                self._decompressor = self._new_decompressor()
            elif self._decompressor.needs_input and not (
                data := self._file.read(io.DEFAULT_BUFFER_SIZE)
            ):
                raise EOFError("the last stream is incomplete")
            content = self._decompressor.decompress(data, len(buffer))
        buffer[: len(content)] = content
        return len(content)

    def _next_stream(self, data: bytes) -> bytes:
        """Return the start of the next stream, after the padding; empty if there is none."""
        while not (data := data.lstrip(b"\0")) and (
            data := self._file.read(io.DEFAULT_BUFFER_SIZE)
        ):
            pass
        return data

    def close(self) -> None:
        """Close the file."""
        self._file.close()
        super().close()


def read_lines(path: InputFile, errors: str = "strict") -> Iterator[str]:
    """Yield the lines of a file without their `\\n` or `\\r\\n`; a byte order mark at the start is
    dropped.

    Args:
        path: a plain or compressed text file.
        errors: for bytes that are not UTF-8: "strict" raises an error, "replace" decodes them as
            U+FFFD.

    Raises:
        DataError: the file is missing or corrupted, or a line has more than `MAX_LINE_BYTES`.
        EncodingError: a line is not UTF-8; the message has its line and byte, from 1.
    """
    return decode_lines(_raw_lines(path), str(path), errors)


def count_lines(path: InputFile) -> int:
    """Return the number of lines of a file; read errors are left to the code that reads the
    text."""
    count, last = 0, b"\n"
    with open_text(path) as file, contextlib.suppress(*_READ_ERRORS):
        while block := file.read(1 << 20):
            count += block.count(b"\n")
            last = block[-1:]
    return count + (last != b"\n")  # the last line may have no line feed


def estimate_lines(path: Path) -> int:
    """Return the number of lines of a file; of a large one approximately, from its first
    `SAMPLE_BYTES`."""
    open_text(path).close()  # raises the DataError
    num_lines = num_bytes = 0
    with path.open("rb") as file, contextlib.suppress(*_READ_ERRORS):
        text = decompress(file, COMPRESSED.get(path.suffix, ""))
        while num_bytes < SAMPLE_BYTES and (block := text.read(1 << 20)):
            num_bytes += len(block)
            num_lines += block.count(b"\n")
        if num_bytes >= SAMPLE_BYTES:
            return num_lines * path.stat().st_size // file.tell()
    return count_lines(path)


def read_blocks(path: InputFile) -> Iterator[bytes]:
    """Yield the decompressed content of a file in blocks of 256 KiB.

    Raises:
        DataError: the file is missing or corrupted.
    """
    with _reading(path) as file:
        while block := file.read(1 << 18):
            yield block


def _raw_lines(path: InputFile) -> Iterator[bytes]:
    with _reading(path) as file:
        for number, line in enumerate(iter(partial(file.readline, MAX_LINE_BYTES + 1), b""), 1):
            if len(line) > MAX_LINE_BYTES:
                raise DataError(
                    f"{path}, line {number}: longer than {MAX_LINE_BYTES:,} bytes",
                    "check the line ends",
                )
            yield line


@contextlib.contextmanager
def _reading(path: InputFile) -> Iterator[BinaryIO]:
    with open_text(path) as file:
        try:
            yield file
        except _READ_ERRORS as error:
            raise DataError(
                f"{path} is corrupted or truncated: {error}", "download the file again"
            ) from None


def read_pairs(src: InputFile, tgt: InputFile, *, errors: str = "strict") -> Iterator[Pair]:
    """Yield the sentence pairs of two parallel files.

    Raises:
        UnequalLineCountsError: the files have different numbers of lines; the message has both
            numbers.
        DataError: the lines end in CR; see also `read_lines`.
    """
    sources, targets = read_lines(src, errors), read_lines(tgt, errors)
    number = -1
    for number, (source, target) in enumerate(itertools.zip_longest(sources, targets)):
        if source is None or target is None:
            n_src = number + (source is not None) + sum(1 for _ in sources)
            n_tgt = number + (target is not None) + sum(1 for _ in targets)
            raise UnequalLineCountsError(
                f"{src} has {counted(n_src, 'line')} and {tgt} has {n_tgt:,}",
                "line n of one file must be the translation of line n of the other",
            )
        yield source, target
    if (
        number == 0
        and source
        and target
        and "\r" in source.rstrip("\r")
        and "\r" in target.rstrip("\r")
    ):
        raise DataError(f"the lines of {src} and {tgt} end in CR", "convert their line ends to LF")


def read_tsv(
    path: InputFile,
    errors: str = "strict",
    *,
    columns: tuple[int, ...] = (0, 1),
    skip_short_lines: bool = False,
) -> Iterator[Any]:
    """Yield two columns of a tab-separated file, or more, without interpreting quotes.

    An empty line yields blank cells, which cleaning drops and counts. A warning tells how many
    lines have another number of columns than the first one: a tab in a sentence moves the columns
    after it.

    Args:
        path: a plain or compressed file.
        errors: see `read_lines`.
        columns: indices of the source and the target column, or of others.
        skip_short_lines: whether the cells of lines with too few columns, except the first one, are
            blank: an error late in a large corpus could not be corrected.

    Raises:
        DataError: a line has too few columns; see also `read_lines`.
    """
    select = itemgetter(*columns)
    blank = ("",) * len(columns)
    num_needed = max(columns) + 1
    num_columns = 0  # of the first line
    max_splits = num_needed
    num_different = 0
    different: list[int] = []
    for number, line in enumerate(read_lines(path, errors), 1):
        if not line:
            yield blank
            continue
        cells = line.split("\t", max_splits)
        is_short = len(cells) < num_needed
        if is_short and not (skip_short_lines and num_columns):
            found = "no tab" if len(cells) == 1 else f"{len(cells)} columns instead of {num_needed}"
            raise DataError(
                f"{path}, line {number}: {found}", "separate the columns of each line by tabs"
            )
        if not num_columns:
            num_columns = line.count("\t") + 1
            max_splits = max(num_needed, num_columns)
        elif len(cells) != num_columns:
            num_different += 1
            if len(different) < MAX_LINES_IN_WARNING:
                different.append(number)
        yield blank if is_short else select(cells)
    if num_different:
        _warn_about_columns(path, num_columns, num_different, different)


def _warn_about_columns(
    path: InputFile, num_columns: int, num_lines: int, first_lines: Iterable[int]
) -> None:
    numbers = [f"{number:,}" for number in first_lines]
    if num_lines > len(numbers):
        numbers.append("...")
    log_once(
        f"warning: {path}: {counted(num_lines, 'line')} with more or fewer than {num_columns}"
        f" columns ({', '.join(numbers)}); check for tabs in sentences"
    )


def hash_text(text: str) -> int:
    """Return a 64-bit hash of a text. For ten million texts, the probability of any collision is 3
    in a million."""
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=8).digest())


def hash_pair(source: str, target: str) -> int:
    """Return a 64-bit hash of a sentence pair."""
    return hash_text(f"{len(source)} {source}{target}")


def write_pairs(src: Path, tgt: Path, pairs: Iterable[Pair]) -> int:
    """Write pairs to two parallel files, compressed if the name ends in .gz or .zst, and return the
    number of pairs.

    Line breaks inside sentences become spaces, so that the files stay aligned. Existing files are
    replaced only after everything is written, so `pairs` may be read from them.
    """
    count = 0
    with (
        new_file(src) as src_work,
        new_file(tgt) as tgt_work,
        _writer(src_work, src) as sources,
        _writer(tgt_work, tgt) as targets,
    ):
        for source, target in pairs:
            sources.write(one_line(source) + "\n")
            targets.write(one_line(target) + "\n")
            count += 1
    return count


def one_line(text: str) -> str:
    """Replace line breaks inside a sentence by spaces, so that parallel files stay aligned."""
    if "\n" in text or "\r" in text:
        text = text.replace("\r\n", " ").replace("\n", " ").replace("\r", " ")
    return text


@contextlib.contextmanager
def _writer(temporary: Path, path: Path) -> Iterator[TextIO]:
    """Open a temporary file that will replace `path`."""
    if path.is_dir():  # the other file must not be replaced, either
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    with temporary.open("wb") as file:
        content: Any = file
        if path.suffix == ".gz":
            # Without name and time, the content is reproducible.
            content = gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0)
        elif path.suffix == ".zst":
            content = zstd.open(file, "wb", level=ZSTD_LEVEL)
        # The buffer keeps the text from ending a block of compressed content before its end.
        buffered = io.BufferedWriter(content, BUFFER_SIZE)
        with io.TextIOWrapper(buffered, "utf-8", "replace", "\n") as text:
            yield text
        if path.suffix == ".zst" and not file.tell():
            file.write(zstd.compress(b""))
