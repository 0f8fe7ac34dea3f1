"""What `nmt translate` writes, and where: a form for each line's translations, and files that survive a stop."""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import typer

from nmt.errors import NMTError, UsageError, suggest

if TYPE_CHECKING:
    from nmt.inference.translator import Translation

Write = Callable[[str], object]
FORMATS = ("text", "jsonl")


def check_format(name: str) -> None:
    """Raise a UsageError unless `name` is a format."""
    if name not in FORMATS:
        raise UsageError(f"unknown format '{name}'", suggest(name, FORMATS))


class Form(Protocol):
    """Turns a line's translations into lines of output."""

    @property
    def each(self) -> int:
        """Lines of output for each line of input."""

    def wrote(self, line: str) -> bool:
        """Say whether a line of a file may have come from here."""

    def __call__(self, source: str, translations: Sequence[Translation]) -> list[str]:
        """Return those lines."""


@dataclass(frozen=True)
class Text:
    """The translations themselves, best first; empty lines where there are fewer than `each`."""

    each: int
    scores: bool = False
    """Put the score and a tab before each."""

    def wrote(self, line: str) -> bool:
        """Say whether a line of a file may have come from here."""
        return not Record().wrote(line) and (not self.scores or bool(re.match(r"(-?[\d.]+\t|$)", line)))

    def __call__(self, source: str, translations: Sequence[Translation]) -> list[str]:
        """Return a line for each translation."""
        lines = [f"{t.score:.4f}\t{t.text}" if self.scores else t.text for t in translations[: self.each]]
        return lines + [""] * (self.each - len(lines))


@dataclass(frozen=True)
class Record:
    """JSON with all that is known of the translations, a line of it for each line of input."""

    each: int = 1

    def wrote(self, line: str) -> bool:
        """Say whether a line of a file may have come from here."""
        return line.startswith('{"source": ')

    def __call__(self, source: str, translations: Sequence[Translation]) -> list[str]:
        """Return the record."""
        return [json.dumps({"source": source, "translations": [asdict(t) for t in translations]}, ensure_ascii=False)]


def count_records(path: Path, form: Form) -> int:
    """Cut what is incomplete off the end of an output file, and return how many lines of input it holds.

    Args:
        path: the file; it need not be there.
        form: what wrote it.

    Raises:
        UsageError: something else wrote it.
    """
    if not path.is_file():
        return 0
    with path.open(encoding="utf-8", errors="replace") as text:
        first = text.readline()
    if first.endswith("\n") and not form.wrote(first.rstrip("\n")):
        raise UsageError(f"{path} was written in another form", "--resume takes the options it was begun with")
    lines = position = complete = 0
    with path.open("r+b") as file:
        for line in file:
            position += len(line)
            lines += line.endswith(b"\n")
            if line.endswith(b"\n") and lines % form.each == 0:
                complete = position
        file.truncate(complete)
    return lines // form.each


@contextlib.contextmanager
def open_output(path: Path | None, *, append: bool = False) -> Iterator[Write]:
    """Yield a function that writes a line; a file that stands there is kept until the first line comes, or for good.

    Raises:
        UsageError: the file cannot be opened.
        NMTError: it cannot be written to any more.
    """
    if path is None:
        yield typer.echo
        return
    stood = path.exists()
    try:
        file = open(path, "a", encoding="utf-8", newline="\n")  # noqa: SIM115
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}", "name another file") from None
    started = append

    def write(line: str) -> None:
        nonlocal started
        if not started and path.is_file():  # not a device or a pipe
            file.truncate(0)
        started = True
        file.write(line + "\n")

    ended = False
    try:
        with file:
            yield write
            if not started and path.is_file():  # nothing to write is a result too
                file.truncate(0)
            ended = True
    except OSError as error:
        raise NMTError(f"cannot write {path}: {error.strerror}", "it holds what was written so far") from None
    finally:
        if not (started or ended or stood):
            path.unlink(missing_ok=True)


def show(text: str) -> None:
    """Print results; a reader that has gone (`| head -1`) is no reason to lose the command's exit code."""
    try:
        typer.echo(text)
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def write_file(path: Path, text: str) -> None:
    """Write a report whole or not at all, its folder with it.

    Raises:
        NMTError: it cannot be written.
    """
    from nmt.paths import write_text

    if not path.name:
        raise UsageError("a report needs a file name", "report.html")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, text)
    except OSError as error:
        raise NMTError(f"cannot write {path}: {error.strerror}", "name another file") from None


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return a table's lines: the first and the last column to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    last = len(widths) - 1
    return [
        "  ".join(
            cell.rjust(width) if 0 < i < last else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
