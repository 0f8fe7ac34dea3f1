"""Registry of corpora. A new corpus is a function in a module of this package and an entry of `SOURCES`."""

from __future__ import annotations

from collections.abc import Callable

from nmt.data.sources import files, multi30k, opus, phrasebook, tatoeba, wmt
from nmt.data.sources.corpus import SPLITS, Corpus, Split
from nmt.errors import DataError
from nmt.registry import resolve

__all__ = ["SOURCES", "SPLITS", "Corpus", "Split", "get_corpus", "open_split", "validate"]

SOURCES: dict[str, Callable[..., Corpus]] = {
    "phrasebook": phrasebook.phrasebook,
    "tatoeba": tatoeba.tatoeba,
    "multi30k": multi30k.multi30k,
    "wmt14": wmt.wmt14,
    "wmt16": wmt.wmt16,
    "wmt17": wmt.wmt17,
    "wmt19": wmt.wmt19,
    "europarl": opus.europarl,
    "news-commentary": opus.news_commentary,
    "opus100": opus.opus100,
    "opus": opus.opus,
    "files": files.files,
}


def get_corpus(spec: str) -> Corpus:
    """Return the corpus of a spec string without accessing the disk or the network.

    Raises:
        ConfigError: the corpus or an option is unknown.
    """
    return resolve("corpus", SOURCES, spec)()


def validate(spec: str) -> None:
    """Raise a ConfigError if a spec string is invalid, without accessing the disk or the network."""
    get_corpus(spec).validate()


def open_split(spec: str, split: str, src: str, tgt: str) -> Split:
    """Return a split of a corpus in the direction src to tgt; download the corpus first if necessary.

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
    return get_corpus(spec).open(split, src, tgt)
