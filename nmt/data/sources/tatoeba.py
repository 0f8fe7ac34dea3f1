"""Everyday sentences of Tatoeba, in the bilingual version of manythings.org."""

from __future__ import annotations

from functools import partial

from nmt.data.pairs import read_tsv
from nmt.data.sources.corpus import CorpusInfo
from nmt.data.sources.downloadable import DownloadableCorpus, RemoteFile, find_named

URL = "https://www.manythings.org/anki/deu-eng.zip"


def tatoeba() -> DownloadableCorpus:
    """Short everyday sentences, many with several German translations."""
    return DownloadableCorpus(
        name="tatoeba",
        info=CorpusInfo(
            330_000, 10_000_000, "CC BY 2.0 FR (manythings.org/anki, tatoeba.org)", URL
        ),
        list_files=lambda: [RemoteFile("deu-eng.zip", URL)],
        find_splits=partial(find_named, names={"train": ["deu.txt"]}, read=read_tsv),
        expected_files="deu-eng.zip or a directory with deu.txt",
        archive="deu-eng.zip",
        needs_holdout=True,
    )
