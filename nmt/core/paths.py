"""Default directories, and atomic writes of files and directories."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, Any

from nmt.core.errors import DISK_FULL, NMTError, UsageError

TEMPORARY = ".nmt-"
"""Prefix of temporary directories, in which files and directories are written before they are
renamed."""
LOCK, NEW, OLD = "lock", "new", "old"
"""Files of a temporary directory: a file that its process locks, what it writes, and what that
replaces."""
REPOSITORY = re.compile(r"[\w.-]+/[\w.-]+")
"""Name of a repository on the Hugging Face Hub."""
FIREFOX = "firefox:"
"""Start of the name of a model in Mozilla's registry."""
_DESCRIPTOR = re.compile(r"/(?:dev|proc/self)/fd/(\d{1,9})|/dev/(stdout|stderr)")


def data_dir() -> Path:
    """Return the directory of corpora and prepared data: `$NMT_DATA`, by default `data`."""
    return Path(os.environ.get("NMT_DATA") or "data")


def runs_dir() -> Path:
    """Return the directory of training runs: `$NMT_RUNS`, by default `runs`."""
    return Path(os.environ.get("NMT_RUNS") or "runs")


def cache_dir() -> Path:
    """Return the cache directory: `$XDG_CACHE_HOME/nmt`, by default `~/.cache/nmt`. It may be
    deleted at any time."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "nmt"


@contextlib.contextmanager
def new_directory(path: Path, *, replace: bool = True) -> Iterator[Path]:
    """Yield an empty temporary directory that is renamed to `path` on success and removed on
    failure.

    An interrupted write never leaves an incomplete directory at `path`. An existing directory is
    replaced; if not `replace`, one that was created in the meantime raises a UsageError.
    """
    make_parent(path)
    with named_errors(path), _temporary_directory(path.parent) as temporary:
        work = temporary / NEW / path.name
        work.mkdir()
        yield work
        if path.exists() and not replace:
            raise UsageError(f"{path} already exists", "choose another directory, or delete it")
        _flush(work)
        _replace_directory(path, temporary)
        sync(path.parent)


@contextlib.contextmanager
def resumable_directory(path: Path, *, keep: bool = False) -> Iterator[Path]:
    """Yield a temporary directory that is renamed to `path` on success; after an interruption it is
    reused.

    The caller must hold the lock of `path`, and a directory at `path` must be incomplete: it is
    deleted. The temporary directory is kept after an OSError (such as a full disk) or a kill and
    removed after any other exception, unless `keep` is set, because others write to it, too.
    """
    work = path.with_name(f".{path.name}-part")
    work.mkdir(parents=True, exist_ok=True)
    clean_up(work)
    try:
        with named_errors(path):
            yield work
    except OSError:
        raise
    except Exception:
        if not keep:
            shutil.rmtree(work, ignore_errors=True)
        raise
    _flush(work)
    shutil.rmtree(path, ignore_errors=True)
    os.replace(work, path)
    sync(path.parent)


@contextlib.contextmanager
def new_file(path: Path) -> Iterator[Path]:
    """Yield the path of a temporary file, to be written, that is renamed to `path` on success and
    removed on failure.

    An interrupted write leaves `path` as it was.
    """
    with named_errors(path), _temporary_directory(path.parent) as temporary:
        work = temporary / NEW / path.name
        yield work
        sync(work)
        os.replace(work, path)


@contextlib.contextmanager
def _temporary_directory(parent: Path) -> Iterator[Path]:
    """Yield a new directory in `parent` with an empty subdirectory `NEW`; delete it at the end.

    If this process is killed, the next one that writes to `parent` deletes it; see `clean_up`.
    """
    clean_up(parent)
    directory, lock = _make_locked(parent)
    try:
        with lock:
            (directory / NEW).mkdir()
            yield directory
    finally:  # after closing the lock file, as Windows requires
        _delete_temporary(directory)


def _make_locked(parent: Path) -> tuple[Path, IO[bytes]]:
    """Make a temporary directory, and return it and its lock file, which this process has
    locked."""
    while True:
        directory = Path(tempfile.mkdtemp(prefix=TEMPORARY, dir=parent))
        try:
            lock = (directory / LOCK).open("wb")
        except FileNotFoundError:  # another process has deleted the directory before it was locked
            continue
        _lock(lock, wait=True)
        if (directory / LOCK).exists():
            return directory, lock
        lock.close()  # deleted while this process waited for the lock


def _lock(file: IO[bytes], *, wait: bool) -> bool:
    """Lock an open file until it is closed or this process ends. Return whether this process has
    the lock.

    Windows, and some file systems, have no such locks. Temporary directories are then never taken
    for left-over ones.
    """
    try:
        import fcntl
    except ImportError:  # Windows
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def lock_output(file: IO[Any]) -> bool:
    """Lock an open output file until it is closed or this process ends. Return False if another
    process has locked it.

    Where there are no locks, as on Windows and some file systems, return True.
    """
    try:
        import fcntl
    except ImportError:  # Windows
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        return True
    return True


def clean_up(directory: Path) -> None:
    """Delete the temporary directories of killed processes in a directory.

    If such a process was replacing a directory, the old one is put back to its place.
    """
    for temporary in directory.glob(f"{TEMPORARY}*"):
        with contextlib.suppress(OSError):
            # Its process was killed, or has not yet locked it and will make another one
            temporary.rmdir()
        with contextlib.suppress(OSError), (temporary / LOCK).open("r+b") as lock:
            if _lock(lock, wait=False):  # its process does not live any more
                _delete_temporary(temporary)


def _delete_temporary(directory: Path) -> None:
    """Delete a temporary directory. If `_replace_directory` was interrupted, put the old directory
    back first."""
    for old in directory.glob(f"{OLD}/*"):
        place = directory.parent / old.name
        is_replaced = not (directory / NEW / old.name).exists()
        if not is_replaced and not place.exists():
            with contextlib.suppress(FileNotFoundError):  # another process has done it
                os.replace(old, place)
    # The lock file is deleted last, so that an interrupted deletion can be completed.
    for each in (directory / NEW, directory / OLD, directory):
        shutil.rmtree(each, ignore_errors=True)


def _replace_directory(path: Path, temporary: Path) -> None:
    """Rename the new directory in a temporary one to `path`. An existing directory is moved to the
    temporary one."""
    work = temporary / NEW / path.name
    if not path.exists():
        os.replace(work, path)
    elif not exchange(work, path):
        # `_delete_temporary` puts the old one back if this process is killed between the two calls.
        (temporary / OLD).mkdir()
        os.replace(path, temporary / OLD / path.name)
        os.replace(work, path)


def exchange(first: Path, second: Path) -> bool:
    """Exchange two directories in one system call. Return False if the system or the file system
    cannot."""
    import ctypes

    library: Any = ctypes.CDLL(None) if os.name == "posix" else None
    names = os.fsencode(first), os.fsencode(second)
    if sys.platform == "linux" and hasattr(library, "renameat2"):
        current_directory = -100  # AT_FDCWD
        exchange = 2  # RENAME_EXCHANGE
        status = library.renameat2(
            current_directory, names[0], current_directory, names[1], exchange
        )
    elif sys.platform == "darwin" and hasattr(library, "renamex_np"):
        swap = 2  # RENAME_SWAP
        status = library.renamex_np(*names, swap)
    else:
        return False
    return bool(status == 0)


def _flush(directory: Path) -> None:
    """Set default permissions in a directory and flush it to disk."""
    umask = os.umask(0)  # reading the umask requires setting it
    os.umask(umask)
    directory.chmod(0o777 & ~umask)  # safetensors creates private files
    for file in directory.rglob("*"):
        file.chmod((0o777 if file.is_dir() else 0o666) & ~umask)
        sync(file)


@contextlib.contextmanager
def named_errors(path: Path) -> Iterator[None]:
    """Name `path` in an error of the file system that names a temporary file, or, if the disk is
    full, no file."""
    try:
        yield
    except OSError as error:
        is_temporary = TEMPORARY in str(error.filename or "")
        is_unnamed = error.filename is None and error.errno in DISK_FULL
        if is_temporary or is_unnamed:
            error.filename = str(path)
            error.filename2 = None
        raise


def append_line(path: Path, line: str) -> None:
    """Append a line to a text file."""
    with named_errors(path), path.open("a", encoding="utf-8") as file:
        file.write(line + "\n")


@contextlib.contextmanager
def locked(file: Path, busy: NMTError | Callable[[], object]) -> Iterator[None]:
    """Hold a lock file. The operating system releases the lock if the process dies.

    Args:
        file: the lock file; created if missing.
        busy: an error to raise if another process holds the lock, or a function to call before
            waiting for it.
    """
    import portalocker  # takes 40 ms
    from portalocker import LockFlags

    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a") as opened:  # closing it releases the lock
        try:
            portalocker.lock(opened, LockFlags.EXCLUSIVE | LockFlags.NON_BLOCKING)
        except portalocker.AlreadyLocked:
            if isinstance(busy, NMTError):
                raise busy from None
            busy()
            portalocker.lock(opened, LockFlags.EXCLUSIVE)
        yield


def make_directory(path: Path, hint: str) -> None:
    """Create a directory unless it exists.

    Raises:
        UsageError: it cannot be created, or its name is not UTF-8, which other libraries do not
            support.
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


def make_parent(path: Path) -> None:
    """Create the directory of an output unless it exists.

    Raises:
        OSError: it cannot be created.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        reason = os.strerror(errno.ENOTDIR)
        raise NotADirectoryError(errno.ENOTDIR, reason, str(path)) from None


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically."""
    write_bytes(path, text.encode("utf-8", "replace"))  # a command line may contain invalid UTF-8


def write_json(path: Path, content: Any) -> None:
    """Write a JSON file atomically."""
    write_text(path, json.dumps(content, indent=2, ensure_ascii=False) + "\n")


def descriptor(path: Path) -> int | None:
    """Return the file descriptor that a path names, such as 1 for /dev/stdout and `-`; None for all
    other paths.

    Opening the path would truncate the file that the descriptor is redirected to.
    """
    if path == Path("-"):
        return 1
    match = _DESCRIPTOR.fullmatch(path.as_posix())
    return int(match[1] or ("stdout", "stderr").index(match[2]) + 1) if match else None


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file atomically: write a temporary file and rename it. A device, such as /dev/stdout,
    is written to."""
    number = descriptor(path)
    if number is not None:
        with named_errors(path), os.fdopen(os.dup(number), "wb") as file:
            file.write(content)
        return
    if path.exists() and not path.is_file():
        with named_errors(path):
            path.write_bytes(content)
        return
    with new_file(path) as work:
        work.write_bytes(content)


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
            raise UsageError(
                f"{output} would be overwritten: it is also an input", "choose another output file"
            )


def sha256(path: Path) -> str:
    """Return the SHA-256 checksum of a file in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sync(path: Path) -> None:
    """Flush a file or directory to disk, so that it survives a power failure after a rename."""
    # It can flush only files that are open for writing, and no directories.
    windows = sys.platform == "win32"
    if windows and path.is_dir():
        return
    descriptor = os.open(path, os.O_RDWR if windows else os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
