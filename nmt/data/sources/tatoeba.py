"""Everyday sentences of Tatoeba, in the bilingual version of manythings.org."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from nmt.data.archives import SourceFile
from nmt.data.pairs import read_tsv
from nmt.data.sources.corpus import CorpusInfo, SplitReaders
from nmt.data.sources.downloadable import DownloadableCorpus, RemoteFile

URL = "https://www.manythings.org/anki/deu-eng.zip"


def tatoeba() -> DownloadableCorpus:
    """Short everyday sentences, many with several German translations."""
    return DownloadableCorpus(
        name="tatoeba",
        info=CorpusInfo(
            330_000, 10_000_000, "CC BY 2.0 FR (manythings.org/anki, tatoeba.org)", URL
        ),
        list_files=lambda: [RemoteFile("deu-eng.zip", URL)],
        find_splits=_find_splits,
        expected_files="deu-eng.zip or a directory with deu.txt",
        archive="deu-eng.zip",
        needs_holdout=True,
    )


def _find_splits(files: Sequence[SourceFile], errors: str) -> SplitReaders:
    paths = [path for path in files if path.name == "deu.txt"]
    return {"train": partial(read_tsv, paths[0], errors)} if paths else {}
