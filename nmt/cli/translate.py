"""`nmt translate`."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nmt.cli.options import (
    BeamSizeOption,
    DeviceOption,
    EncodingErrorsOption,
    LengthPenaltyOption,
    ModelsOption,
    SearchOption,
    SearchPrecisionOption,
    load_translator,
    search_spec,
)
from nmt.core.errors import CheckpointError, NMTError, UsageError, check_choice
from nmt.core.paths import check_not_overwriting, descriptor
from nmt.documents.formats import FORMATS, DocumentOptions
from nmt.jobs.documents import (
    DocumentJob,
    document_arguments,
    load_document_translator,
    parser_of_format,
    plan_documents,
)
from nmt.jobs.output import OUTPUT_FORMATS, check_uncompressed, output_format
from nmt.jobs.sharding import Shard
from nmt.jobs.translation_job import (
    LanguageCheck,
    TranslationJob,
    translate_file,
    translate_stream,
    with_markup,
)

if TYPE_CHECKING:
    from nmt.translation.guard import Guard
    from nmt.translation.translator import Translator

LINE_SUFFIXES = {".csv", ".tsv", ".txt"}
"""Suffixes of document formats that files with one sentence per line have, too."""


def translate(
    text: Annotated[
        list[str] | None,
        typer.Argument(
            help="Sentences, each in quotes; or documents and directories (docs/).",
            show_default=False,
        ),
    ] = None,
    model: ModelsOption = None,
    then: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="MODEL",
            help=(
                "Model that translates the translations of --model again, such as firefox:en-de"
                " after firefox:fr-en."
            ),
            show_default=False,
        ),
    ] = None,
    input: Annotated[
        Path | None, typer.Option("--input", "-i", help="Input file with one sentence per line.")
    ] = None,
    output_: Annotated[
        str | None,
        typer.Option(
            "--output",
            "-o",
            metavar="PATH",
            help=(
                "Output file; for several documents, or with a slash at the end, a directory."
                " Existing files are "
                "overwritten, translations of documents only with --force."
            ),
            show_default="standard output; for a document, NAME.de.html next to it",
        ),
    ] = None,
    beam_size: BeamSizeOption = None,
    top_beams: Annotated[
        int | None,
        typer.Option(
            help="Number of translations per sentence, best first.",
            show_default="the model's, usually 1",
        ),
    ] = None,
    length_penalty: LengthPenaltyOption = None,
    search: SearchOption = "",
    to: Annotated[
        str,
        typer.Option(
            metavar="LANG", help="Target language: en, de, ...", show_default="the model's"
        ),
    ] = "",
    prefix: Annotated[
        str, typer.Option(help="Target prefix: text that every translation starts with.")
    ] = "",
    constraint: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TEXT", help="Text that every translation must contain; may be repeated."
        ),
    ] = None,
    protect: Annotated[
        list[str] | None,
        typer.Option(
            metavar="REGEX",
            help="Text that stays as it is, as URLs and numbers do; may be repeated.",
        ),
    ] = None,
    glossary: Annotated[
        Path | None,
        typer.Option(
            help="Terms and their translations: a TSV, TBX or TMX file.", show_default=False
        ),
    ] = None,
    no_guard: Annotated[
        bool,
        typer.Option(
            "--no-guard",
            help=(
                "Do not protect URLs, numbers, etc., and do not check translations and decode them"
                " again if a check fails."
            ),
        ),
    ] = False,
    format: Annotated[
        str,
        typer.Option(
            help=(
                "Output format: text, or jsonl with scores, confidence, tokens and word alignments."
            )
        ),
    ] = "text",
    show_scores: Annotated[
        bool,
        typer.Option("--show-scores", help="Print the score and a tab before each translation."),
    ] = False,
    show_confidence: Annotated[
        bool,
        typer.Option(
            "--show-confidence",
            help=(
                "Print the expected quality, from 0 to 1, and a tab before each translation; see"
                " nmt calibrate."
            ),
        ),
    ] = False,
    document: Annotated[
        str | None,
        typer.Option(
            metavar="FORMAT",
            help=(
                "Translate standard input, or files with another suffix, as documents: html,"
                " md, ..."
            ),
            show_default=False,
        ),
    ] = None,
    memory: Annotated[
        Path | None,
        typer.Option(
            help="TMX file; documents take the translations of equal sentences from it.",
            show_default=False,
        ),
    ] = None,
    column: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", help="Column of a CSV or TSV document to translate; may be repeated."
        ),
    ] = None,
    key: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PATH",
            help=(
                "Value of a JSON document to translate, e.g. title or items.*.text; may be"
                " repeated."
            ),
        ),
    ] = None,
    retranslate: Annotated[
        bool,
        typer.Option(
            "--retranslate", help="Translate entries of a document that have a translation, too."
        ),
    ] = False,
    encoding: Annotated[
        str | None,
        typer.Option(
            help="Encoding of .txt, .srt and .vtt documents, such as cp1252.", show_default="utf-8"
        ),
    ] = None,
    shard: Annotated[
        str | None,
        typer.Option(metavar="I/N", help="Translate shard I of N of --input.", show_default=False),
    ] = None,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume",
            help="Continue after the last line of --output; skip documents with a translation.",
        ),
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Overwrite translations of documents.")
    ] = False,
    engine: Annotated[
        str,
        typer.Option(
            help=(
                "Engine: nmt (the native engine, or PyTorch where it cannot run) or ctranslate2"
                " (exports)."
            )
        ),
    ] = "nmt",
    device: DeviceOption = "auto",
    precision: SearchPrecisionOption = "auto",
    encoding_errors: EncodingErrorsOption = "strict",
) -> None:
    """Translate sentences, documents, files or standard input.

    Without any input in a terminal, nmt prompts for sentences. The default model is the newest run
    (with --to, the newest that translates into that language), else a pretrained model. The output
    has one line per input line in the same order; with --top-beams N, it has N lines per input
    line, which are empty if the search finds fewer translations.

    An argument that names a file with the suffix of a document format (.html, .md, .txt, ...) is a
    document, and a directory, written with a slash, all documents in it: only human-readable text
    is translated, and the rest of the document is unchanged. A file for --input has one sentence
    per line.

    Examples:
      nmt translate "im thirsty"
      nmt translate "Are we done?" "I'm tired." --model runs/multi30k --beam-size 8 --top-beams 3
      nmt translate --to en "Ich habe Durst."
      nmt translate --input news.en --output news.de
      cat news.en | nmt translate > news.de
      nmt translate --format jsonl --top-beams 4 "A dog runs."
      nmt translate --model runs/a --model runs/b "A dog runs."
      nmt translate --model Helsinki-NLP/opus-mt-en-de "A dog runs."
      nmt translate --model firefox:fr-en --then firefox:en-de "Bonjour."
      nmt translate --constraint "Hund" "A dog runs."
      nmt translate --glossary terms.tsv --input manual.en --output manual.de
      nmt translate --show-confidence --input news.en
      nmt translate page.html notes.md --output translated
      nmt translate docs/ --memory memory.tmx --resume
      curl https://example.com | nmt translate --document html > example.html
    """
    check_choice("format", format, OUTPUT_FORMATS)
    documents = _document_paths(text or [], document)
    is_document = bool(documents) or document is not None
    line_options = {
        "--input": input,
        "--top-beams": top_beams,
        "--shard": shard,
        "--constraint": constraint,
        "--prefix": prefix,
        "--show-scores": show_scores,
        "--format": format != "text",
        "--show-confidence": show_confidence,
    }
    document_options = {
        "--memory": memory,
        "--column": column,
        "--key": key,
        "--retranslate": retranslate,
        "--force": force,
        "--encoding": encoding,
    }
    if is_document:
        hint = "leave out these options"
        _reject_options("documents do not support", line_options, hint)
    else:
        _reject_document_options(document_options)
    if then:
        pivot_options = {
            "documents": is_document,
            "--glossary": glossary,
            "--format": format != "text",
            "--show-scores": show_scores,
            "--show-confidence": show_confidence,
        }
        if not model:
            raise UsageError("--then needs --model", "name the model that translates first")
        hint = "run nmt translate twice, or leave out these options"
        _reject_options("--then does not support", pivot_options, hint)
    if no_guard and (protect or glossary):
        raise UsageError("--protect and --glossary need the guard", "leave out --no-guard")
    is_directory = output_ is not None and output_.endswith(("/", os.sep))
    if is_directory and not documents:
        raise UsageError(f"--output {output_} is a directory", "name a file")
    output = Path(output_) if output_ and (output_ != "-" or is_document) else None
    if resume and not documents and not (input and output):
        raise UsageError("--resume requires --input and --output, or documents")
    if resume and force:
        raise UsageError(
            "--resume keeps translations, and --force overwrites them", "leave out one of them"
        )
    if output and not is_document:
        check_uncompressed(output)
    parsed_shard = _resolve_shard(shard, input, output, is_document)
    interactive = _check_input(text, input, output, is_document)
    if output and not (is_document and output.is_dir()):
        stdin = None if text or input else Path("/dev/stdin")
        check_not_overwriting([output], (input, glossary, memory, stdin))

    from nmt.jobs.argument_lines import join_argument

    first = load_translator(model, device, precision, engine) if then else None
    translator = load_translator(then or model, device, precision, engine, to)
    if show_confidence and translator.calibration is None:
        raise _not_calibrated(translator, model)
    prefix = join_argument(prefix, encoding_errors)
    constraints = tuple(join_argument(words, encoding_errors) for words in constraint or ())
    pivot_search = search
    if constraints and not search:
        search = "constrained"
    spec = search_spec(search, translator.config.search, beam_size, top_beams, length_penalty)
    guarded = translator if no_guard else _guard(translator, protect, glossary)
    line_translator = guarded if is_document else with_markup(guarded, spec)
    if first:
        from nmt.translation.pivot import Pivot

        first_spec = search_spec(pivot_search, first.config.search, beam_size, None, length_penalty)
        guarded_first = first if no_guard else _guard(first, protect, None)
        line_translator = Pivot(with_markup(guarded_first, first_spec), line_translator, first_spec)
    data = line_translator.config.data
    language_check = LanguageCheck(data.src, data.tgt)
    if is_document:
        options = DocumentOptions(
            data.src,
            data.tgt,
            tuple(column or ()),
            tuple(key or ()),
            retranslate,
            encoding_errors,
            encoding or "utf-8",
        )
        files = plan_documents(documents, output, document, options, is_directory=is_directory)
        document_translator = load_document_translator(guarded, spec, memory, options)
        DocumentJob(document_translator, options, language_check, resume, force).run(files)
        return
    job = TranslationJob(
        line_translator,
        spec,
        output_format(format, spec, show_scores, show_confidence),
        show_scores or show_confidence or format == "jsonl",
        prefix,
        constraints,
        language_check,
    )
    if interactive:
        from nmt.cli.prompt import run_prompt

        run_prompt(job.translate_line)
    elif input:
        translate_file(
            job,
            input,
            output,
            parsed_shard,
            join=shard is None,
            resume=resume,
            encoding_errors=encoding_errors,
        )
    else:
        translate_stream(job, text, output, encoding_errors)


def _document_paths(arguments: list[str], format: str | None) -> list[Path]:
    """Return the paths of the documents and folders among the arguments; with --document, all
    arguments."""
    if format is None:
        return document_arguments(arguments)
    parser_of_format(format)
    return list(map(Path, arguments))


def _reject_document_options(options: Mapping[str, object]) -> None:
    if names := [name for name, value in options.items() if value]:
        verb = "apply" if len(names) > 1 else "applies"
        raise UsageError(
            f"{' and '.join(names)} {verb} only to documents", "for example nmt translate page.html"
        )


def _reject_options(problem: str, options: Mapping[str, object], hint: str) -> None:
    """Raise a UsageError if any of the options is given."""
    if names := [name for name, value in options.items() if value]:
        raise UsageError(f"{problem} {' and '.join(names)}", hint)


def _resolve_shard(
    text: str | None, input: Path | None, output: Path | None, is_document: bool
) -> Shard | None:
    """Return the shard of --shard or of this torchrun process."""
    shard = Shard.from_option(text)
    if not shard:
        return None
    if is_document:
        raise UsageError("torchrun shards the lines of a file automatically", "leave out documents")
    if not input:
        raise UsageError("only a file can be sharded", "add --input FILE")
    if not text and (output is None or descriptor(output) is not None):
        raise UsageError("torchrun requires --output FILE")
    return shard


def _check_input(
    text: list[str] | None, input: Path | None, output: Path | None, is_document: bool
) -> bool:
    """Validate the input before the model is loaded, and return whether to prompt for sentences."""
    if text and input:
        raise UsageError("pass either sentences or --input")
    if input:
        from nmt.data.pairs import open_text

        if input.suffix.lower() in FORMATS.keys() - LINE_SUFFIXES:
            raise UsageError(
                f"--input {input} is a document, not one sentence per line",
                f"nmt translate {input}",
            )
        open_text(input).close()
    if text or input or not (sys.stdin is None or sys.stdin.isatty()):
        return False
    if output or is_document or sys.stdin is None or not sys.stdout.isatty():
        raise UsageError(
            "there is nothing to translate",
            'run nmt translate "im thirsty", or use --input or a pipe',
        )
    return True


def _guard(translator: Translator, protect: list[str] | None, glossary: Path | None) -> Guard:
    from nmt.text.spans import compile_patterns
    from nmt.translation.guard import Guard

    patterns = compile_patterns(protect or ())
    if glossary is None:
        return Guard(translator, protect=patterns)
    from nmt.translation.glossary import Glossary

    data = translator.config.data
    terms = Glossary.load(glossary, data.src, data.tgt)
    return Guard(translator, protect=patterns, glossary=terms)


def _not_calibrated(translator: Translator, model: list[Path] | None) -> NMTError:
    if model and len(model) > 1:
        return UsageError("--show-confidence does not support ensembles", "use a single --model")
    path = model[0] if model else translator.run
    return CheckpointError(
        f"{path} is not calibrated", f"fit its confidence with nmt calibrate --model {path}"
    )
