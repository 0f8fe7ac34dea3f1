"""Search algorithms. A spec string such as `beam(beam_size=4)` selects one.

Each is a frozen dataclass whose fields are its options. Options are validated on construction.
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
    """Searches for the best translations of a batch."""

    @property
    def rows(self) -> int:
        """Number of rows per sentence in a batch."""

    @property
    def n_best(self) -> int:
        """Maximum number of hypotheses returned per sentence."""

    def __call__(self, model: StepModel, request: SearchRequest) -> list[list[Hypothesis]]:
        """Return the hypotheses of each sentence, best first."""


SEARCHES: dict[str, Callable[..., Search]] = {
    "greedy": Greedy,
    "beam": Beam,
    "diverse": Diverse,
    "constrained": Constrained,
    "sample": Sample,
    "mbr": MBR,
}

__all__ = ["SEARCHES", "Constrained", "Hypothesis", "Search", "SearchRequest", "StepModel", "parse_search"]


def parse_search(spec: str) -> Search:
    """Return the search that a spec string describes.

    Raises:
        ConfigError: unknown search or option, or an option is out of range.
    """
    return resolve("search", SEARCHES, spec)()
