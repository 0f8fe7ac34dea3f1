"""The compiled library of `engine.c`: that of the wheel for this processor, or one that is compiled
on first use and kept in the cache directory.

A damaged library ends the process, and a library of another user is that user's program. So a
library of the cache is loaded only if nobody else could have written it and if it has the hash in
its name. Otherwise it is compiled again.
"""

from __future__ import annotations

import functools
import hashlib
import os
import platform
import re
import shlex
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

from nmt.core import paths
from nmt.core.console import log
from nmt.core.version import __version__
from nmt.engines import engine_builds

SOURCE = Path(__file__).with_name("engine.c")
FLAGS = f"{engine_builds.FLAGS} -march=native"
COMPILE_SECONDS = 60
MAX_LIBRARIES = 8
"""Number of libraries to keep. Processors, compilers and versions of nmt may share a cache."""


def find_library() -> Path:
    """Return the path of the library for this processor; compile it if necessary.

    Raises:
        ValueError: CC is malformed.
        OSError, RuntimeError, SubprocessError: see `compiler_command` and `find_or_compile`.
    """
    return find_prebuilt() or find_or_compile(compiler_command())


def find_prebuilt() -> Path | None:
    """Return the fastest library of the wheel that this processor runs; None if there is none, or
    if `CC` asks for a compiler."""
    if os.environ.get("CC"):
        return None
    available = set(cpu_flags().split())
    for build in engine_builds.BUILDS.get(platform.machine(), ()):
        path = SOURCE.with_name(build.filename)
        if available.issuperset(build.cpu_flags.split()) and path.exists():
            return path
    return None


def library_version() -> str:
    """Return what identifies the library, without compiling it."""
    prebuilt = find_prebuilt()
    return f"{__version__} {prebuilt.stem}" if prebuilt else engine_id(*compiler_command())


def compiler_command() -> list[str]:
    """Return the command of the compiler: `$CC`, which may start with a wrapper such as ccache,
    around nmt's options.

    Raises:
        FileNotFoundError: there is no such compiler.
        ValueError: CC is malformed.
    """
    words = shlex.split(os.environ.get("CC", "")) or ["cc"]
    program = shutil.which(words[0])
    if program is None:
        raise FileNotFoundError(f"C compiler '{words[0]}' not found")
    num_programs = next((i for i, word in enumerate(words) if word.startswith("-")), len(words))
    return [program, *words[1:num_programs], *FLAGS.split(), *words[num_programs:]]


@functools.cache
def engine_id(*command: str) -> str:
    """Return a hash of the engine's source code, the compiler command and the processor."""
    compiler = os.stat(command[0]).st_mtime_ns  # another version has another time
    identity = (
        SOURCE.read_text(encoding="utf-8"),
        command,
        compiler,
        platform.platform(),
        cpu_flags(),
    )
    return hashlib.sha256(repr(identity).encode()).hexdigest()[:16]


def cpu_flags() -> str:
    """Return the instruction sets of the processor, as named by Linux; empty on other systems."""
    try:
        with open("/proc/cpuinfo", encoding="ascii", errors="ignore") as file:
            return next((line for line in file if line.startswith(("flags", "Features"))), "")
    except OSError:
        return ""


def find_or_compile(command: Sequence[str]) -> Path:
    """Return the path of the library; compile it unless it is in the cache.

    If the cache directory is read-only, or others may write to it, the library is kept in the
    directory of temporary files.

    Raises:
        OSError: neither directory can be used.
        RuntimeError: there is no home directory.
        SubprocessError: the compiler failed.
    """
    cache = paths.cache_dir() / "engine"
    try:
        return _find_or_compile(cache, command)
    except OSError as error:
        reason = error.strerror or str(error)
    user = os.getuid() if sys.platform != "win32" else 0
    private = Path(tempfile.gettempdir(), f"nmt-engine-{user}")
    path = _find_or_compile(private, command)
    log(f"the native engine is not kept in {cache} ({reason}), but in {private}")
    return path


def _find_or_compile(directory: Path, command: Sequence[str]) -> Path:
    """Return the path of the library in this directory.

    Concurrent processes wait for the first one, because all compilations together may exceed the
    time limit.
    """
    directory.mkdir(mode=0o755, parents=True, exist_ok=True)
    _check_owner(directory)
    prefix = f"engine-{engine_id(*command)}"
    path = _find(directory, prefix)
    if path:
        return path
    with ExitStack() as stack:
        with suppress(OSError, RuntimeError):  # a file system without locks
            waiting = functools.partial(
                log, "another process compiles the native engine; waiting for it"
            )
            stack.enter_context(paths.locked(directory / "lock", waiting))
        path = _find(directory, prefix)
        if path is None:
            path = _compile(directory, prefix, command)
            _remove_old(directory)
    return path


def _check_owner(path: Path) -> None:
    """Raise a PermissionError if users other than this one and root may write to a file or
    directory."""
    if sys.platform == "win32":
        return
    info = path.lstat()
    if info.st_uid not in (0, os.geteuid()):
        raise PermissionError("it belongs to another user")
    if info.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise PermissionError("others may write to it")
    if not stat.S_ISREG(info.st_mode) and not stat.S_ISDIR(info.st_mode):
        raise PermissionError("it is neither a file nor a directory")


def _find(directory: Path, prefix: str) -> Path | None:
    """Return a library that is undamaged, or None."""
    for path in directory.glob(f"{prefix}-*.so"):
        with suppress(OSError):
            _check_owner(path)
            if path.stem == f"{prefix}-{paths.sha256(path)}":
                return path
    return None


def _compile(directory: Path, prefix: str, command: Sequence[str]) -> Path:
    with tempfile.TemporaryDirectory(prefix=".engine-", dir=directory) as work:
        library = Path(work, "engine.so")
        subprocess.run(
            [*command, str(SOURCE), "-o", str(library), "-lm"],
            check=True,
            timeout=COMPILE_SECONDS,
            stdin=subprocess.DEVNULL,
            capture_output=True,
        )
        if not library.exists():
            raise subprocess.SubprocessError("the compiler wrote no file")
        library.chmod(0o755)  # other users may read the cache of root
        paths.sync(library)
        path = directory / f"{prefix}-{paths.sha256(library)}.so"
        library.replace(path)  # atomic, because the process may be killed
    return path


def failure_reason(error: subprocess.SubprocessError) -> str:
    """Say why the compiler failed, if possible in its own words."""
    if isinstance(error, subprocess.TimeoutExpired):
        return f"the C compiler took more than {COMPILE_SECONDS} seconds"
    if not isinstance(error, subprocess.CalledProcessError):
        return str(error)
    output = (error.stderr or b"").decode(errors="replace")
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if re.search("error|cannot", line.lower())]
    reason = next(iter([*errors, *lines]), f"exit code {error.returncode}")
    return f"the C compiler failed: {reason}"


def _remove_old(directory: Path) -> None:
    """Remove all but the latest libraries, and what killed compilations left."""
    with suppress(OSError):
        libraries = sorted(directory.glob("engine-*.so"), key=lambda path: path.stat().st_mtime_ns)
        for path in libraries[:-MAX_LIBRARIES]:
            path.unlink(missing_ok=True)
        for work in directory.glob(".engine-*"):
            if time.time() - work.stat().st_mtime > 2 * COMPILE_SECONDS:
                shutil.rmtree(work, ignore_errors=True)
