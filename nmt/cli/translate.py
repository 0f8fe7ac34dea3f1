"""`nmt translate`."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nmt.cli.options import (
    DeviceOption,
    ErrorsOption,
    ModelsOption,
    SearchOption,
    SearchPrecisionOption,
    argument_lines,
    check_errors,
    search_spec,
)
from nmt.cli.output import Form, Record, Text, check_format, count_records, open_output
from nmt.cli.sharding import Part
from nmt.errors import UsageError

if TYPE_CHECKING:
    from nmt.inference.translator import Line, Translator


def translate(
    text: Annotated[list[str] | None, typer.Argument(help="Sentences, each in quotes.", show_default=False)] = None,
    model: ModelsOption = None,
    input: Annotated[Path | None, typer.Option("--input", "-i", help="File to translate, a sentence a line.")] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="File to write to.")] = None,
    beam_size: Annotated[
        int | None, typer.Option(help="Beams of the search; 1 is greedy.", show_default="the model's")
    ] = None,
    top_beams: Annotated[
        int | None, typer.Option(help="Translations per sentence, best first.", show_default="the model's, usually 1")
    ] = None,
    length_penalty: Annotated[
        float | None, typer.Option(help="0 favors short translations.", show_default="the model's")
    ] = None,
    search: SearchOption = "",
    to: Annotated[
        str, typer.Option(metavar="LANG", help="Language to translate into: en, de, ...", show_default="the model's")
    ] = "",
    prefix: Annotated[str, typer.Option(help="Words that every translation must begin with.")] = "",
    constraint: Annotated[
        list[str] | None, typer.Option(metavar="TEXT", help="Must appear in every translation; may be repeated.")
    ] = None,
    format: Annotated[
        str, typer.Option(help="text, or jsonl: a record a line with scores, tokens and word alignment.")
    ] = "text",
    show_scores: Annotated[
        bool, typer.Option("--show-scores", help="Put score and a tab before translations.")
    ] = False,
    document: Annotated[
        bool, typer.Option("--document", help="Translate paragraphs, parted by blank lines, and keep their layout.")
    ] = False,
    shard: Annotated[
        str | None, typer.Option(metavar="I/N", help="Translate the I-th of N parts of --input.", show_default=False)
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on where --output ends.")] = False,
    engine: Annotated[str, typer.Option(help="native, or ctranslate2 with what nmt export made.")] = "native",
    device: DeviceOption = "auto",
    precision: SearchPrecisionOption = "auto",
    errors: ErrorsOption = "strict",
) -> None:
    """Translate sentences, a file, or standard input, line by line; without any of them, ask for sentences.

    Without --model the newest run is taken, and without runs a model for English and German that comes with
    nmt. As many lines come out as go in, in the same order; with --top-beams N, N lines for each, empty ones
    where the search finds fewer.

    Examples:
      nmt translate "im thirsty"
      nmt translate "Are we done?" "I'm tired." --model runs/multi30k --beam-size 8 --top-beams 3
      nmt translate --to en "Ich habe Durst."
      nmt translate --input news.en --output news.de
      cat news.en | nmt translate > news.de
      nmt translate --format jsonl --top-beams 4 "A dog runs."
      nmt translate --model runs/a --model runs/b "A dog runs."
      nmt translate --constraint "Hund" "A dog runs."
    """
    check_errors(errors)
    check_format(format)
    if text and input:
        raise UsageError("give sentences or --input, not both")
    if document:
        others = {"sentences": text, "--top-beams": top_beams, "--resume": resume, "--shard": shard, "--constraint": constraint,
                  "--prefix": prefix, "--show-scores": show_scores, "--format": format != "text"}  # fmt: skip
        if given := [name for name, value in others.items() if value]:
            raise UsageError(f"--document does not go with {' and '.join(given)}", "give it --input or a pipe")
    if resume and not (input and output):
        raise UsageError("--resume needs --input and --output")
    part = Part.of_torchrun() if shard is None else Part.parse(shard)
    if Part.of_torchrun() and (shard or document):
        raise UsageError("torchrun shares out a file by itself, and only line by line", "leave out --shard, --document")
    if part and not input:
        raise UsageError("only a file can be translated in parts", "give --input FILE")
    if part and not shard and not output:
        raise UsageError("processes that translate a file together need --output")
    typed = sys.stdin is None or sys.stdin.isatty()
    asks = not (text or input or output or document) and sys.stdin is not None and typed and sys.stdout.isatty()
    if not (text or input or asks) and typed:
        raise UsageError("there is nothing to translate", 'nmt translate "im thirsty", or --input FILE, or a pipe')
    if input:
        _check_files(input, output)

    from nmt.console import log
    from nmt.inference.translator import Translator
    from nmt.runs import discovery, pretrained
    from nmt.search import search as resolve

    paths = model or [discovery.newest_model(to)]
    translator = Translator.load(paths, device, precision, engine)
    languages = translator.config.data
    if to and languages.tgt != to:
        raise UsageError(f"{paths[0]} translates into '{languages.tgt}', not '{to}'", "leave out --model, or --to")
    if model is None:
        own = translator.checkpoint.is_relative_to(pretrained.FOLDER)
        log(
            f"using {paths[0].name}, a small model of everyday sentences that comes with nmt; nmt train makes your own"
            if own
            else f"using {translator.checkpoint}"
        )
    prefix, *constraint = (" ".join(argument_lines([words], errors)) for words in (prefix, *(constraint or ())))
    if constraint and not search:
        search = "constrained"
    spec = search_spec(search, translator.config.search, beam_size, top_beams, length_penalty)
    form: Form = Record() if format == "jsonl" else Text(resolve(spec).n_best, show_scores)
    job = Job(translator, spec, form, show_scores or format == "jsonl", prefix, tuple(constraint))
    if asks:
        from nmt.cli.prompt import ask

        ask(job.answer)
    elif document:
        _document(translator, spec, input, output, errors)
    elif input:
        _file(job, input, output, part, resume, whole=not shard, errors=errors)
    else:
        _stream(job, text, output, errors)


@dataclass(frozen=True)
class Job:
    """How each line is translated and written."""

    translator: Translator
    spec: str
    form: Form
    details: bool
    prefix: str
    constraints: tuple[str, ...]

    def answer(self, line: str) -> list[str]:
        """Return what is written for one line."""
        return self.form(line, next(self.translator.stream([[self._wish(line)]], self.spec, details=self.details)))

    def run(
        self, windows: Iterable[list[str]], output: Path | None, *, total: int | None, quiet: bool, append: bool = False
    ) -> None:
        """Translate groups of lines and write them."""
        from nmt.console import progress

        sources: deque[str] = deque()

        def wishes() -> Iterator[list[Line | str]]:
            for window in windows:
                sources.extend(window)
                yield [self._wish(line) for line in window]

        with (
            open_output(output, append=append) as write,
            progress(total, "translating", " lines", disable=quiet) as bar,
        ):
            for best in self.translator.stream(wishes(), self.spec, details=self.details, on_progress=bar.update):
                for line in self.form(sources.popleft(), best):
                    write(line)

    def _wish(self, text: str) -> Line:
        from nmt.inference.translator import Line

        return Line(text, self.prefix, self.constraints)


def _check_files(input: Path, output: Path | None) -> None:
    """Let a mistake show before the output is made and the model loaded."""
    from nmt.data.pairs import open_text

    open_text(input).close()
    if output and output.exists() and output.samefile(input):
        raise UsageError(f"--output {output} is the file that is read", "name another one")


def _stream(job: Job, text: list[str] | None, output: Path | None, errors: str) -> None:
    from nmt.data.pairs import decode_lines
    from nmt.inference.chunking import chunk_by_arrival, chunked

    windows = (
        chunked(argument_lines(text, errors))
        if text
        else chunk_by_arrival(decode_lines(sys.stdin.buffer, "standard input", errors))
    )
    job.run(windows, output, total=None, quiet=True)


def _file(
    job: Job, input: Path, output: Path | None, part: Part | None, resume: bool, *, whole: bool, errors: str
) -> None:
    """Translate a file or a part of it; where `whole`, the last of several processes joins the parts."""
    from nmt.console import log
    from nmt.data.pairs import count_lines, read_lines
    from nmt.inference.chunking import chunked

    count = count_lines(input)
    first, stop = part.lines(count) if part else (0, count)
    target = output
    joined = part if part and whole else None
    if joined and output:
        target = joined.file(output)
        if joined.is_done(output):
            if not resume:
                hint = "--resume goes on; or remove its parts"
                raise UsageError(f"{output} was begun by processes that did not all finish", hint)
            joined.join(output)
            return
        if resume and output.exists() and not target.exists():
            return  # all is done and joined
    done = count_records(target, job.form) if resume and target else 0
    if done > stop - first:
        raise UsageError(f"{target} holds {done:,} lines, more than are to be translated", "is it another file's?")
    if done:
        log(f"{target} holds {done:,} lines: going on after them")
    lines = islice(read_lines(input, errors=errors), first + done, stop if part else None)
    quiet = output is None and sys.stdout.isatty()  # a bar would tear the lines
    job.run(chunked(lines), target, total=stop - first - done, quiet=quiet, append=resume)
    if joined and output:
        joined.finish(output)


def _document(translator: Translator, spec: str, input: Path | None, output: Path | None, errors: str) -> None:
    from nmt.data.pairs import decode_lines, read_lines
    from nmt.inference.paragraphs import translate

    lines = read_lines(input, errors) if input else decode_lines(sys.stdin.buffer, "standard input", errors)
    with open_output(output) as write:
        for line in translate(translator, lines, spec):
            write(line)
