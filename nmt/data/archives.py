"""Files of published corpora, on disk or in zip and tar archives of untrusted sources.

Archives are read as streams, because some corpora have more text than a disk has space.
"""

from __future__ import annotations

import bz2
import contextlib
import gzip
import io
import lzma
import re
import shutil
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any, BinaryIO, cast

from nmt.core.errors import DataError, DownloadError
from nmt.core.paths import named_errors
from nmt.data.pairs import decompress, find_compression, open_text

MAX_BYTES = 1 << 40
"""Maximum decompressed size of an archive or a file; the largest corpora have a tenth of it."""
MAX_RATIO = 100
"""Maximum ratio of decompressed to compressed size; text has a ratio of 3 to 10, a zip bomb a much
higher one."""
RATIO_CHECK_BYTES = 10 << 20
"""Decompressed size above which the ratio is checked."""
BLOCK_BYTES = 1 << 18

_ARCHIVE_ERRORS = (zipfile.BadZipFile, tarfile.TarError, RuntimeError)
_CORRUPTION_ERRORS = (
    *_ARCHIVE_ERRORS,
    zlib.error,
    lzma.LZMAError,
    EOFError,
    ValueError,
    OSError,
)
_ARCHIVE = re.compile(r"\.(zip|tar|tgz|tbz2?|txz|tar\.(gz|bz2|xz))$")


@dataclass(frozen=True, order=True)
class SourceFile:
    """A file on disk, or in an archive, where it is read without unpacking."""

    path: Path
    """The file, or the archive."""
    member: str = ""
    """Name in the archive; empty for a file on disk."""

    def __str__(self) -> str:
        return str(self.path / self.member)

    @property
    def name(self) -> str:
        """The name without directories."""
        return PurePosixPath(self.member or self.path.name).name

    @property
    def suffix(self) -> str:
        """The suffix of the name."""
        return PurePosixPath(self.name).suffix

    def open_text(self) -> BinaryIO:
        """Open it and decompress it as `nmt.data.pairs.open_text` does. Reading raises a
        DownloadError if it expands too much."""
        if not self.member:
            return _limited(self, [open_text(self.path)])
        with _corruption_as_error(self.path):
            files = self._open_member()
            head = files[0].peek(8)[:8]
        return _limited(self, [decompress(files[0], find_compression(self, head)), *files])

    def _open_member(self) -> list[Any]:
        """Return the content, and what else is to be closed after reading it."""
        if _is_zip(self.path):
            with zipfile.ZipFile(self.path) as archive:  # open until the content is closed
                return [archive.open(self.member)]
        members = _read_tar(self.path)
        for header, content in members:
            if header.name == self.member:
                return [content, members]
        raise DataError(f"{self.path} has no file {self.member}")


def _limited(source: SourceFile, files: Sequence[Any]) -> BinaryIO:
    content = io.BufferedReader(_LimitedContent(source, files), BLOCK_BYTES)
    return cast(BinaryIO, content)


class _LimitedContent(io.RawIOBase):
    """The text of a file, up to the limit of its size. Closing it closes `files`, of which the
    first one is read."""

    def __init__(self, source: SourceFile, files: Sequence[Any]) -> None:
        self._source = source
        self._files = files
        self._num_bytes = 0

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read at most as many bytes as the buffer has; 0 at the end."""
        try:
            content = self._files[0].read(len(buffer))
        except _ARCHIVE_ERRORS as error:
            raise EOFError(error) from None  # what a damaged compressed file raises
        self._num_bytes += len(content)
        _check_size(self._source.path, self._num_bytes)
        buffer[: len(content)] = content
        return len(content)

    def close(self) -> None:
        """Close the files."""
        for file in self._files:
            file.close()
        super().close()


def list_files(sources: Sequence[Path]) -> list[SourceFile]:
    """Return the files of archives (zip, tar) and directories (without their subdirectories), and
    single files.

    Raises:
        DataError: a source does not exist, or is a pipe or a device.
        DownloadError: an archive is corrupted, truncated or unsafe.
    """
    files = []
    for source in sources:
        if source.is_dir():
            paths = sorted(path for path in source.iterdir() if path.is_file())
            files += [SourceFile(path) for path in paths]
        elif source.is_file():
            files += list_members(source) if is_archive(source) else [SourceFile(source)]
        elif source.exists():
            raise DataError(f"{source} is a pipe or a device", "write its content to a file first")
        else:
            check_exists(source)
    return files


def check_exists(source: Path) -> None:
    """Raise a DataError if there is no such archive or directory."""
    if not source.exists():
        raise DataError(
            f"no such file or directory: {source}",
            "specify the archive or directory of the corpus",
        )


def is_archive(path: Path) -> bool:
    """Return whether a file is an archive, by its name."""
    return bool(_ARCHIVE.search(path.name.lower()))


def list_members(archive: Path) -> list[SourceFile]:
    """Return the files in an archive.

    Raises:
        DownloadError: the archive is corrupted, truncated or unsafe.
    """
    with _corruption_as_error(archive):
        if _is_zip(archive):
            names = _list_zip(archive)
        else:
            names = [header.name for header, _ in _read_tar(archive)]
    if len(set(map(PurePosixPath, names))) < len(names):
        raise DownloadError(
            f"{archive.name} has two files of one name", "extract it, and specify the directory"
        )
    return [SourceFile(archive, name) for name in sorted(names)]


def extract(archive: Path, directory: Path) -> None:
    """Extract a zip archive into a new directory; the directory is deleted on failure.

    Raises:
        DownloadError: the archive is corrupted, truncated or unsafe.
        OSError: the disk is full.
    """
    try:
        for file in list_members(archive):
            path = directory / file.member
            path.parent.mkdir(parents=True, exist_ok=True)
            with _corruption_as_error(archive), zipfile.ZipFile(archive) as content:
                member = content.open(file.member)
                with named_errors(path), path.open("wb") as output:
                    shutil.copyfileobj(member, output, 1 << 20)
    except DownloadError:
        shutil.rmtree(directory, ignore_errors=True)
        raise


@contextlib.contextmanager
def _corruption_as_error(archive: Path) -> Iterator[None]:
    try:
        yield
    except _CORRUPTION_ERRORS as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise  # an error of the file system
        raise DownloadError(
            f"{archive.name} is corrupted or truncated: {error}", "download the archive again"
        ) from None


def _is_zip(archive: Path) -> bool:
    return archive.name.lower().endswith(".zip")


def _list_zip(archive: Path) -> list[str]:
    with zipfile.ZipFile(archive) as file:
        members = [member for member in file.infolist() if not member.is_dir()]
    for member in members:
        file_type = stat.S_IFMT(member.external_attr >> 16)
        _check_member(archive, member.filename, is_file=file_type in (0, stat.S_IFREG))
        if member.flag_bits & 1:
            raise DownloadError(
                f"{archive.name} is encrypted", "extract it, and specify the directory"
            )
    # Reading a member stops at its declared size and verifies its CRC.
    _check_size(archive, sum(member.file_size for member in members))
    return [member.filename for member in members]


class _Tar:
    """The content of a tar archive. Unlike that of a member, the size of a header is unknown before
    it is read."""

    def __init__(self, archive: Path) -> None:
        with archive.open("rb") as file:
            start = file.read(6)
        openers: dict[bytes, Any] = {
            b"\x1f\x8b": gzip.open,
            b"BZh": bz2.open,
            b"\xfd7zXZ\0": lzma.open,
        }
        opener = next(
            (opener for magic, opener in openers.items() if start.startswith(magic)), open
        )
        self._archive, self._content = archive, opener(archive, "rb")
        self.seek, self.tell, self.close = (
            self._content.seek,
            self._content.tell,
            self._content.close,
        )

    def read(self, size: int) -> bytes:
        """Read bytes, unless the archive would have expanded too much."""
        _check_size(self._archive, self.tell() + size)
        content: bytes = self._content.read(size)
        return content


def _read_tar(archive: Path) -> Iterator[tuple[tarfile.TarInfo, IO[bytes]]]:
    """Yield the header and the content of each file; the content can be read until the next one."""
    total = 0
    tar: Any = _Tar(archive)
    with contextlib.closing(tar), tarfile.open(fileobj=tar, mode="r:") as file:
        for member in file:
            _check_member(archive, member.name, is_file=member.isreg() or member.isdir())
            total += member.size
            _check_size(archive, total)
            if content := file.extractfile(member):
                yield member, content


def _check_member(archive: Path, name: str, *, is_file: bool) -> None:
    """Check that a member is a file or a directory inside the directory of the content."""
    if name.startswith(("/", "\\")) or ".." in re.split(r"[/\\]", name) or name[1:2] == ":":
        raise DownloadError(
            f"{archive.name} is unsafe: it would write outside its directory ({name})"
        )
    if not is_file:
        raise DownloadError(f"{archive.name} is unsafe: {name} is a link or a device")


def _check_size(archive: Path, extracted_bytes: int) -> None:
    compressed_bytes = max(archive.stat().st_size, 1)
    has_high_ratio = extracted_bytes > max(RATIO_CHECK_BYTES, MAX_RATIO * compressed_bytes)
    if extracted_bytes > MAX_BYTES or has_high_ratio:
        raise DownloadError(
            f"{archive.name} is unsafe: {compressed_bytes:,} bytes expand to {extracted_bytes:,}",
            "if you trust it, decompress it, and specify the directory",
        )
