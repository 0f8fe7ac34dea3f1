"""Error messages of the scripts, in the form of those of nmt."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from nmt.errors import NMTError


@contextmanager
def error_messages(parser: argparse.ArgumentParser, output: Path | None = None) -> Iterator[None]:
    """End a script that writes `output` with a message instead of a traceback; silently if nothing reads its stdout."""
    try:
        yield
        sys.stdout.flush()
    except NMTError as error:
        hint = error.hint and f"     hint: {error.hint}\n"
        parser.exit(error.exit_code, f"{parser.prog}: error: {error.message}\n{hint}")
    except BrokenPipeError:  # | head -1
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for the flush at exit
    except OSError as error:
        place = f"cannot write {output}" if output else error.filename or "cannot write the output"
        parser.exit(2, f"{parser.prog}: error: {place}: {error.strerror}\n")
