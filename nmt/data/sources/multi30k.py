"""Multi30k: image captions, English originals and German translations, with the splits everyone reports on."""

from __future__ import annotations

from nmt.data.sources.corpus import CorpusInfo
from nmt.data.sources.published import DownloadableCorpus, Remote

_STEMS = {"train": "train", "valid": "val", "test": "test_2016_flickr"}
_RAW = "https://raw.githubusercontent.com/multi30k/dataset/master/data/task1/raw"


def multi30k() -> DownloadableCorpus:
    """Captions of Flickr images (Elliott et al. 2016); test is test_2016_flickr."""
    names = [f"{stem}.{language}.gz" for stem in _STEMS.values() for language in ("en", "de")]
    return DownloadableCorpus(
        name="multi30k",
        about=CorpusInfo(31_014, 1_300_000, "research only", "https://github.com/multi30k/dataset"),
        remotes=lambda: [Remote(name, f"{_RAW}/{name}") for name in names],
        read=lambda files, errors: {},
        expects=f"a folder with {names[0]} and its like",
        stems=_STEMS,
    )
