"""The constraints of a batch, and how many of their tokens each partial hypothesis has generated.

Shape suffixes: R rows (partial hypotheses), P constraints of a row, M tokens of a constraint, C
candidates of a row.
"""

from __future__ import annotations

import itertools

import numpy as np

from nmt.search.request import Ints, SearchRequest


class Constraints:
    """The constraints of each row. `met` counts the tokens of each that a partial hypothesis has
    generated."""

    def __init__(self, request: SearchRequest) -> None:
        """Collect the constraints, with one row per sentence."""
        constraints = request.constraints or [()] * len(request.sources)
        all_constraints = list(itertools.chain.from_iterable(constraints))
        max_constraints = max(map(len, constraints), default=0)
        max_length = max(map(len, all_constraints), default=0)
        shape = (len(constraints), max_constraints)
        self.tokens_RPM = np.full((*shape, max_length + 1), request.eos)
        """The tokens of each constraint, followed by the end token."""
        self.length_RP = np.zeros(shape, np.int64)
        self.met_RP: Ints = np.zeros(shape, np.int64)
        for row, constraints_of_row in enumerate(constraints):
            for p, tokens in enumerate(constraints_of_row):
                length = len(tokens)
                self.length_RP[row, p] = length
                self.tokens_RPM[row, p, :length] = tokens

    def select(self, rows_R: Ints) -> None:
        """Replace the rows by copies of some of them."""
        self.tokens_RPM = self.tokens_RPM[rows_R]
        self.length_RP = self.length_RP[rows_R]
        self.met_RP = self.met_RP[rows_R]

    def advance(self, rows_R: Ints, tokens_R: Ints) -> None:
        """Extend rows by one token; see `PartialHypotheses.advance`."""
        self.select(rows_R)
        met_R1P = self.met_after(tokens_R[:, None])
        self.met_RP = met_R1P[:, 0]

    def next_tokens(self) -> Ints:
        """Return the next token of each constraint; the end token if it is met."""
        met_RP1 = self.met_RP[:, :, None]
        tokens_RP1: Ints = np.take_along_axis(self.tokens_RPM, met_RP1, 2)
        return tokens_RP1[:, :, 0]

    def met_after(self, tokens_RC: Ints) -> Ints:
        """Return the number of tokens of each constraint that each candidate has met, [R, C, P].

        A token that interrupts a constraint may start it again.
        """
        token_RC1 = tokens_RC[:, :, None]
        met_R1P = self.met_RP[:, None]
        length_R1P = self.length_RP[:, None]
        next_R1P = self.next_tokens()[:, None]
        first_R1P = self.tokens_RPM[:, None, :, 0]
        met_RCP = np.where(
            token_RC1 == next_R1P,
            met_R1P + 1,
            token_RC1 == first_R1P,
        )
        return np.where(met_R1P == length_R1P, met_R1P, met_RCP)

    def num_missing(self, met_RCP: Ints) -> Ints:
        """Return the number of constraint tokens that are not met, [R, C]."""
        length_R1P = self.length_RP[:, None]
        missing_RCP = length_R1P - met_RCP
        missing_RC: Ints = missing_RCP.sum(-1)
        return missing_RC

    def num_required(self, met_RCP: Ints) -> Ints:
        """Return an upper bound on the number of tokens needed to meet all constraints, [R, C].

        Only one started constraint can continue, which interrupts the others.
        """
        length_R1P = self.length_RP[:, None]
        is_unmet_RCP = met_RCP < length_R1P
        length_RCP = np.where(is_unmet_RCP, length_R1P, 0)
        started_RCP = np.where(is_unmet_RCP, met_RCP, 0)
        longest_started_RC = started_RCP.max(-1, initial=0)
        required_RC: Ints = length_RCP.sum(-1) - longest_started_RC
        return required_RC
