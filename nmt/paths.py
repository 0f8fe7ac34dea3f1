"""Where things lie, and how a folder comes into being whole or not at all."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from nmt.errors import UsageError


def data_dir() -> Path:
    """Return the folder of corpora and prepared stores: `$NMT_DATA`, else `data` here."""
    return Path(os.environ.get("NMT_DATA") or "data")


def runs_dir() -> Path:
    """Return the folder of training runs: `$NMT_RUNS`, else `runs` here."""
    return Path(os.environ.get("NMT_RUNS") or "runs")


def cache_dir() -> Path:
    """Return the folder of what can be made again at any time: `$XDG_CACHE_HOME/nmt`, else `~/.cache/nmt`."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "nmt"


@contextlib.contextmanager
def new_directory(path: Path) -> Iterator[Path]:
    """Yield an empty folder beside `path` that is renamed to it at the end, or removed if anything fails.

    An interrupted writer therefore never leaves a half-made folder under the final name. A folder that
    already stands at `path` is replaced.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
    try:
        yield work
        _publish(work, path)
    finally:
        shutil.rmtree(work, ignore_errors=True)


@contextlib.contextmanager
def resumable_directory(path: Path) -> Iterator[Path]:
    """Yield a folder beside `path` that is renamed to it at the end; an interruption leaves it to go on with.

    It is to be used under the lock of `path`. An error in what is made removes it, a full disk or a kill does not.
    """
    work = path.with_name(f".{path.name}-part")
    work.mkdir(parents=True, exist_ok=True)
    try:
        yield work
    except OSError:
        raise
    except Exception:
        shutil.rmtree(work, ignore_errors=True)
        raise
    _publish(work, path)


def _publish(work: Path, path: Path) -> None:
    """Give a folder its final name, readable like other files here, when all of it is on the disk."""
    umask = os.umask(0)  # it can only be read by setting it
    os.umask(umask)
    work.chmod(0o777 & ~umask)  # mkdtemp makes it private, and safetensors its files
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
def locked(file: Path, busy: Callable[[], object]) -> Iterator[None]:
    """Hold a lock file against other processes; the operating system releases the lock of a process that dies.

    Args:
        file: the lock file; created if missing.
        busy: called if another process holds the lock; unless it raises, the lock is waited for.
    """
    from filelock import FileLock, Timeout  # imported here because it takes 60 ms

    file.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(file)
    try:
        lock.acquire(blocking=False)
    except Timeout:
        busy()
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def write_text(path: Path, text: str) -> None:
    """Write a text file whole or not at all."""
    write_bytes(path, text.encode("utf-8"))


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file whole or not at all: beside it first, then renamed into place; a device is written to as it is."""
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


def check_not_overwriting(outputs: Iterable[Path], inputs: Iterable[Path]) -> None:
    """Refuse to write to what is read; links to one file are the same file.

    Raises:
        UsageError: an output is an input.
    """
    stand = [path for path in inputs if path.exists()]
    for output in outputs:
        if output.is_file() and any(output.samefile(path) for path in stand):
            raise UsageError(f"{output} would be overwritten, and it is read", "name another file")


def sha256(path: Path) -> str:
    """Return a file's SHA-256 in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sync(path: Path) -> None:
    """Flush a file or folder to the disk, so that a power cut after the rename cannot empty it."""
    windows = sys.platform == "win32"  # flushes only what is open for writing, which a folder cannot be
    if windows and path.is_dir():
        return
    descriptor = os.open(path, os.O_RDWR if windows else os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
