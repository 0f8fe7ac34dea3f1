"""Safe extraction of zip and tar archives from untrusted sources."""

from __future__ import annotations

import bz2
import contextlib
import gzip
import lzma
import re
import shutil
import stat
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import IO, Any

from nmt.core.errors import DataError, DownloadError
from nmt.core.paths import named_errors
from nmt.data.pairs import COMPRESSED, read_blocks

MAX_BYTES = 100 << 30
"""Maximum extracted size of an archive."""
MAX_RATIO = 100
"""Maximum ratio of extracted to compressed size; text has a ratio of 3 to 10, a zip bomb a much
higher one."""
RATIO_CHECK_BYTES = 10 << 20
"""Extracted size above which the ratio is checked."""

_CORRUPTION_ERRORS = (
    zipfile.BadZipFile,
    tarfile.TarError,
    zlib.error,
    lzma.LZMAError,
    EOFError,
    RuntimeError,
    ValueError,
    OSError,
)
_ARCHIVE = re.compile(r"\.(zip|tar|tgz|tbz2?|txz|tar\.(gz|bz2|xz))$")


@contextlib.contextmanager
def extracted_files(sources: Sequence[Path], scratch_parent: Path) -> Iterator[list[Path]]:
    """Yield the files of archives (zip, tar) and directories (without their subdirectories), and
    single files.

    Archives are extracted into a temporary directory in `scratch_parent`.

    Raises:
        DataError: a source does not exist, or is a pipe or a device.
        DownloadError: an archive is corrupted, truncated or unsafe.
    """
    scratch_parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".unpack.", dir=scratch_parent) as scratch:
        files = []
        for i, source in enumerate(sources):
            if source.is_dir():
                files += sorted(path for path in source.iterdir() if path.is_file())
            elif not source.is_file():
                if source.exists():
                    raise DataError(
                        f"{source} is a pipe or a device", "write its content to a file first"
                    )
                raise DataError(
                    f"no such file or directory: {source}",
                    "specify the archive or directory of the corpus",
                )
            elif _ARCHIVE.search(source.name.lower()):
                directory = Path(scratch) / str(i)
                extract(source, directory)
                files += sorted(path for path in directory.rglob("*") if path.is_file())
            else:
                files.append(source)
        yield files


def extract(archive: Path, directory: Path) -> None:
    """Extract a zip or tar archive into a new directory; the directory is deleted on failure.

    Args:
        archive: the archive.
        directory: the new directory.

    Raises:
        DownloadError: the archive is corrupted, truncated or unsafe.
        OSError: the disk is full.
    """
    try:
        if archive.name.lower().endswith(".zip"):
            _read_zip(archive, directory)
        else:
            _read_tar(archive, directory)
    except DownloadError:
        shutil.rmtree(directory, ignore_errors=True)
        raise
    except _CORRUPTION_ERRORS as error:
        shutil.rmtree(directory, ignore_errors=True)
        if isinstance(error, OSError) and error.errno is not None:
            raise  # an error of the file system
        raise DownloadError(
            f"{archive.name} is corrupted or truncated: {error}", "download the archive again"
        ) from None


def _read_zip(archive: Path, directory: Path) -> None:
    with zipfile.ZipFile(archive) as file:
        members = [member for member in file.infolist() if not member.is_dir()]
        if len({PurePosixPath(member.filename) for member in members}) < len(members):
            raise DownloadError(
                f"{archive.name} has two files of one name", "extract it, and specify the directory"
            )
        for member in members:
            file_type = stat.S_IFMT(member.external_attr >> 16)
            _check_member(archive, member.filename, is_file=file_type in (0, stat.S_IFREG))
            if member.flag_bits & 1:
                raise DownloadError(
                    f"{archive.name} is encrypted", "extract it, and specify the directory"
                )
        _check_size(archive, sum(member.file_size for member in members))
        for member in members:  # reading stops at the declared size and verifies the CRC
            with file.open(member) as content:
                _save(content, directory / member.filename)


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


def _read_tar(archive: Path, directory: Path) -> None:
    total = 0
    tar: Any = _Tar(archive)
    with contextlib.closing(tar), tarfile.open(fileobj=tar, mode="r:") as file:
        for member in file:
            _check_member(archive, member.name, is_file=member.isreg() or member.isdir())
            if member.isdir():
                continue
            total += member.size
            _check_size(archive, total)
            if extracted := file.extractfile(member):
                _save(extracted, directory / member.name)


def _save(content: IO[bytes], path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with named_errors(path), path.open("wb") as file:
        shutil.copyfileobj(content, file, 1 << 20)


def _check_member(archive: Path, name: str, *, is_file: bool) -> None:
    """Check that a member is a file or a directory inside the directory of the content."""
    if name.startswith(("/", "\\")) or ".." in re.split(r"[/\\]", name) or name[1:2] == ":":
        raise DownloadError(
            f"{archive.name} is unsafe: it would write outside its directory ({name})"
        )
    if not is_file:
        raise DownloadError(f"{archive.name} is unsafe: {name} is a link or a device")


def check_expansion(path: Path) -> None:
    """Read a file, and check that it does not expand too much if it is compressed.

    Raises:
        DataError: the file is corrupted.
        DownloadError: the file expands too much.
    """
    size = 0
    for block in read_blocks(path) if path.suffix in COMPRESSED else ():
        size += len(block)
        _check_size(path, size)


def _check_size(archive: Path, extracted_bytes: int) -> None:
    compressed_bytes = max(archive.stat().st_size, 1)
    has_high_ratio = extracted_bytes > max(RATIO_CHECK_BYTES, MAX_RATIO * compressed_bytes)
    if extracted_bytes > MAX_BYTES or has_high_ratio:
        raise DownloadError(
            f"{archive.name} is unsafe: {compressed_bytes:,} bytes expand to {extracted_bytes:,}",
            "if you trust it, decompress it, and specify the directory",
        )
