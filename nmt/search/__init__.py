"""Search algorithms. A spec string such as `beam(beam_size=4)` selects one.

Each is a frozen dataclass whose fields are its options. `parse_search` checks their ranges.
"""

from __future__ import annotations

from collections.abc import Callable

from nmt.core.plugins import Components, Lazy
from nmt.core.registry import resolve
from nmt.search.request import Hypothesis, Search, SearchRequest, StepModel

__all__ = [
    "SEARCHES",
    "Hypothesis",
    "Search",
    "SearchRequest",
    "StepModel",
    "parse_search",
]


def parse_search(spec: str) -> Search:
    """Return the search that a spec string describes.

    Raises:
        ConfigError: unknown search or option, or an option is out of range.
    """
    return resolve("search", SEARCHES, spec)()


def _mbr(*, candidates: str = "sample(n_best=32)", n_best: int = 1) -> Search:
    """Return an MBR search of the candidates of another search, which a spec string describes."""
    from nmt.search.mbr import MBR

    return MBR(candidates=parse_search(candidates), n_best=n_best)


SEARCHES: Components[Callable[..., Search]] = Components(
    "search",
    {
        "greedy": Lazy("nmt.search.greedy", "Greedy"),
        "beam": Lazy("nmt.search.beam", "Beam"),
        "diverse": Lazy("nmt.search.diverse", "Diverse"),
        "constrained": Lazy("nmt.search.constrained", "Constrained"),
        "sample": Lazy("nmt.search.sample", "Sample"),
        "mbr": _mbr,
    },
    is_valid=callable,
)
