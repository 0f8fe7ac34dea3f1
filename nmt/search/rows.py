"""The loop of searches whose rows do not compete: greedy search and sampling.

Shape suffixes: B unfinished sentences, W rows of each, R = B*W rows.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from nmt.search.partial import PartialHypotheses
from nmt.search.request import Bools, Floats, Hypothesis, Ints, NBestLists

SelectTokens = Callable[[PartialHypotheses], tuple[Ints, Floats]]
"""Returns a next token of each row and its log-probability, [R] each."""


def decode_rows(partial: PartialHypotheses, select_tokens: SelectTokens) -> NBestLists:
    """Extend each row by one token per step until it ends, and return the hypotheses of each
    sentence.

    A row that ends before the other rows of its sentence is extended, too, but its extensions are
    not used.
    """
    hypotheses: NBestLists = [[] for _ in range(len(partial))]
    is_running_R = np.ones(len(partial.parents_R), bool)
    while len(partial):
        tokens_R, log_p_R = select_tokens(partial)
        log_prob_R = partial.log_prob_R + log_p_R
        ends_R = tokens_R == partial.request.eos
        for row in (is_running_R & ends_R).nonzero()[0]:
            sentence = partial.sentence_B[row // partial.rows_per_sentence]
            ids = partial.tokens_RT[row, 1:].tolist()
            log_prob = float(log_prob_R[row])
            hypotheses[sentence].append(Hypothesis(ids, log_prob, score=log_prob))
        is_running_R &= ~ends_R

        # Remove the sentences of which no row runs.
        is_running_B: Bools = np.any(is_running_R.reshape(len(partial), -1), axis=1)
        rows_R = is_running_B.repeat(partial.rows_per_sentence).nonzero()[0]
        is_running_R = is_running_R[rows_R]
        partial.advance(rows_R, tokens_R[rows_R], log_prob_R[rows_R], is_running_B)
    return hypotheses
