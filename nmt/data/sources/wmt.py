"""The news translation tasks of WMT, German-English: the data that papers report on."""

from __future__ import annotations

from nmt.data.sources.corpus import About
from nmt.data.sources.hub import hub
from nmt.data.sources.published import Published

_PAGE = "https://huggingface.co/datasets/wmt"
_LICENCE = "research; each part its own (statmt.org)"


def wmt14() -> Published:
    """Europarl, Common Crawl and News Commentary; valid is newstest2013, test newstest2014 (the Transformer's task)."""
    return hub("wmt14", "wmt/wmt14", About(4_514_788, 818_467_512, _LICENCE, f"{_PAGE}/wmt14"))


def wmt16() -> Published:
    """Valid is newstest2015, test newstest2016."""
    return hub("wmt16", "wmt/wmt16", About(4_554_053, 827_152_589, _LICENCE, f"{_PAGE}/wmt16"))


def wmt17() -> Published:
    """Valid is newstest2016, test newstest2017."""
    return hub("wmt17", "wmt/wmt17", About(5_912_187, 1_011_327_465, _LICENCE, f"{_PAGE}/wmt17"))


def wmt19() -> Published:
    """With ParaCrawl; valid is newstest2018, and there is no test split."""
    return hub("wmt19", "wmt/wmt19", About(34_785_243, 4_600_000_000, _LICENCE, f"{_PAGE}/wmt19"))
