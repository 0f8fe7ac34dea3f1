"""Registry of corpora. A new corpus is a function or a class in a module of this package and an
entry of `SOURCES`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from nmt.core.config import DataConfig
from nmt.core.errors import ConfigError, DataError
from nmt.core.plugins import Components, wrong_result
from nmt.core.registry import format_spec, options_of, parse, resolve
from nmt.data.sources import (
    benchmarks,
    datasets,
    files,
    hub,
    mtdata,
    multi30k,
    phrasebook,
    published,
    tatoeba,
)
from nmt.data.sources.corpus import SPLITS, CorpusInfo, CorpusOptions, Split

__all__ = [
    "SOURCES",
    "SPLITS",
    "Corpus",
    "CorpusOptions",
    "Split",
    "get_corpus",
    "open_split",
    "parse_corpus",
    "validate",
    "validate_all",
    "without_corpus_options",
]


class Corpus(Protocol):
    """A corpus with its options. Creating one reads no files and opens no connections."""

    @property
    def name(self) -> str:
        """Name in messages."""

    @property
    def info(self) -> CorpusInfo:
        """Description for `nmt data list`."""

    @property
    def is_installed(self) -> bool:
        """Whether it needs no download."""

    def validate(self) -> None:
        """Raise a ConfigError if an option is invalid, without reading files."""

    def open(self, split: str, src: str, tgt: str) -> Split:
        """Return a split in the direction src to tgt.

        Raises:
            DataError: the split or language pair does not exist.
        """


SOURCES: Components[Callable[..., Corpus]] = Components(
    "corpus",
    {
        "phrasebook": phrasebook.Phrasebook,
        "tatoeba": tatoeba.tatoeba,
        "multi30k": multi30k.multi30k,
        **hub.SOURCES,
        **published.SOURCES,
        "mtdata": mtdata.mtdata,
        **benchmarks.SOURCES,
        "files": files.Files,
        "datasets": datasets.Datasets,
    },
)


def get_corpus(spec: str) -> Corpus:
    """Return the corpus of a spec string without accessing the disk or the network.

    Raises:
        ConfigError: the corpus or an option is unknown.
    """
    return parse_corpus(spec)[0]


def parse_corpus(spec: str) -> tuple[Corpus, CorpusOptions]:
    """Return the corpus of a spec string as `get_corpus` does, and the options that every training
    corpus has."""
    if "(" not in spec and files.has_both_languages(Path(spec)):
        raise ConfigError(f"{spec} is a file, not a corpus", f"write files(train='{spec}')")
    name, options = parse(spec)
    corpus_options = {key: options.pop(key) for key in options_of(CorpusOptions) if key in options}
    corpus = resolve(
        "corpus", SOURCES, format_spec(name, options), shared_options=options_of(CorpusOptions)
    )()
    return corpus, resolve("corpus", {name: CorpusOptions}, format_spec(name, corpus_options))()


def without_corpus_options(spec: str) -> str:
    """Return a spec string without the options of `CorpusOptions`, for validation and test sets."""
    name, options = parse(spec)
    own = {key: value for key, value in options.items() if key not in options_of(CorpusOptions)}
    return format_spec(name, own) if own else name


def validate(spec: str) -> None:
    """Raise a ConfigError if a spec string is invalid, without accessing the disk or the
    network."""
    get_corpus(spec).validate()


def validate_all(data: DataConfig) -> None:
    """Raise a ConfigError if the spec string of a corpus is invalid, without accessing the disk or
    the network."""
    for spec in (*data.train, *data.replay):
        validate(spec)
    for key, spec in (("valid", data.valid), ("test", data.test)):
        if spec:
            validate(spec)
            if parse_corpus(spec)[1] != CorpusOptions():
                raise ConfigError(
                    f"data.{key}: weight and tag are options of training corpora", "leave them out"
                )


def open_split(spec: str, split: str, src: str, tgt: str) -> Split:
    """Return a split of a corpus in the direction src to tgt; download the corpus first if
    necessary.

    Args:
        spec: name of a corpus, optionally with options: `tatoeba`, `files(train='my/corpus')`.
        split: train, valid or test.
        src: language code of the source.
        tgt: language code of the target.

    Raises:
        ConfigError: the corpus or an option is unknown.
        DataError: the split or language pair does not exist, or the text is corrupted.
        DownloadError: the corpus cannot be downloaded.
    """
    if split not in SPLITS:
        raise DataError(f"unknown split '{split}'", f"known: {', '.join(SPLITS)}")
    if src == tgt:
        raise DataError(f"source and target are both '{src}'")
    opened = get_corpus(spec).open(split, src, tgt)
    if not isinstance(opened, Split):
        raise wrong_result(f"open of the corpus '{parse(spec)[0]}'", opened, "a Split")
    return opened
