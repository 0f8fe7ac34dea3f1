"""The constraints of a batch, and how many of their tokens each partial hypothesis has generated.

Shape suffixes: R rows (partial hypotheses), P constraints of a row, M tokens of a constraint, C candidates of a row.
"""

from __future__ import annotations

import itertools

import numpy as np

from nmt.search.request import Ints, SearchRequest


class Constraints:
    """The constraints of each row. `met` counts the tokens of each that a partial hypothesis has generated."""

    def __init__(self, request: SearchRequest) -> None:
        """Collect the constraints, with one row per sentence."""
        constraints = request.constraints or [()] * len(request.sources)
        all_constraints = itertools.chain.from_iterable(constraints)
        max_length = max(map(len, all_constraints), default=0)
        shape = (len(constraints), max(map(len, constraints), default=0))
        self.tokens_RPM = np.full((*shape, max_length + 1), request.eos)
        """The tokens of each constraint, followed by the end token."""
        self.length_RP = np.zeros(shape, np.int64)
        self.met_RP: Ints = np.zeros(shape, np.int64)
        for row, constraints_of_row in enumerate(constraints):
            for p, constraint in enumerate(constraints_of_row):
                self.tokens_RPM[row, p, : len(constraint)] = constraint
                self.length_RP[row, p] = len(constraint)

    def select(self, rows_R: Ints) -> None:
        """Replace the rows by copies of some of them."""
        self.tokens_RPM = self.tokens_RPM[rows_R]
        self.length_RP = self.length_RP[rows_R]
        self.met_RP = self.met_RP[rows_R]

    def advance(self, rows_R: Ints, tokens_R: Ints) -> None:
        """Extend rows by one token; see `PartialHypotheses.advance`."""
        self.select(rows_R)
        self.met_RP = self.met_after(tokens_R[:, None])[:, 0]

    def next_tokens(self) -> Ints:
        """Return the next token of each constraint; the end token if it is met."""
        tokens_RP1: Ints = np.take_along_axis(self.tokens_RPM, self.met_RP[:, :, None], 2)
        return tokens_RP1[:, :, 0]

    def met_after(self, tokens_RC: Ints) -> Ints:
        """Return the number of tokens of each constraint that each candidate has met, [R, C, P].

        A token that interrupts a constraint may start it again.
        """
        token_RC1 = tokens_RC[:, :, None]
        met_R1P = self.met_RP[:, None]
        is_complete_R1P = met_R1P == self.length_RP[:, None]
        is_next_RCP = token_RC1 == self.next_tokens()[:, None]
        is_first_RCP = token_RC1 == self.tokens_RPM[:, None, :, 0]
        met_RCP = np.where(is_next_RCP, met_R1P + 1, is_first_RCP)
        return np.where(is_complete_R1P, met_R1P, met_RCP)

    def num_missing(self, met_RCP: Ints) -> Ints:
        """Return the number of constraint tokens that are not met, [R, C]."""
        missing_RC: Ints = (self.length_RP[:, None] - met_RCP).sum(-1)
        return missing_RC

    def num_required(self, met_RCP: Ints) -> Ints:
        """Return an upper bound on the number of tokens needed to meet all constraints, [R, C].

        Only one started constraint can continue, which interrupts the others.
        """
        length_R1P = self.length_RP[:, None]
        is_unmet_RCP = met_RCP < length_R1P
        unmet_length_RC = (length_R1P * is_unmet_RCP).sum(-1)
        continued_RC = (met_RCP * is_unmet_RCP).max(-1, initial=0)
        required_RC: Ints = unmet_length_RC - continued_RC
        return required_RC
