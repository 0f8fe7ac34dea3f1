"""Minimum-Bayes-risk decoding: of some candidates, the one that is most like all the others."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, replace

from nmt.errors import ConfigError
from nmt.search.request import Hypothesis, SearchRequest, StepModel


@dataclass(frozen=True, kw_only=True)
class MBR:
    """Ranks the candidates of another search by their expected chrF (Eikema and Aziz 2020, equation 5).

    Every candidate serves as a reference, once for each time that it was found; with samples that makes the mean an
    estimate of the expectation over the model's translations.
    """

    candidates: str = "sample(n_best=32)"
    """The search whose results are compared."""
    n_best: int = 1
    """Translations returned per sentence."""

    def __post_init__(self) -> None:
        """Raise a ConfigError for options out of range, or candidates that are no search."""
        from nmt.search import search

        inner = search(self.candidates)
        if isinstance(inner, MBR):
            raise ConfigError("the candidates of mbr must come from another search", "sample(n_best=32) is usual")
        if not 1 <= self.n_best <= inner.n_best:
            raise ConfigError(f"top must be between 1 and the candidates ({inner.n_best}), got {self.n_best}")
        object.__setattr__(self, "_inner", inner)

    @property
    def rows(self) -> int:
        """Rows of a batch for each sentence."""
        return self._inner.rows  # type: ignore[attr-defined, no-any-return]

    def __call__(self, model: StepModel, request: SearchRequest) -> list[list[Hypothesis]]:
        """Return the `top` candidates per sentence that are most like all, best first, scored 0 to 100."""
        found = self._inner(model, request)  # type: ignore[attr-defined]
        return [self._ranked(hypotheses, request) for hypotheses in found]

    def _ranked(self, hypotheses: list[Hypothesis], request: SearchRequest) -> list[Hypothesis]:
        texts = [request.detokenize(h.ids) for h in hypotheses]
        utility = expected_chrf(texts)
        different: dict[str, Hypothesis] = {}
        for text, h in zip(texts, hypotheses, strict=True):  # best first: of equal texts that one stays
            different.setdefault(text, replace(h, score=utility[text], norm=math.inf))
        return sorted(different.values(), key=lambda h: -h.score)[: self.n_best]


def expected_chrf(texts: list[str]) -> dict[str, float]:
    """Return the mean chrF2 of each text against all of them, itself among them."""
    from sacrebleu.metrics.chrf import CHRF

    metric, counts = CHRF(), Counter(texts)
    return {
        text: sum(count * metric.sentence_score(text, [other]).score for other, count in counts.items()) / len(texts)
        for text in counts
    }
