"""Searches for the best translation. Each is one file with one class, named in config by a spec string.

A search is a frozen dataclass: its fields are its options, checked when it is made, and
`search(model, request) -> list[list[Hypothesis]]`, best first, is its call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from nmt.registry import resolve
from nmt.search.beam import Beam
from nmt.search.constrained import Constrained
from nmt.search.diverse import Diverse
from nmt.search.greedy import Greedy
from nmt.search.mbr import MBR
from nmt.search.request import Hypothesis, SearchRequest, StepModel
from nmt.search.sample import Sample


class Search(Protocol):
    """Finds the best translations of a batch."""

    @property
    def rows(self) -> int:
        """Rows of a batch for each sentence."""

    @property
    def n_best(self) -> int:
        """Maximum number of hypotheses returned per sentence."""

    def __call__(self, model: StepModel, request: SearchRequest) -> list[list[Hypothesis]]:
        """Return each sentence's hypotheses, best first."""


SEARCHES: dict[str, Callable[..., Search]] = {
    "greedy": Greedy,
    "beam": Beam,
    "diverse": Diverse,
    "constrained": Constrained,
    "sample": Sample,
    "mbr": MBR,
}

__all__ = ["SEARCHES", "Constrained", "Hypothesis", "Search", "SearchRequest", "StepModel", "search"]


def search(spec: str) -> Search:
    """Resolve a search's spec string.

    Raises:
        ConfigError: unknown search or option, or an option out of range.
    """
    return resolve("search", SEARCHES, spec)()
