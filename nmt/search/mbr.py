"""Minimum Bayes risk decoding: select the candidate with the highest expected utility over all candidates."""

from __future__ import annotations

import functools
import math
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from nmt.errors import ConfigError
from nmt.search.request import Hypothesis, SearchRequest, StepModel

if TYPE_CHECKING:
    from nmt.search import Search


@dataclass(frozen=True, kw_only=True)
class MBR:
    """Ranks the candidates of another search by expected utility (Eikema and Aziz 2020, equation 5).

    The utility is chrF2.

    Every candidate also serves as a pseudo-reference, weighted by its frequency. With samples, the mean therefore
    estimates the expectation over the model's distribution.
    """

    candidates: str = "sample(n_best=32)"
    """Spec of the search that returns the candidates."""
    n_best: int = 1
    """Number of translations returned per sentence."""

    def __post_init__(self) -> None:
        """Raise a ConfigError if an option is out of range or `candidates` is not a search."""
        inner = self._inner
        if isinstance(inner, MBR):
            raise ConfigError(
                "the candidates of mbr must come from another search", "a typical value is sample(n_best=32)"
            )
        if not 1 <= self.n_best <= inner.n_best:
            raise ConfigError(
                f"n_best must be between 1 and the number of candidates ({inner.n_best}), got {self.n_best}"
            )

    @functools.cached_property
    def _inner(self) -> Search:
        from nmt.search import parse_search

        return parse_search(self.candidates)

    @property
    def rows(self) -> int:
        """Number of rows per sentence in a batch."""
        return self._inner.rows

    def __call__(self, model: StepModel, request: SearchRequest) -> list[list[Hypothesis]]:
        """Return the `n_best` candidates per sentence with the highest expected chrF (0 to 100), best first."""
        candidates = self._inner(model, request)
        return [self._rank(hypotheses, request) for hypotheses in candidates]

    def _rank(self, hypotheses: list[Hypothesis], request: SearchRequest) -> list[Hypothesis]:
        texts = [request.detokenize(h.ids) for h in hypotheses]
        utility = expected_chrf(texts)
        distinct: dict[str, Hypothesis] = {}
        for text, h in zip(texts, hypotheses, strict=True):  # keeps the best hypothesis of each text
            distinct.setdefault(text, replace(h, score=utility[text], length_norm=math.inf))
        return sorted(distinct.values(), key=lambda h: -h.score)[: self.n_best]


def expected_chrf(texts: list[str]) -> dict[str, float]:
    """Return the expected chrF2 of each text."""
    from sacrebleu.metrics.chrf import CHRF

    metric, counts = CHRF(), Counter(texts)

    def utility(text: str, other: str) -> float:
        return 100.0 if text == other else float(metric.sentence_score(text, [other]).score)  # also for empty texts

    return {text: sum(count * utility(text, other) for other, count in counts.items()) / len(texts) for text in counts}
