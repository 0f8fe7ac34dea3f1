"""Minimum Bayes risk decoding: select the candidate with the highest expected utility over all
candidates."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass

from nmt.core.errors import ConfigError
from nmt.search.request import Hypothesis, NBestLists, Search, SearchRequest, StepModel, best_first


@dataclass(frozen=True, kw_only=True)
class MBR:
    """Ranks the candidates of another search by expected utility (Eikema and Aziz 2020, equation
    5).

    The utility is chrF2.

    Every candidate also serves as a pseudo-reference, weighted by its frequency. With samples, the
    mean therefore estimates the expectation over the model's distribution.
    """

    candidates: Search
    """The search that returns the candidates."""
    n_best: int = 1
    """Number of translations returned per sentence."""

    def __post_init__(self) -> None:
        """Raise a ConfigError if an option is out of range, or if `candidates` is the same
        search."""
        if isinstance(self.candidates, MBR):
            raise ConfigError(
                "the candidates of mbr must come from another search",
                "a typical value is sample(n_best=32)",
            )
        num_candidates = self.candidates.n_best
        if not 1 <= self.n_best <= num_candidates:
            raise ConfigError(
                f"n_best must be between 1 and the number of candidates ({num_candidates}), got"
                f" {self.n_best}"
            )

    @property
    def rows(self) -> int:
        """Number of rows per sentence in a batch."""
        return self.candidates.rows

    def __call__(self, model: StepModel, request: SearchRequest) -> NBestLists:
        """Return the `n_best` candidates per sentence with the highest expected chrF (0 to 100),
        best first."""
        candidates = self.candidates(model, request)
        return [self._rank(hypotheses, request) for hypotheses in candidates]

    def _rank(self, hypotheses: list[Hypothesis], request: SearchRequest) -> list[Hypothesis]:
        texts = [request.detokenize(h.ids) for h in hypotheses]
        utility = expected_chrf(texts)
        distinct: dict[str, Hypothesis] = {}
        for text, h in zip(texts, hypotheses, strict=True):
            # The first hypothesis of a text is its best.
            distinct.setdefault(text, h._replace(score=utility[text], length_norm=math.inf))
        return best_first(distinct.values())[: self.n_best]


def expected_chrf(texts: list[str]) -> dict[str, float]:
    """Return the expected chrF2 of each text."""
    from sacrebleu.metrics.chrf import CHRF

    metric = CHRF()
    counts = Counter(texts)
    expected = {}
    for text in counts:
        total = 0.0
        for other, count in counts.items():
            # Equal texts are identical also if they are empty, for which chrF is 0.
            utility = 100.0 if text == other else metric.sentence_score(text, [other]).score
            total += count * utility
        expected[text] = total / len(texts)
    return expected
