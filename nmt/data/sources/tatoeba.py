"""Everyday sentences of Tatoeba in the bilingual pairs that manythings.org publishes for Anki."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from nmt.data.pairs import read_tsv
from nmt.data.sources.corpus import CorpusInfo, Texts
from nmt.data.sources.published import DownloadableCorpus, Remote

URL = "https://www.manythings.org/anki/deu-eng.zip"


def tatoeba() -> DownloadableCorpus:
    """Short everyday sentences, English TAB German, many German versions of one English sentence."""
    return DownloadableCorpus(
        name="tatoeba",
        about=CorpusInfo(330_000, 10_000_000, "CC BY 2.0 FR (manythings.org/anki, tatoeba.org)", URL),
        remotes=lambda: [Remote("deu-eng.zip", URL)],
        read=_read,
        expects="deu-eng.zip or a folder with deu.txt",
        archive="deu-eng.zip",
        hold_out=True,
    )


def _read(files: Sequence[Path], errors: str) -> Texts:
    found = [path for path in files if path.name == "deu.txt"]
    return {"train": partial(read_tsv, found[0], errors)} if found else {}
