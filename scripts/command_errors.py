"""Error messages of the scripts, in the form of those of nmt."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

from nmt.core.errors import NMTError


@contextmanager
def error_messages(output: Path | None = None) -> Iterator[None]:
    """End a script that writes `output` with a message instead of a traceback; silently if nothing
    reads its stdout."""
    try:
        yield
        sys.stdout.flush()
    except NMTError as error:
        _exit(error.exit_code, error.message + (error.hint and f"\n     hint: {error.hint}"))
    except BrokenPipeError:  # | head -1
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for the flush at exit
    except OSError as error:
        place = f"cannot write {output}" if output else error.filename
        reason = error.strerror or str(error)
        _exit(2, f"{place}: {reason}" if place else reason)


def _exit(code: int, message: str) -> NoReturn:
    print(f"{Path(sys.argv[0]).name}: error: {message}", file=sys.stderr)
    sys.exit(code)
