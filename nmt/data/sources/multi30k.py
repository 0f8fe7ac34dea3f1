"""Multi30k: English image captions with German translations and standard splits."""

from __future__ import annotations

from nmt.data.sources.corpus import CorpusInfo
from nmt.data.sources.downloadable import DownloadableCorpus, RemoteFile

_STEMS = {"train": "train", "valid": "val", "test": "test_2016_flickr"}
_RAW = "https://raw.githubusercontent.com/multi30k/dataset/master/data/task1/raw"


def multi30k() -> DownloadableCorpus:
    """Captions of Flickr images (Elliott et al. 2016); the test set is test_2016_flickr."""
    names = [f"{stem}.{language}.gz" for stem in _STEMS.values() for language in ("en", "de")]
    return DownloadableCorpus(
        name="multi30k",
        info=CorpusInfo(31_014, 1_300_000, "research only", "https://github.com/multi30k/dataset"),
        list_files=lambda: [RemoteFile(name, f"{_RAW}/{name}") for name in names],
        find_splits=lambda files, errors: {},
        expected_files=f"a directory with {names[0]} and the other files",
        split_stems=_STEMS,
    )
