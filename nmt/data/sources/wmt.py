"""The German-English news translation tasks of WMT; the validation split is the test set of the
year before."""

from __future__ import annotations

from collections.abc import Callable

from nmt.data.sources.corpus import CorpusInfo
from nmt.data.sources.downloadable import DownloadableCorpus
from nmt.data.sources.hub import hub

_SIZES = {  # pairs and bytes
    "wmt14": (4_514_788, 818_467_512),
    "wmt16": (4_554_053, 827_152_589),
    "wmt17": (5_912_187, 1_011_327_465),
    "wmt19": (34_785_243, 4_600_000_000),  # with ParaCrawl, without a test split
}


def _source(name: str) -> Callable[[], DownloadableCorpus]:
    page = f"https://huggingface.co/datasets/wmt/{name}"
    info = CorpusInfo(*_SIZES[name], "research; varies by source corpus (statmt.org)", page)
    return lambda: hub(name, f"wmt/{name}", info)


SOURCES = {name: _source(name) for name in _SIZES}
