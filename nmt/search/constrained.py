"""Beam search whose translations contain given phrases, the lexical constraints.

Letters: B running sentences, W beams of each, R = B*W rows, P constraints of a sentence, M tokens of a constraint,
C candidates of a row, X = W*C.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nmt.errors import ConfigError
from nmt.search.beam import BeamOptions, FinishedHypotheses, first_beams
from nmt.search.partial import PartialHypotheses
from nmt.search.request import Bools, Floats, Hypothesis, Ints, SearchRequest, StepModel


@dataclass(frozen=True, kw_only=True)
class Constrained(BeamOptions):
    """Beams are divided among banks, the numbers of constraint tokens met so far (Post and Vilar 2018).

    Besides its most probable tokens, each beam proposes the next token of every constraint that is not yet met. The
    best candidate of each bank is taken, then the second best, until the beam is full: a partial hypothesis that took a
    rare word early need not compete with one that avoided it. A translation ends when it meets all constraints; near
    the length limit only their tokens are allowed. Constraints are counted one by one, so two that overlap may share
    their words; one that is broken off counts from its first token again.
    """

    size: int = 8

    def __post_init__(self) -> None:
        """Raise a ConfigError for options out of range."""
        super().__post_init__()
        if self.no_repeat_ngram_size:
            raise ConfigError("constrained takes no no_repeat_ngram_size: a constraint may need what it forbids")

    def __call__(self, model: StepModel, request: SearchRequest) -> list[list[Hypothesis]]:
        """Return the `top` best hypotheses per sentence that meet every constraint, best first."""
        constraints = Constraints(request)
        partial = PartialHypotheses(model, request, self, width=self.beam_size, reserved_B=constraints.tokens_B)
        constraints.keep(np.ones(len(partial), bool), self.beam_size)
        finished = FinishedHypotheses(len(partial), self.beam_size)
        met_RP: Ints = np.zeros_like(constraints.length_RP)
        log_prob_BW = first_beams(len(partial), self.beam_size)
        while len(partial):
            next_RP = constraints.next_tokens(met_RP)
            result = partial.step(2 * self.beam_size, gather_RP=next_RP)
            assert result.gathered_RP is not None
            known_RP = (next_RP[:, :, None] == result.tokens_RK[:, None]).any(-1) | _seen_before(next_RP)
            log_p_RC = np.concatenate((result.log_p_RK, np.where(known_RP, -np.inf, result.gathered_RP)), 1)
            tokens_RC = np.concatenate((result.tokens_RK, next_RP), 1)

            met_RCP = constraints.advance(met_RP, tokens_RC)
            left_RC = constraints.left(met_RCP)
            ends_RC = tokens_RC == request.eos
            room_R1 = (partial.max_length_B - partial.length).repeat(self.beam_size)[:, None]
            impossible_RC = np.where(ends_RC, left_RC > 0, constraints.needed(met_RCP) > room_R1 - 1)
            total_RC = np.where(impossible_RC, -np.inf, log_prob_BW.reshape(-1, 1) + log_p_RC).astype(np.float32)
            rows_RC = np.broadcast_to(np.arange(len(total_RC))[:, None], total_RC.shape)
            shape = (len(partial), -1)
            total_BX, bank_BX, ends_BX = total_RC.reshape(shape), left_RC.reshape(shape), ends_RC.reshape(shape)
            tokens_BX, rows_BX = tokens_RC.reshape(shape), rows_RC.reshape(shape)

            at_BW, log_prob_BW = _allocate_banks(total_BX, bank_BX, self.beam_size)
            finishes_BW = np.take_along_axis(ends_BX, at_BW, 1) & np.isfinite(log_prob_BW)
            rows_BW = np.take_along_axis(rows_BX, at_BW, 1)
            finished.add(finishes_BW, rows_BW, partial, log_prob_BW, self.norm(partial.length + 1))

            at_BW, log_prob_BW = _allocate_banks(
                np.where(ends_BX, np.float32(-np.inf), total_BX), bank_BX, self.beam_size
            )
            stay_B = self.unfinished(log_prob_BW.max(1), partial.max_length_B, finished, self.top_beams)
            rows_R, tokens_R = (np.take_along_axis(x_BX, at_BW, 1)[stay_B].ravel() for x_BX in (rows_BX, tokens_BX))
            count = met_RCP.shape[2]
            met_BXP = met_RCP.reshape(*total_BX.shape, count)
            met_RP = np.take_along_axis(met_BXP, at_BW[:, :, None], 1)[stay_B].reshape(len(rows_R), count)
            log_prob_BW = log_prob_BW[stay_B]
            finished.keep(stay_B)
            constraints.keep(stay_B, self.beam_size)
            partial.advance(rows_R, tokens_R, stay_B)
        return finished.best(self.top_beams)


class Constraints:
    """The constraints of each sentence, and how many tokens of each a partial hypothesis has met."""

    def __init__(self, request: SearchRequest) -> None:
        constraints = [list(map(list, each)) for each in request.constraints] or [[] for _ in request.sources]
        count = max(map(len, constraints), default=0)
        longest = max((len(constraint) for each in constraints for constraint in each), default=0)
        self.tokens_BPM = np.full((len(constraints), count, longest + 1), request.eos)
        self.length_BP = np.zeros((len(constraints), count), np.int64)
        for sentence, each in enumerate(constraints):
            for number, constraint in enumerate(each):
                self.tokens_BPM[sentence, number, : len(constraint)] = constraint
                self.length_BP[sentence, number] = len(constraint)
        self.tokens_B = self.length_BP.sum(1)
        """Tokens of all constraints."""
        self.keep(np.ones(len(constraints), bool), 1)

    def keep(self, stay_B: Bools, width: int) -> None:
        """Keep some of the sentences, each in `width` rows."""
        self.tokens_BPM, self.length_BP = self.tokens_BPM[stay_B], self.length_BP[stay_B]
        self.tokens_RPM, self.length_RP = self.tokens_BPM.repeat(width, 0), self.length_BP.repeat(width, 0)

    def next_tokens(self, met_RP: Ints) -> Ints:
        """Return the token that continues each constraint; the end token where none is missing."""
        tokens_RP: Ints = np.take_along_axis(self.tokens_RPM, met_RP[:, :, None], 2)[:, :, 0]
        return tokens_RP

    def advance(self, met_RP: Ints, tokens_RC: Ints) -> Ints:
        """Return how many tokens of each constraint every candidate has met, [R, C, P].

        A token that breaks a constraint off may begin it again.
        """
        complete_R1P = (met_RP == self.length_RP)[:, None]
        continues_RCP = tokens_RC[:, :, None] == self.next_tokens(met_RP)[:, None]
        begins_RCP = tokens_RC[:, :, None] == self.tokens_RPM[:, None, :, 0]
        met_R1P = met_RP[:, None]
        return np.where(complete_R1P, met_R1P, np.where(continues_RCP, met_R1P + 1, begins_RCP))

    def left(self, met_RCP: Ints) -> Ints:
        """Return how many tokens of constraints are missing, [R, C]."""
        left_RC: Ints = (self.length_RP[:, None] - met_RCP).sum(-1)
        return left_RC

    def needed(self, met_RCP: Ints) -> Ints:
        """Return how many more tokens meet all constraints, at most, [R, C].

        Only one of the constraints that are begun can be continued; the others are then broken off.
        """
        length_R1P = self.length_RP[:, None]
        missing_RCP = met_RCP < length_R1P
        needed_RC: Ints = (length_R1P * missing_RCP).sum(-1) - (met_RCP * missing_RCP).max(-1, initial=0)
        return needed_RC


def _seen_before(tokens_RP: Ints) -> Bools:
    """Return which tokens occur further left in their row."""
    same_RPP = tokens_RP[:, :, None] == tokens_RP[:, None]
    seen_RP: Bools = np.tril(same_RPP, -1).any(-1)
    return seen_RP


def _allocate_banks(total_BX: Floats, bank_BX: Ints, width: int) -> tuple[Ints, Floats]:
    """Choose the best candidate of each bank, then the second best of each, and so on, until there are `width`.

    Returns:
        The places of the chosen and their totals, [B, W] each; the total is -inf where there are too few.
    """
    order_BX = np.argsort(-total_BX, axis=1, kind="stable")
    total_BX, bank_BX = np.take_along_axis(total_BX, order_BX, 1), np.take_along_axis(bank_BX, order_BX, 1)
    of_bank_BXN = bank_BX[:, :, None] == np.arange(int(bank_BX.max(initial=0)) + 1)
    rank_BX = np.take_along_axis(of_bank_BXN.cumsum(1), bank_BX[:, :, None], 2)[:, :, 0]
    rank_BX = np.where(total_BX == -np.inf, total_BX.shape[1] + 1, rank_BX)
    chosen_BW = np.argsort(rank_BX, axis=1, kind="stable")[:, :width]  # stable: among equal ranks the more probable
    return np.take_along_axis(order_BX, chosen_BW, 1), np.take_along_axis(total_BX, chosen_BW, 1)
