"""Corpora that a command reads from files or from a config, and the files that it writes."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
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

    TestSet = tuple[str, list[Pair]]

SourceArgument = Annotated[
    Path | None,
    typer.Argument(
        help="Source file, or a .tsv or .tmx file with both languages.", show_default=False
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


@dataclass
class CorpusInputs:
    """The corpora to read, and the test sets that they must not overlap with."""

    languages: tuple[str, str]
    corpora: list[Split]
    test_sets: list[TestSet] = field(default_factory=list)
    files: list[Path] = field(default_factory=list)
    """Files of held-out sets, which must not be overwritten, either."""


def file_corpora(
    src: Path, tgt: Path | None, src_lang: str, tgt_lang: str, encoding_errors: str
) -> CorpusInputs:
    """Return the corpus of two files, or of a file with both languages."""
    from nmt.data.pairs import count_lines, open_text, read_pairs, read_tsv
    from nmt.data.sources import Split
    from nmt.data.sources.files import language_suffix, pair_format
    from nmt.data.tmx import read_tmx

    open_text(src).close()  # before test sets are downloaded
    count = partial(count_lines, src)
    if tgt is None and pair_format(src) == "tsv":
        read_table = partial(read_tsv, src, encoding_errors)
        corpus = Split(str(src), "", read_table, count, (src,))
        return CorpusInputs((src_lang, tgt_lang), [corpus])
    if tgt is None:
        if not src_lang or not tgt_lang:
            raise UsageError(
                f"the languages to read from {src} are unknown", "set --src-lang and --tgt-lang"
            )
        read_memory = partial(read_tmx, src, src_lang, tgt_lang, encoding_errors)
        corpus = Split(str(src), "", read_memory, files=(src,))
        return CorpusInputs((src_lang, tgt_lang), [corpus])
    for path in (src, tgt):
        if pair_format(path) == "tmx":
            raise UsageError(f"{path} has both languages", f"pass one file: nmt data check {path}")
    languages = (src_lang or language_suffix(src), tgt_lang or language_suffix(tgt))
    read_files = partial(read_pairs, src, tgt, errors=encoding_errors)
    corpus = Split(str(src), "", read_files, count, (src, tgt))
    return CorpusInputs(languages, [corpus])


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

    spec = data.valid if split == "valid" else data.test
    corpus = get_corpus(spec or data.train[0])
    if not with_tests and not corpus.is_installed:
        return ""
    try:
        held_out = corpus.open(split, data.src, data.tgt)
        inputs.files += held_out.files
        if with_tests:
            pairs = list(held_out.pairs())
            inputs.test_sets.append((held_out.name, pairs))
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
