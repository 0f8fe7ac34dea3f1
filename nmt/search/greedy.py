"""Greedy search. Shape suffixes: R rows, one per unfinished sentence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from nmt.search.partial import PartialHypotheses, SearchOptions
from nmt.search.request import Floats, Ints, NBestLists, SearchRequest, StepModel
from nmt.search.rows import decode_rows


@dataclass(frozen=True, kw_only=True)
class Greedy(SearchOptions):
    """Selects the most probable token at each step."""

    rows: ClassVar[int] = 1
    n_best: ClassVar[int] = 1

    def __call__(self, model: StepModel, request: SearchRequest) -> NBestLists:
        """Return one hypothesis per sentence."""
        partial = PartialHypotheses(model, request, self)
        return decode_rows(partial, best_token)


def best_token(partial: PartialHypotheses) -> tuple[Ints, Floats]:
    """Return the most probable next token of each row and its log-probability, [R] each."""
    result = partial.step(1)
    return result.tokens_RK[:, 0], result.log_p_RK[:, 0]
