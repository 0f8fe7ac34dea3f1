"""Greedy search. Shape suffixes: R rows, one per unfinished sentence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from nmt.search.partial import PartialHypotheses, SearchOptions
from nmt.search.request import Hypothesis, SearchRequest, StepModel


@dataclass(frozen=True, kw_only=True)
class Greedy(SearchOptions):
    """Selects the most probable token at each step."""

    rows: ClassVar[int] = 1
    n_best: ClassVar[int] = 1

    def __call__(self, model: StepModel, request: SearchRequest) -> list[list[Hypothesis]]:
        """Return one hypothesis per sentence."""
        partial = PartialHypotheses(model, request, self)
        log_prob_R = np.zeros(len(partial), np.float32)
        hypotheses = [Hypothesis([], 0.0, 0.0)] * len(partial)
        while len(partial):
            result = partial.step(1)
            log_prob_R, tokens_R = log_prob_R + result.log_p_RK[:, 0], result.tokens_RK[:, 0]
            is_running_R = tokens_R != request.eos
            if not is_running_R.all():
                finished = (~is_running_R).nonzero()[0]
                for row, ids in zip(finished.tolist(), partial.tokens_RT[finished, 1:].tolist(), strict=True):
                    log_prob = float(log_prob_R[row])
                    hypotheses[partial.sentence_B[row]] = Hypothesis(ids, log_prob, log_prob)
            rows_R = is_running_R.nonzero()[0]
            log_prob_R = log_prob_R[rows_R]
            partial.advance(rows_R, tokens_R[rows_R], is_running_R)
        return [[hypothesis] for hypothesis in hypotheses]
