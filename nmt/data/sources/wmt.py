"""The German-English news translation tasks of WMT."""

from __future__ import annotations

from nmt.data.sources.corpus import CorpusInfo
from nmt.data.sources.downloadable import DownloadableCorpus
from nmt.data.sources.hub import hub

_PAGE = "https://huggingface.co/datasets/wmt"
_LICENSE = "research; varies by source corpus (statmt.org)"


def wmt14() -> DownloadableCorpus:
    """The WMT 2014 corpus; the validation split is newstest2013, the test split newstest2014."""
    return hub("wmt14", "wmt/wmt14", CorpusInfo(4_514_788, 818_467_512, _LICENSE, f"{_PAGE}/wmt14"))


def wmt16() -> DownloadableCorpus:
    """The WMT 2016 corpus; the validation split is newstest2015, the test split newstest2016."""
    return hub("wmt16", "wmt/wmt16", CorpusInfo(4_554_053, 827_152_589, _LICENSE, f"{_PAGE}/wmt16"))


def wmt17() -> DownloadableCorpus:
    """The WMT 2017 corpus; the validation split is newstest2016, the test split newstest2017."""
    return hub("wmt17", "wmt/wmt17", CorpusInfo(5_912_187, 1_011_327_465, _LICENSE, f"{_PAGE}/wmt17"))


def wmt19() -> DownloadableCorpus:
    """The WMT 2019 corpus with ParaCrawl; the validation split is newstest2018, and there is no test split."""
    return hub("wmt19", "wmt/wmt19", CorpusInfo(34_785_243, 4_600_000_000, _LICENSE, f"{_PAGE}/wmt19"))
