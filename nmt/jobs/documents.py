"""The documents that `nmt translate` is asked to translate: which arguments are documents, and
where outputs go."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from nmt.core.console import counted, log, progress
from nmt.core.errors import NMTError, UsageError, suggest, write_errors
from nmt.core.paths import check_not_overwriting, descriptor, make_parent
from nmt.documents.formats import (
    FORMATS,
    SUFFIXES_OF_OPTIONS,
    DocumentOptions,
    Parser,
    conversion_hint,
    ignored_option,
    missing_option,
    parser_of,
)
from nmt.jobs.output import show, write_file
from nmt.jobs.translation_job import LanguageCheck, log_terms
from nmt.text.language_codes import NAMES, base_language

if TYPE_CHECKING:
    from nmt.documents.document_translator import DocumentTranslator, TranslatedBlocks
    from nmt.translation.guard import Guard
    from nmt.translation.translator import Translator

MAX_WARNINGS = 5
"""Maximum number of sentences of a document whose warnings are logged."""
STANDARD_STREAM = Path("-")
_MAX_QUOTED = 60


class DocumentFile(NamedTuple):
    """A document to translate."""

    path: Path
    """`-`: standard input."""
    output: Path
    """`-`: standard output."""
    parser: Parser


class DocumentJob(NamedTuple):
    """Translates documents and writes their translations."""

    translator: DocumentTranslator
    options: DocumentOptions
    language_check: LanguageCheck
    resume: bool
    """Whether to skip documents that have a translation."""
    force: bool
    """Whether to overwrite translations."""

    def run(self, files: Sequence[DocumentFile]) -> None:
        """Translate documents.

        Raises:
            UsageError: a translation exists already.
            NMTError: a document cannot be translated. Of several, the others are translated.
        """
        files = self._without_done(files)
        num_failed = num_sentences = num_from_memory = 0
        for file in files:
            try:
                result = self._translate(file)
            except (NMTError, OSError) as error:
                if len(files) == 1 or isinstance(error, BrokenPipeError):
                    raise
                if isinstance(error, OSError):
                    error = NMTError(f"{file.path}: {error.strerror}")
                log(f"error: {error.message}")
                num_failed += 1
            else:
                num_sentences += result.num_sentences
                num_from_memory += result.num_from_memory
        if self.translator.memory is not None:
            log(
                f"taken from the translation memory: {num_from_memory:,} of"
                f" {counted(num_sentences, 'sentence')}"
            )
        if num_failed:
            raise NMTError(
                f"{num_failed:,} of {counted(len(files), 'document')} could not be translated",
                "see the errors above; translate the rest again with --resume",
            )
        log_terms(self.translator.translator)

    def _without_done(self, files: Sequence[DocumentFile]) -> Sequence[DocumentFile]:
        """Return the documents to translate: with `resume`, those without a translation."""
        done = [file for file in files if descriptor(file.output) is None and file.output.is_file()]
        if not done or self.force:
            return files
        if not self.resume:
            more = f", and {len(done) - 1:,} more translations already exist" if done[1:] else ""
            raise UsageError(
                f"{done[0].output}{more or ' already exists'}",
                "use --resume to skip them, or --force to overwrite them",
            )
        skipped = set(done)
        log(f"skipped {len(done):,} of {counted(len(files), 'document')}, already translated")
        return [file for file in files if file not in skipped]

    def _translate(self, file: DocumentFile) -> TranslatedBlocks:
        if file.path == STANDARD_STREAM:
            name = "standard input"
            data = sys.stdin.buffer.read()
        else:
            name = str(file.path)
            data = file.path.read_bytes()
        _prepare_output(file.output)
        with _errors_of(name):
            document = file.parser(data, self.options)
        self.language_check.add([block.text for block in document.blocks])
        with progress(None, f"translating {file.path.name}", " sentences") as bar:

            def start(total: int) -> Callable[[float], object]:
                bar.total = total
                return bar.update

            result = self.translator.translate(document.blocks, start)
        log_warnings(name, result)
        with _errors_of(name):
            content = document.render(result.blocks)
        write_file(file.output, content)
        if descriptor(file.output) is None:
            show(str(file.output))
        return result


def load_document_translator(
    translator: Translator | Guard, search: str, memory: Path | None, options: DocumentOptions
) -> DocumentTranslator:
    """Return a translator of documents that uses the file of a translation memory, if there is
    one."""
    from nmt.documents.document_translator import DocumentTranslator
    from nmt.documents.memory import TranslationMemory

    if memory is None:
        return DocumentTranslator(translator, search)
    known = TranslationMemory.load(memory, options.src, options.tgt, options.encoding_errors)
    return DocumentTranslator(translator, search, known)


def _original(file: Path, options: DocumentOptions) -> Path | None:
    """Return the file next to a file of which it is a translation, such as page.html of
    page.de.html, if it exists."""
    name, _, code = file.stem.rpartition(".")
    other_languages = NAMES.keys() - {base_language(options.src)}
    if not name or not (code == options.tgt or base_language(code) in other_languages):
        return None
    original = file.with_name(name + file.suffix)
    return original if original.exists() else None


@contextmanager
def _errors_of(name: str) -> Iterator[None]:
    """Name the document in errors."""
    try:
        yield
    except NMTError as error:
        raise type(error)(f"{name}: {error.message}", error.hint) from None


def document_arguments(arguments: Sequence[str]) -> list[Path]:
    """Return the arguments of `nmt translate` as paths if they are documents or folders; none if
    they are sentences.

    A document is a file with the suffix of a format. A folder is `.`, or written with a separator
    (`docs/`), because its name may also be a word.

    Raises:
        UsageError: there are both documents and sentences, a document does not exist, or a file has
            another suffix.
    """
    found = [_is_document(argument) for argument in arguments]
    if any(found) and not all(found):
        document = arguments[found.index(True)]
        sentence = arguments[found.index(False)]
        raise UsageError(
            f"'{document}' is a document and '{_shorten(sentence)}' a sentence",
            "translate them in two commands",
        )
    return list(map(Path, arguments)) if any(found) else []


def _is_document(argument: str) -> bool:
    try:
        path = Path(argument)
        if path.is_dir():
            return "/" in argument or os.sep in argument or argument in (".", "..")
        if path.suffix.lower() not in FORMATS:
            if path.is_file():
                raise UsageError(
                    f"{argument} is a file, but not a document with one of the suffixes"
                    f" {', '.join(FORMATS)}",
                    conversion_hint(path.suffix)
                    or "--document FORMAT translates it as such a document, "
                    f"--input {argument} line by line; "
                    "to translate the file name as a sentence, use a pipe",
                )
            if not argument.endswith(("/", os.sep)) or "://" in argument:
                if _has_name_of_corpus(argument):
                    log(f"warning: there is no file {argument}, so it is translated as text")
                return False
        if not path.exists() and len(argument.split()) == 1:
            raise UsageError(
                f"no such file or directory: {argument}",
                "to translate the file name as a sentence, use a pipe",
            )
        return path.exists()
    except PermissionError:
        if len(argument.split()) == 1 and Path(argument).suffix.lower() in FORMATS:
            raise
        return False
    except (OSError, ValueError):  # too long for a path, or with a null character
        return False


def _has_name_of_corpus(argument: str) -> bool:
    """Return whether a text looks like the name of a file whose suffix is a language."""
    return len(argument.split()) == 1 and Path(argument).suffix.removeprefix(".") in NAMES


def parser_of_format(name: str) -> Parser:
    """Return the parser for the value of --document.

    Raises:
        UsageError: there is no such format.
    """
    if _suffix(name) not in FORMATS:
        hint = conversion_hint(_suffix(name)) or suggest(name, (each[1:] for each in FORMATS))
        raise UsageError(f"unknown document format '{name}'", hint)
    return parser_of(_suffix(name))


def _suffix(format: str) -> str:
    return f".{format.lower().removeprefix('.')}"


def plan_documents(
    paths: Sequence[Path],
    output: Path | None,
    format: str | None,
    options: DocumentOptions,
    *,
    is_directory: bool = False,
) -> list[DocumentFile]:
    """Return the documents to translate, those of folders too, and the paths of their translations.

    Args:
        paths: files and folders; none: standard input. Translations of others of the files are
            skipped if their outputs would be next to them.
        output: --output; None writes next to each document, or standard input to standard output.
        format: --document; None uses the suffix of each file.
        options: its target language code becomes a part of the name of a translation next to its
            document. Documents of a folder that need an option that is not set are skipped.
        is_directory: whether `output` is a directory, even if it does not exist.

    Raises:
        UsageError: a folder has no documents, the documents have equal outputs, an output is an
            input, or none of the documents has an option that is set.
    """
    if not paths:
        _check_options([_suffix(format or "")], options)
        return [_standard_input(output, format or "")]
    if output is None:
        paths = _without_translations(paths, options)
    found = []
    for path in paths:
        found += _find(path, output, options)
    is_file = _is_single_file(paths, output, is_directory)
    files: dict[Path, DocumentFile] = {}
    for path, relative in found:
        if output is None:
            target = path.with_name(f"{path.stem}.{options.tgt}{path.suffix}")
        else:
            target = output if is_file else output / relative
        if target in files:
            raise UsageError(
                f"{path} and {files[target].path} have the same output: {target}",
                "translate them separately",
            )
        files[target] = DocumentFile(path, target, parser_of_format(format or path.suffix))
    check_not_overwriting(files, (path for path, _ in found))
    _check_options([_suffix(format or path.suffix) for path, _ in found], options)
    return list(files.values())


def _is_single_file(paths: Sequence[Path], output: Path | None, is_directory: bool) -> bool:
    """Return whether `output` is the file of a single translation, and check that it can be."""
    is_single = len(paths) == 1 and not paths[0].is_dir()
    if output == STANDARD_STREAM and not is_single:
        raise UsageError(
            "only one document can be written to standard output", "--output must be a directory"
        )
    if output and output.is_file() and not is_single:
        raise UsageError(f"--output {output} is a file", "several documents need a directory")
    if output and output.is_file() and is_directory:
        raise UsageError(f"--output {output} is a file", "leave out the slash at the end")
    return is_single and not (is_directory or (output and output.is_dir()))


def _standard_input(output: Path | None, format: str) -> DocumentFile:
    return DocumentFile(STANDARD_STREAM, output or STANDARD_STREAM, parser_of_format(format))


def _without_translations(paths: Sequence[Path], options: DocumentOptions) -> list[Path]:
    """Return the paths without translations of others of them: *.html includes those of an earlier
    command."""
    named = set(paths)
    kept = []
    for path in paths:
        original = _original(path, options) if path.stem.endswith(f".{options.tgt}") else None
        if original in named:
            log(f"skipped {path}: it is a translation of {original}")
        else:
            kept.append(path)
    return kept


def _check_options(suffixes: Iterable[str], options: DocumentOptions) -> None:
    if option := ignored_option(suffixes, options):
        raise UsageError(
            f"{option} applies only to {', '.join(SUFFIXES_OF_OPTIONS[option])}", "leave it out"
        )


def _find(path: Path, output: Path | None, options: DocumentOptions) -> list[tuple[Path, Path]]:
    """Return a file, or the documents of a folder, each with its path in the output directory."""
    if path.is_dir():
        return _find_in_folder(path, output, options)
    if not path.exists():
        raise UsageError(
            f"no such file: {path}", f"relative paths are resolved against {Path.cwd()}"
        )
    return [(path, Path(path.name))]


def _find_in_folder(
    folder: Path, output: Path | None, options: DocumentOptions
) -> list[tuple[Path, Path]]:
    found = []
    others: Counter[str] = Counter()
    needed: Counter[str] = Counter()
    num_translations = 0
    for file in _files(folder, output):
        suffix = file.suffix.lower()
        if suffix not in FORMATS:
            others[suffix or "no suffix"] += 1
        elif _original(file, options):
            num_translations += 1
        elif option := missing_option(file, options):
            needed[option] += 1
        else:
            found.append((file, file.relative_to(folder)))
    _log_skipped(folder, others, num_translations, needed)
    if found:
        return found
    if needed:
        raise UsageError(
            f"{folder} has only documents that need {' or '.join(needed)}", "add this option"
        )
    raise UsageError(f"{folder} has no documents", f"suffixes of documents: {', '.join(FORMATS)}")


def _log_skipped(
    folder: Path, others: Counter[str], num_translations: int, needed: Counter[str]
) -> None:
    """Log how many files of a folder have other suffixes, are translations, or need an option."""
    if others:
        kinds = ", ".join(f"{suffix} ({count:,})" for suffix, count in others.most_common())
        verb = "is not a document" if others.total() == 1 else "are not documents"
        log(f"{folder}: {counted(others.total(), 'file')} {verb}: {kinds}")
    if num_translations == 1:
        log(f"{folder}: 1 document is a translation of another")
    elif num_translations:
        log(f"{folder}: {num_translations:,} documents are translations of others")
    for option, count in needed.items():
        log(f"{folder}: skipped {counted(count, 'document')} without {option}")


def _files(directory: Path, output: Path | None) -> Iterator[Path]:
    """Yield the files of a directory tree in order, without hidden ones and without the output
    directory."""

    def fail(error: OSError) -> None:
        raise error

    for name, directories, files in os.walk(directory, onerror=fail):
        parent = Path(name)
        visible = sorted(each for each in directories if not each.startswith("."))
        if output and output.is_dir():
            visible = [each for each in visible if not (parent / each).samefile(output)]
        directories[:] = visible
        yield from (parent / each for each in sorted(files) if not each.startswith("."))


def _prepare_output(output: Path) -> None:
    """Create the directory of an output, so that an error is reported before the translation."""
    if descriptor(output) is not None:
        return
    with write_errors(output, "choose another --output"):
        make_parent(output)
    if output.is_dir() or not os.access(output.parent, os.W_OK):
        reason = "it is a directory" if output.is_dir() else f"{output.parent} is not writable"
        raise NMTError(f"cannot write {output}: {reason}", "choose another --output")


def log_warnings(name: str, result: TranslatedBlocks) -> None:
    """Log the warnings about a document, and how many tags may be on other words."""
    for sentence, warnings in result.warnings[:MAX_WARNINGS]:
        log(f"warning: {name}: '{_shorten(sentence)}': {', '.join(warnings)}")
    if len(result.warnings) > MAX_WARNINGS:
        log(f"{name}: {len(result.warnings):,} of {result.num_sentences:,} sentences have warnings")
    if result.num_doubtful_tags:
        tags = f"{result.num_doubtful_tags:,} of {counted(result.num_tags, 'tag')}"
        log(f"{name}: {tags} may be on other words, because the word alignment is weak")


def _shorten(text: str) -> str:
    return text if len(text) <= _MAX_QUOTED else f"{text[:_MAX_QUOTED]}…"
