"""Lexically constrained beam search.

Shape suffixes: B unfinished sentences, W beams of each, R = B*W rows, P constraints of a sentence, M tokens of a
constraint, C candidates of a row, X = W*C candidates of a sentence, N banks.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nmt.errors import ConfigError
from nmt.search.beam import BeamOptions, FinishedHypotheses, initial_log_probs
from nmt.search.partial import PartialHypotheses
from nmt.search.request import Bools, Floats, Hypothesis, Ints, SearchRequest, StepModel


@dataclass(frozen=True, kw_only=True)
class Constrained(BeamOptions):
    """Divides the beam among banks by the number of constraint tokens generated.

    This is dynamic beam allocation (Post and Vilar 2018).

    The candidates extend each partial hypothesis by its most probable tokens and by the next token of each unmet
    constraint. The best candidate of each bank is selected, then the second best, until W are selected. A partial
    hypothesis with a rare constraint token therefore does not compete with one without it. A hypothesis may end only
    when it meets all constraints; near the length limit only constraint tokens are allowed. Constraints are matched
    independently, so overlapping constraints may share tokens. An interrupted constraint starts over.
    """

    beam_size: int = 8

    def __post_init__(self) -> None:
        """Raise a ConfigError if an option is out of range."""
        super().__post_init__()
        if self.no_repeat_ngram_size:
            raise ConfigError("constrained does not support no_repeat_ngram_size, which may contradict a constraint")

    def __call__(self, model: StepModel, request: SearchRequest) -> list[list[Hypothesis]]:
        """Return the `top_beams` best hypotheses of each sentence that meet all constraints, best first."""
        constraints = Constraints(request)
        partial = PartialHypotheses(model, request, self, width=self.beam_size, reserved_B=constraints.num_tokens_B)
        constraints.keep(np.ones(len(partial), bool), self.beam_size)
        finished = FinishedHypotheses(len(partial), self.beam_size)
        met_RP: Ints = np.zeros_like(constraints.length_RP)
        log_prob_BW = initial_log_probs(len(partial), self.beam_size)
        while len(partial):
            next_RP = constraints.next_tokens(met_RP)
            result = partial.step(2 * self.beam_size, gather_RP=next_RP)
            assert result.gathered_log_p_RP is not None
            duplicate_RP = (next_RP[:, :, None] == result.tokens_RK[:, None]).any(-1) | _is_repeated(next_RP)
            log_p_RC = np.concatenate((result.log_p_RK, np.where(duplicate_RP, -np.inf, result.gathered_log_p_RP)), 1)
            tokens_RC = np.concatenate((result.tokens_RK, next_RP), 1)

            met_RCP = constraints.advance(met_RP, tokens_RC)
            missing_RC = constraints.num_missing(met_RCP)
            ends_RC = tokens_RC == request.eos
            remaining_R1 = (partial.max_length_B - partial.length).repeat(self.beam_size)[:, None]
            impossible_RC = np.where(ends_RC, missing_RC > 0, constraints.num_required(met_RCP) > remaining_R1 - 1)
            log_prob_RC = np.where(impossible_RC, -np.inf, log_prob_BW.reshape(-1, 1) + log_p_RC).astype(np.float32)
            rows_RC = np.broadcast_to(np.arange(len(log_prob_RC))[:, None], log_prob_RC.shape)
            log_prob_BX, bank_BX = log_prob_RC.reshape(len(partial), -1), missing_RC.reshape(len(partial), -1)
            ends_BX, tokens_BX, rows_BX = (x_RC.reshape(len(partial), -1) for x_RC in (ends_RC, tokens_RC, rows_RC))

            index_BW, log_prob_BW = _allocate_banks(log_prob_BX, bank_BX, self.beam_size)
            finishes_BW = np.take_along_axis(ends_BX, index_BW, 1) & np.isfinite(log_prob_BW)
            rows_BW = np.take_along_axis(rows_BX, index_BW, 1)
            finished.add(finishes_BW, rows_BW, partial, log_prob_BW, self.length_norm(partial.length + 1))

            continues_BX = np.where(ends_BX, np.float32(-np.inf), log_prob_BX)
            index_BW, log_prob_BW = _allocate_banks(continues_BX, bank_BX, self.beam_size)
            is_running_B = self.is_running(log_prob_BW.max(1), partial.max_length_B, finished, self.top_beams)
            rows_R, tokens_R = (
                np.take_along_axis(x_BX, index_BW, 1)[is_running_B].ravel() for x_BX in (rows_BX, tokens_BX)
            )
            num_constraints = met_RCP.shape[2]
            met_BXP = met_RCP.reshape(*log_prob_BX.shape, num_constraints)
            met_BWP = np.take_along_axis(met_BXP, index_BW[:, :, None], 1)
            met_RP = met_BWP[is_running_B].reshape(len(rows_R), num_constraints)
            log_prob_BW = log_prob_BW[is_running_B]
            finished.keep(is_running_B)
            constraints.keep(is_running_B, self.beam_size)
            partial.advance(rows_R, tokens_R, is_running_B)
        return finished.best(self.top_beams)


class Constraints:
    """The constraints of each sentence. `met` counts the tokens of each that a partial hypothesis has generated."""

    def __init__(self, request: SearchRequest) -> None:
        constraints = [list(map(list, each)) for each in request.constraints] or [[] for _ in request.sources]
        max_constraints = max(map(len, constraints), default=0)
        max_length = max((len(constraint) for each in constraints for constraint in each), default=0)
        self.tokens_BPM = np.full((len(constraints), max_constraints, max_length + 1), request.eos)
        self.length_BP = np.zeros((len(constraints), max_constraints), np.int64)
        for b, each in enumerate(constraints):
            for p, constraint in enumerate(each):
                self.tokens_BPM[b, p, : len(constraint)] = constraint
                self.length_BP[b, p] = len(constraint)
        self.num_tokens_B = self.length_BP.sum(1)
        """Number of tokens of all constraints."""
        self.keep(np.ones(len(constraints), bool), 1)

    def keep(self, is_running_B: Bools, width: int) -> None:
        """Remove sentences that no longer run, and expand the others to `width` rows."""
        self.tokens_BPM, self.length_BP = self.tokens_BPM[is_running_B], self.length_BP[is_running_B]
        self.tokens_RPM, self.length_RP = self.tokens_BPM.repeat(width, 0), self.length_BP.repeat(width, 0)

    def next_tokens(self, met_RP: Ints) -> Ints:
        """Return the next token of each constraint; the end token if it is met."""
        tokens_RP: Ints = np.take_along_axis(self.tokens_RPM, met_RP[:, :, None], 2)[:, :, 0]
        return tokens_RP

    def advance(self, met_RP: Ints, tokens_RC: Ints) -> Ints:
        """Return the number of tokens of each constraint that each candidate has met, [R, C, P].

        A token that interrupts a constraint may start it again.
        """
        complete_R1P = (met_RP == self.length_RP)[:, None]
        continues_RCP = tokens_RC[:, :, None] == self.next_tokens(met_RP)[:, None]
        restarts_RCP = tokens_RC[:, :, None] == self.tokens_RPM[:, None, :, 0]
        met_R1P = met_RP[:, None]
        return np.where(complete_R1P, met_R1P, np.where(continues_RCP, met_R1P + 1, restarts_RCP))

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
        required_RC: Ints = (length_R1P * is_unmet_RCP).sum(-1) - (met_RCP * is_unmet_RCP).max(-1, initial=0)
        return required_RC


def _is_repeated(tokens_RP: Ints) -> Bools:
    """Return whether each token also occurs before it in its row."""
    same_RPP = tokens_RP[:, :, None] == tokens_RP[:, None]
    repeated_RP: Bools = np.tril(same_RPP, -1).any(-1)
    return repeated_RP


def _allocate_banks(log_prob_BX: Floats, bank_BX: Ints, width: int) -> tuple[Ints, Floats]:
    """Select the best candidate of each bank, then the second best of each, and so on, up to `width` candidates.

    Returns:
        Indices and log-probabilities of the selected candidates, [B, W] each, padded with -inf.
    """
    order_BX = np.argsort(-log_prob_BX, axis=1, kind="stable")
    log_prob_BX, bank_BX = np.take_along_axis(log_prob_BX, order_BX, 1), np.take_along_axis(bank_BX, order_BX, 1)
    is_in_bank_BXN = bank_BX[:, :, None] == np.arange(int(bank_BX.max(initial=0)) + 1)
    rank_BX = np.take_along_axis(is_in_bank_BXN.cumsum(1), bank_BX[:, :, None], 2)[:, :, 0]
    rank_BX = np.where(log_prob_BX == -np.inf, log_prob_BX.shape[1] + 1, rank_BX)
    # A stable sort keeps the more probable of equal ranks first.
    selected_BW = np.argsort(rank_BX, axis=1, kind="stable")[:, :width]
    return np.take_along_axis(order_BX, selected_BW, 1), np.take_along_axis(log_prob_BX, selected_BW, 1)
