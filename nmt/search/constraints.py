"""The constraints of a batch, and how many of their tokens each partial hypothesis has generated.

Shape suffixes: R rows (partial hypotheses), P constraints of a row, M tokens of a constraint, C
candidates of a row.
"""

from __future__ import annotations

from itertools import chain

import numpy as np

from nmt.search.request import Ints, SearchRequest


class Constraints:
    """The constraints of each row. `met` counts the tokens of each that a partial hypothesis has
    generated.

    The axis of length 1 is that of candidates.
    """

    def __init__(self, request: SearchRequest) -> None:
        """Collect the constraints, with one row per sentence."""
        num_rows = len(request.sources)
        constraints = request.constraints or [()] * num_rows
        num_constraints = list(map(len, constraints))
        max_constraints = max(num_constraints, default=0)
        all_constraints = chain.from_iterable(constraints)
        lengths = [len(tokens) for tokens in all_constraints]
        max_length = max(lengths, default=0)
        shape = (num_rows, 1, max_constraints)
        num_columns = max_length + 1
        self.tokens_R1PM = np.full((*shape, num_columns), request.eos)
        """The tokens of each constraint, followed by the end token."""
        self.length_R1P = np.zeros(shape, np.int64)
        self.met_R1P: Ints = np.zeros(shape, np.int64)
        for row, constraints_of_row in enumerate(constraints):
            for p, tokens in enumerate(constraints_of_row):
                length = len(tokens)
                place = (row, 0, p)
                self.length_R1P[place] = length
                self.tokens_R1PM[place][:length] = tokens

    def select(self, rows_R: Ints) -> None:
        """Replace the rows by copies of some of them."""
        self.tokens_R1PM = self.tokens_R1PM[rows_R]
        self.length_R1P = self.length_R1P[rows_R]
        self.met_R1P = self.met_R1P[rows_R]

    def advance(self, rows_R: Ints, tokens_R: Ints) -> None:
        """Extend rows by one token; see `PartialHypotheses.advance`."""
        self.select(rows_R)
        tokens_R1 = tokens_R[:, None]
        self.met_R1P = self.met_after(tokens_R1)

    def next_tokens(self) -> Ints:
        """Return the next token of each constraint, [R, 1, P]; the end token if it is met."""
        met_R1P1 = self.met_R1P[..., None]
        tokens_R1P1 = np.take_along_axis(self.tokens_R1PM, met_R1P1, -1)
        return tokens_R1P1.squeeze(-1)

    def met_after(self, tokens_RC: Ints) -> Ints:
        """Return the number of tokens of each constraint that each candidate has met, [R, C, P].

        A token that interrupts a constraint may start it again.
        """
        tokens_RC1 = tokens_RC[:, :, None]
        met_R1P = self.met_R1P
        next_R1P = self.next_tokens()
        first_R1P = self.tokens_R1PM[..., 0]
        continues_RCP = tokens_RC1 == next_R1P
        starts_RCP = tokens_RC1 == first_R1P
        continued_R1P = met_R1P + 1
        met_RCP = np.where(continues_RCP, continued_R1P, starts_RCP)
        is_met_R1P = met_R1P == self.length_R1P
        return np.where(is_met_R1P, met_R1P, met_RCP)

    def num_missing(self, met_RCP: Ints) -> Ints:
        """Return the number of constraint tokens that are not met, [R, C]."""
        missing_RCP = self.length_R1P - met_RCP
        missing_RC: Ints = missing_RCP.sum(-1)
        return missing_RC

    def num_required(self, met_RCP: Ints) -> Ints:
        """Return an upper bound on the number of tokens needed to meet all constraints, [R, C].

        Only one started constraint can continue, which interrupts the others.
        """
        length_R1P = self.length_R1P
        is_unmet_RCP = met_RCP < length_R1P
        length_RCP = np.where(is_unmet_RCP, length_R1P, 0)
        length_RC = length_RCP.sum(-1)
        started_RCP = np.where(is_unmet_RCP, met_RCP, 0)
        longest_started_RC = started_RCP.max(-1, initial=0)
        required_RC: Ints = length_RC - longest_started_RC
        return required_RC
