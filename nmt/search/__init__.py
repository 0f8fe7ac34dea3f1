"""Searches for the best translation. Each is one file with one function, named in config by a spec string.

`Search(model, src_BS, src_mask_BS, max_len_B, bos, eos, *, options) -> list[list[Hypothesis]]`, best first.
"""

from __future__ import annotations

from collections.abc import Callable

from nmt.registry import resolve
from nmt.search import beam as beam_module
from nmt.search.beam import beam
from nmt.search.greedy import greedy
from nmt.search.hypothesis import Hypothesis

Search = Callable[..., list[list[Hypothesis]]]

SEARCHES: dict[str, Search] = {"greedy": greedy, "beam": beam}

__all__ = ["SEARCHES", "Hypothesis", "Search", "search"]


def search(spec: str) -> Search:
    """Resolve a search's spec string.

    Raises:
        ConfigError: unknown search or option, or an option out of range.
    """
    function = resolve("search", SEARCHES, spec)
    if spec.strip().startswith("beam"):
        beam_module.check(**getattr(function, "keywords", {}))
    return function
