"""Corpora that a command reads from files or from a config, and the files that it writes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nmt.core.console import log
from nmt.core.errors import DataError, UsageError

if TYPE_CHECKING:
    from nmt.core.config import DataConfig
    from nmt.data.pairs import Pair
    from nmt.data.sources import Split
    from nmt.data.sources.files import Files

    TestSet = tuple[str, list[Pair]]

SourceArgument = Annotated[
    str | None,
    typer.Argument(
        help=(
            "Source file; or a table (.csv, .tsv, .jsonl, .parquet), .tmx file or archive with both"
            " languages; or files(...) with options."
        ),
        show_default=False,
    ),
]
TargetArgument = Annotated[
    Path | None, typer.Argument(help="Target file, aligned by line.", show_default=False)
]
CorpusConfigOption = Annotated[
    str | None,
    typer.Option(
        "--config",
        "-c",
        help="Read the training data of this config: a YAML file or a built-in name.",
    ),
]
SourceLanguageOption = Annotated[
    str, typer.Option(help="Source language code.", show_default="the file extension")
]
TargetLanguageOption = Annotated[
    str, typer.Option(help="Target language code.", show_default="the file extension")
]
TEXT_SUFFIXES = ("txt", "text")
"""Suffixes of text files that look like language codes."""


@dataclass
class CorpusInputs:
    """The corpora to read, and the test sets that they must not overlap with."""

    languages: tuple[str, str]
    corpora: list[Split]
    test_sets: list[TestSet] = field(default_factory=list)
    files: list[Path] = field(default_factory=list)
    """Files of held-out sets, which must not be overwritten, either."""


def has_both_languages(name: str) -> bool:
    """Return whether a file, or the spec of a corpus, has both languages."""
    from nmt.data.sources import files

    return _is_spec(name) or files.has_both_languages(Path(name))


def _is_spec(name: str) -> bool:
    return "(" in name and not Path(name).exists()


def file_corpora(
    src: str,
    tgt: Path | None,
    src_lang: str,
    tgt_lang: str,
    encoding_errors: str,
    *,
    with_tests: bool = False,
) -> CorpusInputs:
    """Return the corpus of two files, of a file with both languages, or of a spec; see
    `pair_corpus` for `with_tests`."""
    from nmt.data.pairs import count_lines, open_text, read_pairs
    from nmt.data.sources import Split
    from nmt.data.sources.files import pair_format

    if tgt is None:
        return pair_corpus(src, src_lang, tgt_lang, encoding_errors, with_tests=with_tests)
    src_path = Path(src)
    for path in (src_path, tgt):
        if pair_format(path) != "tsv" and has_both_languages(str(path)):
            raise UsageError(f"{path} has both languages", "pass this file alone")
    open_text(src_path).close()  # before test sets are downloaded
    languages = (src_lang or _language_of_file(src_path), tgt_lang or _language_of_file(tgt))
    read_files = partial(read_pairs, src_path, tgt, errors=encoding_errors)
    count = partial(count_lines, src_path)
    corpus = Split(src, "", read_files, count, (src_path, tgt))
    return CorpusInputs(languages, [corpus])


def _language_of_file(path: Path) -> str:
    """Return the language code that the suffix of a file is; empty if it is that of a text."""
    from nmt.data.sources.files import language_suffix

    suffix = language_suffix(path)
    return "" if suffix.lower() in TEXT_SUFFIXES else suffix


def pair_corpus(
    name: str, src_lang: str, tgt_lang: str, encoding_errors: str, *, with_tests: bool = False
) -> CorpusInputs:
    """Return all pairs of a file with both languages, or the training text of the spec of a corpus;
    with `with_tests` also the validation and test sets that the spec names.

    Raises:
        UsageError: it is another file, or its languages must be named.
        DataError: see `nmt.data.sources.open_split`.
    """
    from nmt.data.pairs import open_text
    from nmt.data.sources import get_corpus
    from nmt.data.sources.files import Files

    if not has_both_languages(name):
        open_text(Path(name)).close()
        raise UsageError(
            f"{name} has one language",
            "pass two files, or one with both: .tsv, .csv, .tmx, .zip, ...",
        )
    corpus = get_corpus(name) if _is_spec(name) else Files(train=name)
    if isinstance(corpus, Files):
        errors = corpus.errors if encoding_errors == "strict" else encoding_errors
        corpus = replace(corpus, hold_out=False, errors=errors)
        src_lang = src_lang or _language_of(corpus.src)
        tgt_lang = tgt_lang or _language_of(corpus.tgt)
        if not (src_lang or tgt_lang or _is_spec(name)):
            src_lang, tgt_lang = _languages_of_head(Path(name), errors)
    has_columns = isinstance(corpus, Files) and all(map(corpus.is_table, corpus.splits))
    if not has_columns and not (src_lang and tgt_lang):
        raise UsageError(
            f"the languages to read from {name} are unknown", "set --src-lang and --tgt-lang"
        )
    split = corpus.open("train", src_lang, tgt_lang)
    inputs = CorpusInputs((src_lang, tgt_lang), [replace(split, name=name)])
    if isinstance(corpus, Files):
        _add_named_splits(inputs, corpus, with_tests=with_tests)
    return inputs


def _add_named_splits(inputs: CorpusInputs, corpus: Files, *, with_tests: bool) -> None:
    """Add the files of the validation and test sets that a spec names, and with `with_tests` the
    sets."""
    from nmt.data.sources.datasets import Datasets
    from nmt.evaluate.test_sets import split_test_pairs

    for name in ("valid", "test"):
        if name not in corpus.splits:
            continue
        held_out = corpus.open(name, *inputs.languages)
        inputs.files += held_out.files
        if with_tests:
            inputs.test_sets += split_test_pairs(held_out)
    others = corpus.other_splits if isinstance(corpus, Datasets) else []
    for folder in others:
        log(f"not reading the split {folder.name}; to read it, pass \"files(train='{folder}')\"")


def _languages_of_head(path: Path, errors: str) -> tuple[str, str]:
    """Return the two languages that the first row of a text file names; empty if it does not."""
    from nmt.data.pairs import read_lines
    from nmt.data.sources.files import pair_format
    from nmt.text.language_codes import find_language

    if pair_format(path) not in ("tsv", "csv"):
        return "", ""
    head = next(read_lines(path, errors), "")
    languages = list(filter(None, map(find_language, re.split("[\t,;|]", head))))
    if len(languages) != 2 or languages[0] == languages[1]:
        return "", ""
    return languages[0], languages[1]


def _language_of(column: object) -> str:
    """Return the language of a column that has its code as name, such as `translation.en`;
    otherwise an empty string."""
    from nmt.text.language_codes import NAMES

    first = column[0] if isinstance(column, tuple | list) and column else column
    code = str(first).rpartition(".")[2]
    return code if code in NAMES else ""


def config_corpora(name: str, overrides: list[str], *, with_tests: bool) -> CorpusInputs:
    """Return the training corpora of a config, the files of its held-out sets, and these sets with
    `with_tests`."""
    from nmt.core.config import config_io
    from nmt.data.sources import open_split

    data = config_io.load_named(name, overrides).data
    specs = (*data.train, *data.replay)
    corpora = [open_split(spec, "train", data.src, data.tgt) for spec in specs]
    inputs = CorpusInputs((data.src, data.tgt), corpora)
    missing: dict[str, list[str]] = {}
    for split in ("valid", "test"):
        message = _add_held_out(inputs, data, split, with_tests=with_tests)
        if message:
            missing.setdefault(message, []).append(split)
    for message, splits in missing.items():
        names = " and ".join(splits)
        log(f"not checking for overlap with the {names} data: {message}")
    return inputs


def _add_held_out(inputs: CorpusInputs, data: DataConfig, split: str, *, with_tests: bool) -> str:
    """Add the files of a held-out set, and with `with_tests` the set; return why it cannot be read,
    or ""."""
    from nmt.data.sources import get_corpus
    from nmt.data.sources.files import Files
    from nmt.evaluate.test_sets import split_test_pairs

    spec = data.valid if split == "valid" else data.test
    corpus = get_corpus(spec or data.train[0])
    if not with_tests and not corpus.is_installed:
        return ""
    try:
        held_out = corpus.open(split, data.src, data.tgt)
        inputs.files += held_out.files
        if with_tests:
            inputs.test_sets += split_test_pairs(held_out)
    except DataError as error:
        has_split = isinstance(corpus, Files) and split in corpus.splits
        if with_tests and (spec or has_split):
            raise
        return error.message if with_tests else ""
    return ""


def output_files(
    prefix: Path, languages: tuple[str, str], option: str, suffix: str = ""
) -> tuple[Path, Path]:
    """Return the two files of a corpus that a command writes.

    Raises:
        UsageError: the prefix of `option` has no name.
    """
    if prefix.name in ("", ".."):
        raise UsageError(
            f"{option} {prefix} names no files",
            f"for example, {option} clean writes clean.en and clean.de",
        )
    src, tgt = languages
    endings = (src or "src", tgt or "tgt")
    if endings[0] == endings[1]:
        endings = ("src", "tgt")
    first, second = [prefix.with_name(f"{prefix.name}.{ending}{suffix}") for ending in endings]
    return first, second


def work_directory_of(name: str, inputs: CorpusInputs, options: Iterable[str]) -> Path:
    """Return the directory for files of a command with these inputs, whose path depends on their
    content and on the options."""
    from nmt.core.paths import data_dir
    from nmt.core.version import __version__
    from nmt.data.sources.corpus import hash_files, hash_strings

    content = [__version__, *inputs.languages, *options]
    for corpus in inputs.corpora:
        checksum = corpus.checksum or " ".join(hash_files(corpus.files))
        content += [corpus.name, checksum]
    content.append(json.dumps(inputs.test_sets))
    return data_dir() / name / hash_strings(*content)[:16]
