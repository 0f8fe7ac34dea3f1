"""Greedy search: the most probable token at every step. Letters: R rows, one of each sentence still running."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from nmt.search.partial import PartialHypotheses, SearchOptions
from nmt.search.request import Hypothesis, SearchRequest, StepModel


@dataclass(frozen=True, kw_only=True)
class Greedy(SearchOptions):
    """Takes the most probable token at every step."""

    rows: ClassVar[int] = 1
    n_best: ClassVar[int] = 1

    def __call__(self, model: StepModel, request: SearchRequest) -> list[list[Hypothesis]]:
        """Return one hypothesis per sentence."""
        partial = PartialHypotheses(model, request, self)
        log_prob_R = np.zeros(len(partial), np.float32)
        found = [Hypothesis([], 0.0, 0.0)] * len(partial)
        while len(partial):
            result = partial.step(1)
            log_prob_R, tokens_R = log_prob_R + result.log_p_RK[:, 0], result.tokens_RK[:, 0]
            going_R = tokens_R != request.eos
            if not going_R.all():
                ends = (~going_R).nonzero()[0]
                for row, ids in zip(ends.tolist(), partial.tokens_RT[ends, 1:].tolist(), strict=True):
                    log_prob = float(log_prob_R[row])
                    found[partial.sentence_B[row]] = Hypothesis(ids, log_prob, log_prob)
            rows_R = going_R.nonzero()[0]
            log_prob_R = log_prob_R[rows_R]
            partial.advance(rows_R, tokens_R[rows_R], going_R)
        return [[hypothesis] for hypothesis in found]
