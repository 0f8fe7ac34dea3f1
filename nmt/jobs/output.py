"""Output of the commands: formats of `nmt translate`, output files and reports."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple, Protocol

from nmt.core.console import discard
from nmt.core.errors import NMTError, UsageError, file_hint, write_errors
from nmt.core.paths import descriptor, lock_output, make_parent, write_bytes

if TYPE_CHECKING:
    from nmt.translation.translator import Translation

WriteLine = Callable[[str], object]
OUTPUT_FORMATS = ("text", "jsonl")


def to_record(translation: Translation) -> dict[str, Any]:
    """Return the fields of a translation for JSON."""
    record = asdict(translation)
    del record["links"]  # shares of attention, from which the alignment is derived
    return record


class OutputFormat(Protocol):
    """Formats the translations of one input line."""

    @property
    def lines_per_input(self) -> int:
        """Number of output lines for each input line."""

    def matches(self, line: str) -> bool:
        """Return whether an existing output line may have this format."""

    def __call__(self, source: str, translations: Sequence[Translation]) -> list[str]:
        """Return the output lines."""


class TextFormat(NamedTuple):
    """One translation per line, best first, padded with empty lines to `lines_per_input`."""

    lines_per_input: int
    show_scores: bool = False
    """Prefix each line with the score and a tab."""
    show_confidence: bool = False
    """Prefix each line with the confidence and a tab, after the score. It is empty for copies, such
    as blank lines."""

    def matches(self, line: str) -> bool:
        """Return whether an existing output line may have this format."""
        num_columns = [self.show_scores, self.show_confidence].count(True)
        columns = re.compile(rf"(-?[\d.]*\t){{{num_columns}}}|$")
        return not JsonLinesFormat().matches(line) and columns.match(line) is not None

    def __call__(self, source: str, translations: Sequence[Translation]) -> list[str]:
        """Return one line per translation."""
        best = translations[: self.lines_per_input]
        lines = [f"{self._columns(translation)}{translation.text}" for translation in best]
        return lines + [""] * (self.lines_per_input - len(lines))

    def _columns(self, translation: Translation) -> str:
        score = f"{translation.score:.4f}\t" if self.show_scores else ""
        if not self.show_confidence:
            return score
        confidence = translation.confidence
        return f"{score}{'' if confidence is None else f'{confidence:.2f}'}\t"


class JsonLinesFormat:
    """One JSON object per input line, with all fields of its translations."""

    lines_per_input = 1

    def matches(self, line: str) -> bool:
        """Return whether an existing output line may have this format."""
        return line.startswith('{"source": ')

    def __call__(self, source: str, translations: Sequence[Translation]) -> list[str]:
        """Return the JSON object as a line."""
        records = [to_record(translation) for translation in translations]
        return [json.dumps({"source": source, "translations": records}, ensure_ascii=False)]


def output_format(name: str, search: str, show_scores: bool, show_confidence: bool) -> OutputFormat:
    """Return the format that the options of `nmt translate` select."""
    from nmt.search import parse_search

    if name == "jsonl":
        return JsonLinesFormat()
    return TextFormat(parse_search(search).n_best, show_scores, show_confidence)


def truncate_incomplete(path: Path, output_format: OutputFormat, max_inputs: int) -> int:
    """Truncate an output file after the last complete output, and return how many input lines it
    covers.

    Args:
        path: the file; if it does not exist, returns 0.
        output_format: the format of the file.

    Raises:
        UsageError: the file has another format, or the translations of more than `max_inputs`
            lines, or another process writes it.
    """
    if descriptor(path) is not None:
        raise UsageError(f"--resume needs a file, not {path}", "name one with --output")
    if not path.is_file():
        return 0
    with path.open(encoding="utf-8", errors="replace") as text:
        first = text.readline()
    if first.endswith("\n") and not output_format.matches(first.rstrip("\n")):
        raise UsageError(
            f"{path} has a different output format", "use --resume with the same options as before"
        )
    num_lines = position = complete = 0
    with path.open("r+b") as file:
        _check_sole_writer(path, file)
        for line in file:
            position += len(line)
            num_lines += line.endswith(b"\n")
            if line.endswith(b"\n") and num_lines % output_format.lines_per_input == 0:
                complete = position
        num_done = num_lines // output_format.lines_per_input
        if num_done > max_inputs:
            raise UsageError(
                f"{path} has {num_done:,} lines, more than the {max_inputs:,} lines to translate",
                "use --resume with the same --input and --shard as before",
            )
        file.truncate(complete)
    return num_done


def check_uncompressed(path: Path) -> None:
    """Raise a UsageError for an output file whose name is that of a compressed file."""
    from nmt.data.pairs import COMPRESSED  # imports all modules of compression

    if path.suffix in COMPRESSED:
        raise UsageError(
            f"cannot write {path}: the output is plain text",
            f"leave out {path.suffix}, and compress it",
        )


@contextlib.contextmanager
def open_output(path: Path | None, *, append: bool = False) -> Iterator[WriteLine]:
    """Yield a function that writes a line to a file, or to stdout if `path` is None.

    Unless `append` is set, an existing file is truncated when the first line is written, so an
    earlier error leaves it unchanged. Its directory is created.

    Raises:
        UsageError: another process writes the file.
        NMTError: the file cannot be written.
    """
    number = None if path is None else descriptor(path)
    if path is None or number == 1:
        yield partial(print, flush=True)
        return
    check_uncompressed(path)
    existed = path.exists()
    keep_content = append or number is not None
    with write_errors(path, "choose another file"):
        make_parent(path)
        opened = path if number is None else os.dup(number)
        file = open(opened, "a", encoding="utf-8", newline="\n")  # noqa: SIM115
    if number is None:
        _check_sole_writer(path, file)

    def write(line: str) -> None:
        nonlocal keep_content
        if not keep_content and path.is_file():  # not a device or a pipe
            file.truncate(0)
        keep_content = True
        file.write(line + "\n")

    completed = False
    try:
        with file:
            yield write
            if not keep_content and path.is_file():  # an empty result replaces the file, too
                file.truncate(0)
            completed = True
    except OSError as error:
        hints = (file_hint(error), "the file has the output written so far")
        raise NMTError(
            f"cannot write {path}: {error.strerror}", "; ".join(filter(None, hints))
        ) from None
    finally:
        if not (keep_content or completed or existed):
            path.unlink(missing_ok=True)


def _check_sole_writer(path: Path, file: IO[Any]) -> None:
    """Raise a UsageError if another process writes an open output file: the lines of both would be
    mixed. The file stays locked until it is closed."""
    if path.is_file() and not lock_output(file):
        file.close()
        raise UsageError(
            f"another process writes {path}", "wait for its end, or choose another --output"
        )


def show(text: str) -> None:
    """Print results. A closed pipe (`| head -1`) or terminal does not change the exit code of the
    command."""
    try:
        print(text, flush=True)
    except OSError as error:
        if error.errno not in (errno.EPIPE, errno.EIO):
            raise
        discard(sys.stdout)


def show_json(content: Any) -> None:
    """Print results, which may contain dataclasses, as JSON."""
    show(json.dumps(content, indent=2, ensure_ascii=False, default=asdict))


def write_file(path: Path, content: str | bytes) -> None:
    """Write a report or a document atomically and create its parent directories.

    Raises:
        NMTError: the file cannot be written.
    """
    if descriptor(path) == 1:
        sys.stdout.flush()
    if not path.name:
        raise UsageError("the output file has no name", "choose a name such as report.html")
    try:
        make_parent(path)
        write_bytes(
            path, content.encode("utf-8", "replace") if isinstance(content, str) else content
        )
    except OSError as error:
        if isinstance(error, BrokenPipeError) and descriptor(path) == 1:
            raise
        raise NMTError(
            f"cannot write {path}: {error.strerror}", file_hint(error, "choose another file")
        ) from None
