"""Default directories, and atomic writes of files and directories."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from nmt.errors import NMTError, UsageError

_DESCRIPTOR = re.compile(r"/(?:dev|proc/self)/fd/(\d{1,9})|/dev/(stdout|stderr)")


def data_dir() -> Path:
    """Return the directory of corpora and prepared data: `$NMT_DATA`, by default `data`."""
    return Path(os.environ.get("NMT_DATA") or "data")


def runs_dir() -> Path:
    """Return the directory of training runs: `$NMT_RUNS`, by default `runs`."""
    return Path(os.environ.get("NMT_RUNS") or "runs")


def cache_dir() -> Path:
    """Return the cache directory: `$XDG_CACHE_HOME/nmt`, by default `~/.cache/nmt`. It may be deleted at any time."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "nmt"


@contextlib.contextmanager
def new_directory(path: Path, *, replace: bool = True) -> Iterator[Path]:
    """Yield an empty temporary directory that is renamed to `path` on success and removed on failure.

    An interrupted write never leaves an incomplete directory at `path`. An existing directory is replaced; if not
    `replace`, one that was created in the meantime raises a UsageError.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
    try:
        yield work
        if path.exists() and not replace:
            raise UsageError(f"{path} already exists", "choose another directory, or delete it")
        _publish(work, path)
    finally:
        shutil.rmtree(work, ignore_errors=True)


@contextlib.contextmanager
def resumable_directory(path: Path) -> Iterator[Path]:
    """Yield a temporary directory that is renamed to `path` on success; after an interruption it is reused.

    The caller must hold the lock of `path`. The directory is kept after an OSError (such as a full disk) or a kill
    and removed after any other exception. Its hidden files are temporary ones of a killed process and deleted.
    """
    work = path.with_name(f".{path.name}-part")
    work.mkdir(parents=True, exist_ok=True)
    for file in work.glob(".*"):
        if file.is_file():
            file.unlink()
    try:
        yield work
    except OSError:
        raise
    except Exception:
        shutil.rmtree(work, ignore_errors=True)
        raise
    _publish(work, path)


def _publish(work: Path, path: Path) -> None:
    """Flush a directory to disk, set default permissions and rename it to `path`."""
    umask = os.umask(0)  # reading the umask requires setting it
    os.umask(umask)
    work.chmod(0o777 & ~umask)  # mkdtemp and safetensors create private files
    for file in work.rglob("*"):
        file.chmod((0o777 if file.is_dir() else 0o666) & ~umask)
        sync(file)
    if path.exists():
        old = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
        os.replace(path, old / path.name)
        os.replace(work, path)
        shutil.rmtree(old)
    else:
        os.replace(work, path)
    sync(path.parent)


@contextlib.contextmanager
def locked(file: Path, busy: NMTError | Callable[[], object]) -> Iterator[None]:
    """Hold a lock file. The operating system releases the lock if the process dies.

    Args:
        file: the lock file; created if missing.
        busy: an error to raise if another process holds the lock, or a function to call before waiting for it.
    """
    from filelock import FileLock, Timeout  # the import takes 60 ms

    file.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(file)
    try:
        lock.acquire(blocking=False)
    except Timeout:
        if isinstance(busy, NMTError):
            raise busy from None
        busy()
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def make_directory(path: Path, hint: str) -> None:
    """Create a directory unless it exists.

    Raises:
        UsageError: it cannot be created, or its name is not UTF-8, which other libraries do not support.
    """
    try:
        str(path).encode()
    except UnicodeEncodeError:
        raise UsageError(f"the name {str(path)!r} is not UTF-8", hint) from None
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = "it is a file" if path.is_file() else error.strerror
        raise UsageError(f"cannot create {path}: {reason}", hint) from None


def read_json(path: Path) -> dict[str, Any]:
    """Return the object in a JSON file, or an empty one if the file is missing or damaged."""
    with contextlib.suppress(OSError, ValueError, RecursionError):
        content = json.loads(path.read_text(encoding="utf-8"))
        return content if isinstance(content, dict) else {}
    return {}


def read_jsonl(path: Path) -> list[dict[str, Any]]:
    """Return the objects in the lines of a file, except damaged ones, or none if the file is missing."""
    entries = []
    with contextlib.suppress(OSError):
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
            with contextlib.suppress(ValueError):  # truncated by a kill
                entry = json.loads(line)
                if isinstance(entry, dict):
                    entries.append(entry)
    return entries


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically."""
    write_bytes(path, text.encode("utf-8", "replace"))  # a command line may contain invalid UTF-8


def descriptor(path: Path) -> int | None:
    """Return the file descriptor that a path names, such as 1 for /dev/stdout and `-`; None for all other paths.

    Opening the path would truncate the file that the descriptor is redirected to.
    """
    if path == Path("-"):
        return 1
    match = _DESCRIPTOR.fullmatch(path.as_posix())
    return int(match[1] or ("stdout", "stderr").index(match[2]) + 1) if match else None


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file atomically: write a temporary file and rename it. A device, such as /dev/stdout, is written to."""
    if (number := descriptor(path)) is not None:
        with os.fdopen(os.dup(number), "wb") as file:
            file.write(content)
        return
    if path.exists() and not path.is_file():
        path.write_bytes(content)
        return
    work = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        work.write_bytes(content)
        sync(work)
        os.replace(work, path)
    finally:
        work.unlink(missing_ok=True)


def check_not_overwriting(outputs: Iterable[Path | None], inputs: Iterable[Path | None]) -> None:
    """Check that no output file is also an input file, following links. None is no file.

    Raises:
        UsageError: an output is an input, or has no name.
    """

    def identity(path: Path) -> tuple[int, int]:
        info = path.stat()
        return info.st_dev, info.st_ino  # what samefile compares

    existing = {identity(path) for path in inputs if path and path.exists()}
    for output in filter(None, outputs):
        if not output.name:
            raise UsageError(f"{output} names no file", "choose a name such as report.html")
        if output.is_file() and identity(output) in existing:
            raise UsageError(f"{output} would be overwritten: it is also an input", "choose another output file")


def sha256(path: Path) -> str:
    """Return the SHA-256 checksum of a file in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sync(path: Path) -> None:
    """Flush a file or directory to disk, so that it survives a power failure after a rename."""
    windows = sys.platform == "win32"  # it can flush only files that are open for writing, and no directories
    if windows and path.is_dir():
        return
    descriptor = os.open(path, os.O_RDWR if windows else os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
