"""Translation of files, streams and lines of the prompt, for `nmt translate`, `nmt backtranslate`
and `nmt distill`."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

from nmt.core.console import counted, log, progress
from nmt.core.errors import UsageError
from nmt.jobs.argument_lines import argument_lines
from nmt.jobs.output import OutputFormat, open_output, truncate_incomplete
from nmt.jobs.sharding import Shard

if TYPE_CHECKING:
    from nmt.translation.line_translator import LineTranslator
    from nmt.translation.translator import Line, Translation

MAX_WARNINGS = 5
"""Maximum number of lines whose warnings are logged."""


class TranslationJob(NamedTuple):
    """Translates lines and writes them in an output format."""

    translator: LineTranslator
    spec: str
    output_format: OutputFormat
    details: bool
    """Whether the output format needs scores, tokens and alignments."""
    prefix: str
    constraints: tuple[str, ...]
    language_check: LanguageCheck | None = None

    def translate_line(self, line: str) -> list[str]:
        """Return the output lines for one input line."""
        self._check_language([line])
        n_best = next(self.translator.stream([[self._line(line)]], self.spec, details=self.details))
        WarningLog().add(n_best)
        return self.output_format(line, n_best)

    def translate_chunks(
        self,
        chunks: Iterable[list[str]],
        output: Path | None,
        *,
        append: bool = False,
        on_progress: Callable[[float], object] = lambda lines: None,
    ) -> None:
        """Translate chunks of lines and write the output; `on_progress` gets numbers of finished
        lines."""
        sources: deque[str] = deque()
        warnings = WarningLog()

        def constrained_chunks() -> Iterator[list[Line | str]]:
            for chunk in chunks:
                sources.extend(chunk)
                self._check_language(chunk)
                yield [self._line(line) for line in chunk]

        with open_output(output, append=append) as write:
            results = self.translator.stream(
                constrained_chunks(), self.spec, details=self.details, on_progress=on_progress
            )
            for translations in results:
                warnings.add(translations)
                for line in self.output_format(sources.popleft(), translations):
                    write(line)
        warnings.finish(self.translator)

    def _check_language(self, lines: list[str]) -> None:
        if self.language_check:
            self.language_check.add(lines)

    def _line(self, text: str) -> Line:
        from nmt.translation.translator import Line

        return Line(text, self.prefix, self.constraints)


def with_markup(translator: LineTranslator, spec: str) -> LineTranslator:
    """Return a translator of lines that places tags by word alignment, if each line has one guarded
    translation."""
    from nmt.documents.markup_lines import MarkupLines
    from nmt.search import parse_search
    from nmt.translation.guard import Guard

    has_one = parse_search(spec).n_best == 1
    if has_one and isinstance(translator, Guard):
        return MarkupLines(translator)
    return translator


class LanguageCheck:
    """Warns once if the first lines of the input are not in the source language."""

    def __init__(self, src: str, tgt: str) -> None:
        self.src = src
        self.tgt = tgt
        self.lines: list[str] = []
        self.is_finished = False

    def add(self, lines: Sequence[str]) -> None:
        """Judge the input again with further lines, until they are enough for the language
        identification."""
        if self.is_finished:
            return
        from nmt.data.check.sides import MAX_LINES, MIN_LINES, english_name, wrong_language

        self.lines += lines[:MAX_LINES]
        language = wrong_language(self.lines, self.src, self.tgt)
        self.is_finished = language is not None or len(self.lines) >= MIN_LINES
        if language is None:
            return
        expected = english_name(self.src)
        hint = f"choose a model that translates into {expected}, such as that of --to {self.src}"
        if language != self.tgt:
            hint = "choose a model of its language"
        log(
            f"warning: the input seems to be in {english_name(language)}, not in {expected}; {hint}"
        )


class WarningLog:
    """Logs the first translations with warnings, and a summary."""

    def __init__(self) -> None:
        self.num_lines = self.num_warned = 0

    def add(self, n_best: list[Translation]) -> None:
        """Log the warnings of the best translation of the next line."""
        self.num_lines += 1
        if n_best[0].warnings:
            self.num_warned += 1
            if self.num_warned <= MAX_WARNINGS:
                log(f"warning: translation {self.num_lines}: {', '.join(n_best[0].warnings)}")

    def finish(self, translator: LineTranslator) -> None:
        """Log how many lines have warnings, and which glossary terms were applied."""
        if self.num_warned > MAX_WARNINGS:
            log(
                f"{self.num_warned:,} of {self.num_lines:,} translations have warnings; --format"
                " jsonl has all of them"
            )
        log_terms(translator)


def log_terms(translator: LineTranslator) -> None:
    """Log which glossary terms were applied."""
    terms = translator.term_counts
    if not terms:
        return
    num_applied = 0
    missing = []
    for (term, is_applied), count in terms.most_common():
        if is_applied:
            num_applied += count
        else:
            missing.append(f"{term} ({count})")
    text = f"glossary: applied {num_applied:,} of {counted(terms.total(), 'term')}"
    log(f"{text}; not applied: {', '.join(missing)}" if missing else text)


def translate_stream(
    job: TranslationJob, text: list[str] | None, output: Path | None, encoding_errors: str
) -> None:
    """Translate command-line arguments, or standard input as lines arrive."""
    from nmt.text.decoding import decode_lines
    from nmt.translation.chunking import chunk_by_arrival, chunked

    if text:
        chunks = chunked(argument_lines(text, encoding_errors))
    else:
        chunks = chunk_by_arrival(decode_lines(_open_stdin(), "standard input", encoding_errors))
    job.translate_chunks(chunks, output)


def _open_stdin() -> BinaryIO:
    """Return a reader of standard input for a thread: at exit, Python waits for the lock of
    `sys.stdin` and aborts."""
    try:
        return open(sys.stdin.fileno(), "rb", closefd=False)
    except (OSError, ValueError):  # replaced by another object
        return sys.stdin.buffer


def translate_file(
    job: TranslationJob,
    input: Path,
    output: Path | None,
    shard: Shard | None,
    *,
    join: bool,
    resume: bool,
    encoding_errors: str,
) -> None:
    """Translate a file or one shard of it.

    Args:
        job: model, search and output format.
        input: the file.
        output: the output file; None for stdout.
        shard: the shard to translate; None for all lines.
        join: write each shard to its own file; the process that completes the last shard joins them
            into `output`.
        resume: continue after the lines that the output file already has.
        encoding_errors: handling of invalid UTF-8.
    """
    from nmt.data.pairs import count_lines, read_lines
    from nmt.translation.chunking import chunked

    num_lines = count_lines(input)
    start, end = shard.line_range(num_lines) if shard else (0, num_lines)
    path = output
    if join and shard and output:
        path = shard.path(output)
        if _finish_if_complete(
            shard, output, resume, num_lines * job.output_format.lines_per_input
        ):
            return
    num_done = truncate_incomplete(path, job.output_format, end - start) if resume and path else 0
    if num_done:
        log(f"resuming {path} after {counted(num_done, 'line')}")
    all_lines = read_lines(input, errors=encoding_errors)
    lines = islice(all_lines, start + num_done, end if shard else None)
    remaining = end - start - num_done
    quiet = output is None and sys.stdout.isatty()  # a progress bar would mix with the output
    with progress(remaining, "translating", " lines", disable=quiet, unit_scale=True) as bar:
        job.translate_chunks(chunked(lines), path, append=resume, on_progress=bar.update)
    if join and shard and output:
        shard.finish(output)


def _finish_if_complete(shard: Shard, output: Path, resume: bool, num_lines: int) -> bool:
    """Return whether earlier processes completed this shard, and join the shards if they completed
    all of them.

    Also True if `output` was already joined: it has `num_lines` lines.
    """
    if shard.is_done(output):
        if not resume:
            hint = "continue with --resume, or delete the files of its shards"
            raise UsageError(f"{output} is incomplete: some of its shards are missing", hint)
        shard.join(output)
        return True
    if not resume or not output.exists() or shard.path(output).exists():
        return False
    with output.open("rb") as file:
        num_existing = sum(line.endswith(b"\n") for line in file)
    if num_existing > num_lines:
        raise UsageError(
            f"{output} has {num_existing:,} lines, more than {num_lines:,}",
            "choose another --output",
        )
    return num_existing == num_lines
