"""Corpora by name. Adding one is a file here with one function and a line in `SOURCES`."""

from __future__ import annotations

from collections.abc import Callable

from nmt.data.sources import files, multi30k, opus, phrasebook, tatoeba, wmt
from nmt.data.sources.corpus import SPLITS, Corpus, Split
from nmt.errors import DataError
from nmt.registry import resolve

__all__ = ["SOURCES", "SPLITS", "Corpus", "Split", "find", "open_split", "validate"]

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


def find(spec: str) -> Corpus:
    """Return the corpus that a spec string names, without touching disk or network.

    Raises:
        ConfigError: unknown corpus or option.
    """
    return resolve("corpus", SOURCES, spec)()


def validate(spec: str) -> None:
    """Raise a ConfigError where a spec names no corpus or has wrong options; cheap enough for reading a config."""
    find(spec).check()


def open_split(spec: str, split: str, src: str, tgt: str) -> Split:
    """Return a split of a corpus in the direction src to tgt; a published corpus is downloaded first if need be.

    Args:
        spec: `tatoeba`, or with options `files(train='my/corpus')`.
        split: train, valid or test.
        src: language code of the source side.
        tgt: language code of the target side.

    Raises:
        ConfigError: unknown corpus or option.
        DataError: no such split or language pair, or the text is damaged.
        DownloadError: the corpus could not be fetched.
    """
    if split not in SPLITS:
        raise DataError(f"unknown split '{split}'", f"known: {', '.join(SPLITS)}")
    if src == tgt:
        raise DataError(f"source and target are both '{src}'")
    return find(spec).open(split, src, tgt)
