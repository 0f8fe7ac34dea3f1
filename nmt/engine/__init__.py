"""What translates ids: our own models, or an engine that was given one. Text is `nmt.translate`'s matter.

An engine takes piece ids without start and end, keeps their order, and makes batches as it likes; a sentence's result
does not depend on its company. (Without a C compiler it may: in int8, which then rounds by the largest number in a
batch, and of some sentences in ten thousand in bf16, since products of other numbers of rows round otherwise.)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from nmt.search import Hypothesis, Search


@dataclass(frozen=True)
class Query:
    """A sentence to translate."""

    ids: Sequence[int]
    prefix: Sequence[int] = ()
    """Ids that the translation must begin with."""
    phrases: Sequence[Sequence[int]] = ()
    """Runs of ids that must appear in it."""


@dataclass(frozen=True)
class Scored:
    """A given translation, as a model sees it. T counts its tokens and the end."""

    log_probs: list[float]
    """Of each token and the end, in nats."""
    seen_TS: Tensor | None
    """Where each of them looked in the source, the end of which is the last; None: the engine cannot say."""


class Engine(Protocol):
    """Translates ids."""

    @property
    def most_positions(self) -> int | None:
        """Tokens a sentence may have, start or end counted; None: as many as one likes."""

    def search(self, queries: Sequence[Query], find: Search, tick: Callable[[int], object]) -> list[list[Hypothesis]]:
        """Return each sentence's hypotheses, best first; `tick` is told how many more sentences are done."""

    def score(self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> list[Scored]:
        """Score given translations, in float32 where the engine can."""
