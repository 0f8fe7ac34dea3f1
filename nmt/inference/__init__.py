"""Translation of ids: engines that run our own models, or that were given one. Text is `nmt.translate`'s subject.

An engine takes ids without start and end, keeps their order, and makes batches as it likes; a sentence's result does
not depend on its batch. (PyTorch's products round differently for other batch sizes: where it computes, some sentences
in ten thousand may differ in bf16.)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from nmt.search import Hypothesis, Search
from nmt.search.request import Floats


@dataclass(frozen=True)
class Source:
    """A sentence to translate."""

    ids: Sequence[int]
    prefix: Sequence[int] = ()
    """Ids that the translation must begin with."""
    constraints: Sequence[Sequence[int]] = ()
    """Runs of ids that must appear in it."""


@dataclass(frozen=True)
class TokenScores:
    """A model's scores of a given translation. T counts its tokens and the end."""

    log_probs: list[float]
    """Of each token and the end, in nats."""
    attention_TS: Floats | None
    """Cross-attention of each of them to the source, the end of which is the last; None: the engine cannot say."""


class Engine(Protocol):
    """Translates ids."""

    @property
    def max_positions(self) -> int | None:
        """Tokens a sentence may have, start or end counted; None: there is no limit."""

    def search(
        self, sources: Sequence[Source], search: Search, on_progress: Callable[[int], object]
    ) -> list[list[Hypothesis]]:
        """Return each sentence's hypotheses, best first; `on_progress` is called with how many more are done."""

    def score(self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> list[TokenScores]:
        """Score given translations, in float32 where the engine can."""
