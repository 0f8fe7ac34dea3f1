"""The candidates of a step of beam search: partial hypotheses, each extended by one token.

Shape suffixes: N beams, R rows (partial hypotheses), C candidates of a beam or row, X selected
candidates of a beam.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from nmt.search.request import Bools, Floats, Ints, best_order

IMPOSSIBLE = np.float32(-np.inf)
"""Log-probability of a candidate that can never become a hypothesis."""


class Candidates(NamedTuple):
    """The candidates of each beam, [N, C] each."""

    rows_NC: Ints
    """The row that each extends."""
    tokens_NC: Ints
    """The token that extends it."""
    log_prob_NC: Floats
    penalty_NC: Floats | None = None
    """Subtracted from the log-probabilities to rank candidates."""
    bank_NC: Ints | None = None
    """Bank of each; see `allocate_banks`."""

    def best(self, count: int) -> Candidates:
        """Return the `count` best candidates of each beam, best first, padded with impossible
        ones."""
        rank_NC = self.log_prob_NC
        if self.penalty_NC is not None:
            rank_NC = rank_NC - self.penalty_NC
        if self.bank_NC is None:
            index_NX = best_order(rank_NC)[:, :count]
        else:
            index_NX = allocate_banks(rank_NC, self.bank_NC, count)
        num_beams, num_selected = index_NX.shape
        if num_selected < count:
            padding = (0, count - num_selected)
            index_NX = np.pad(index_NX, ((0, 0), padding))
        # Like np.take_along_axis, which is slow for small arrays.
        beam_N1 = np.arange(num_beams)[:, None]
        best = self.map(operator.itemgetter((beam_N1, index_NX)))
        best.log_prob_NC[:, num_selected:] = IMPOSSIBLE
        return best

    def without(self, is_excluded_NC: Bools) -> Candidates:
        """Make some candidates impossible."""
        log_prob_NC = np.where(is_excluded_NC, IMPOSSIBLE, self.log_prob_NC)
        return self._replace(log_prob_NC=log_prob_NC)

    def of_beams(self, num_beams: int) -> Candidates:
        """Return the candidates of each beam, given those of each row."""
        return self.map(lambda x_RK: x_RK.reshape(num_beams, -1))

    def map(self, function: Callable[[Any], Any]) -> Candidates:
        """Apply a function to each array."""
        return Candidates._make(None if array is None else function(array) for array in self)


def extend(
    log_prob_R: Floats,
    log_p_RC: Floats,
    tokens_RC: Ints,
) -> Candidates:
    """Return the extensions of each row by one of several tokens."""
    num_rows, num_tokens = tokens_RC.shape
    rows_R1 = np.arange(num_rows)[:, None]
    return Candidates(
        rows_NC=rows_R1.repeat(num_tokens, 1),
        tokens_NC=tokens_RC,
        log_prob_NC=log_prob_R[:, None] + log_p_RC,
    )


def allocate_banks(
    log_prob_NC: Floats,
    bank_NC: Ints,
    count: int,
) -> Ints:
    """Select the best candidate of each bank, then the second best of each, and so on, up to
    `count` candidates.

    Returns:
        Indices of the selected candidates, [N, X]. Impossible candidates come last.
    """
    order_NC = best_order(log_prob_NC)
    sorted_bank_NC = np.take_along_axis(bank_NC, order_NC, 1)
    sorted_log_prob_NC = np.take_along_axis(log_prob_NC, order_NC, 1)
    # The place of a candidate in its bank is the number of candidates of the bank up to it.
    place_NC = np.empty_like(order_NC)
    for bank in range(int(bank_NC.max(initial=0)) + 1):
        is_in_bank_NC = sorted_bank_NC == bank
        np.copyto(place_NC, is_in_bank_NC.cumsum(1), where=is_in_bank_NC)
    place_NC[sorted_log_prob_NC == IMPOSSIBLE] = place_NC.shape[1] + 1
    # The sort is stable: the better of two candidates with the same place stays first.
    selected_NX = np.argsort(place_NC, axis=1, kind="stable")[:, :count]
    return np.take_along_axis(order_NC, selected_NX, 1)
