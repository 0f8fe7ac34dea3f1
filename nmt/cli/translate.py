"""`nmt translate`."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from nmt.cli.options import (
    DeviceOption,
    ErrorsOption,
    ModelOption,
    PrecisionOption,
    SearchOption,
    argument_lines,
    check_errors,
    search_spec,
)
from nmt.errors import NMTError, UsageError
from nmt.registry import parse


def translate(
    text: Annotated[list[str] | None, typer.Argument(help="Sentences, each in quotes.", show_default=False)] = None,
    model: ModelOption = None,
    input: Annotated[Path | None, typer.Option("--input", "-i", help="File to translate, a sentence a line.")] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="File to write to.")] = None,
    beam_size: Annotated[
        int | None, typer.Option(help="Beams of the search; 1 is greedy.", show_default="the model's")
    ] = None,
    top_beams: Annotated[
        int | None, typer.Option(help="Translations per sentence, best first.", show_default="the model's, usually 1")
    ] = None,
    length_penalty: Annotated[
        float | None, typer.Option(help="0 favours short translations.", show_default="the model's")
    ] = None,
    search: SearchOption = "",
    device: DeviceOption = "auto",
    precision: PrecisionOption = "auto",
    errors: ErrorsOption = "strict",
) -> None:
    """Translate sentences, a file, or standard input, line by line.

    As many lines come out as go in, in the same order; with --top-beams N, N lines for each, empty ones
    where the search finds fewer.

    Examples:
      nmt translate "im thirsty"
      nmt translate "Are we done?" "I'm tired." --model runs/multi30k --beam-size 8 --top-beams 3
      nmt translate --input news.en --output news.de
      cat news.en | nmt translate > news.de
    """
    check_errors(errors)
    if text and input:
        raise UsageError("give sentences or --input, not both")
    if not text and not input and (sys.stdin is None or sys.stdin.isatty()):
        raise UsageError("there is nothing to translate", 'nmt translate "im thirsty", or --input FILE, or a pipe')

    from nmt import checkpoint
    from nmt.console import log, progress
    from nmt.data.pairs import count_lines, decode_lines, open_text, read_lines
    from nmt.translate import Translator, as_they_come, in_windows

    windows: Iterator[list[str]]
    total = None
    if text:
        windows = in_windows(argument_lines(text, errors))
    elif input:
        open_text(input).close()  # a mistake shows before the output is made and the model loaded
        if output and output.exists() and output.samefile(input):
            raise UsageError(f"--output {output} is the file that is read", "name another one")
        windows = in_windows(read_lines(input, errors=errors))
        total = count_lines(input)
    else:
        windows = as_they_come(decode_lines(sys.stdin.buffer, "standard input", errors))
    path = model or checkpoint.newest_run()
    translator = Translator.load(path, device, precision)
    if model is None:
        log(f"using {translator.origin}")
    spec = search_spec(search, translator.config.search, beam_size, top_beams, length_penalty)
    lines_each = parse(spec)[1].get("top", 1)
    found = translator.translate_windows(windows, spec)
    quiet = input is None or (output is None and sys.stdout.isatty())  # a bar would tear the lines
    with _open_output(output) as write, progress(total, "translating", " lines", disable=quiet) as bar:
        for translations in found:
            for rank in range(lines_each):
                write(translations[rank].text if rank < len(translations) else "")
            bar.update()


@contextlib.contextmanager
def _open_output(path: Path | None) -> Iterator[Any]:
    """Yield a function that writes a line; a file that stands there is kept until the first line comes."""
    if path is None:
        yield typer.echo
        return
    stood = path.exists()
    try:
        file = open(path, "a", encoding="utf-8", newline="\n")  # noqa: SIM115
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}", "name another file") from None
    started = False

    def write(line: str) -> None:
        nonlocal started
        if not started and path.is_file():  # not a device or a pipe
            file.truncate(0)
        started = True
        file.write(line + "\n")

    try:
        with file:
            yield write
    except OSError as error:
        raise NMTError(f"cannot write {path}: {error.strerror}", "it holds what was translated so far") from None
    finally:
        if not started and not stood:
            path.unlink(missing_ok=True)
