"""Lexically constrained beam search.

Shape suffixes: B unfinished sentences, which are the N beams, W rows (partial hypotheses) of each,
R = B*W rows, P constraints of a sentence, M tokens of a constraint, K best tokens of a row, C
candidates of a row or beam.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nmt.core.errors import ConfigError
from nmt.search.beam import BeamOptions, BeamSize
from nmt.search.candidates import IMPOSSIBLE, Candidates, extend
from nmt.search.constraints import Constraints
from nmt.search.partial import PartialHypotheses
from nmt.search.request import Bools, Ints, SearchRequest, StepModel


@dataclass(frozen=True, kw_only=True)
class Constrained(BeamOptions):
    """Divides the beam among banks by the number of constraint tokens generated.

    This is dynamic beam allocation (Post and Vilar 2018).

    The candidates extend each partial hypothesis by its most probable tokens and by the next token
    of each unmet constraint. The best candidate of each bank is selected, then the second best,
    until W are selected. A partial hypothesis with a rare constraint token therefore does not
    compete with one without it. A hypothesis may end only when it meets all constraints; near the
    length limit only constraint tokens are allowed. Constraints are matched independently, so
    overlapping constraints may share tokens. An interrupted constraint starts over.
    """

    beam_size: BeamSize = 8

    def __post_init__(self) -> None:
        """Raise a ConfigError if an option is not supported."""
        super().__post_init__()
        if self.no_repeat_ngram_size:
            raise ConfigError(
                "constrained does not support no_repeat_ngram_size, which may contradict a"
                " constraint"
            )

    def start(self, model: StepModel, request: SearchRequest) -> PartialHypotheses:
        """Encode the sources."""
        constraints = Constraints(request)
        return PartialHypotheses(
            model, request, self, rows_per_sentence=self.width, constraints=constraints
        )

    def candidates(self, partial: PartialHypotheses) -> Candidates:
        """Extend each row by its best tokens and by the next token of each constraint."""
        constraints = partial.constraints
        assert constraints is not None
        next_RP = constraints.next_tokens()[:, 0]
        result = partial.step(2 * self.width, gather_RP=next_RP)
        assert result.gathered_log_p_RP is not None
        num_best = result.tokens_RK.shape[1]
        num_next = next_RP.shape[1]
        tokens_RC = np.concatenate((result.tokens_RK, next_RP), 1)
        log_p_RC = np.concatenate((result.log_p_RK, result.gathered_log_p_RP), 1)
        # A next token may also be one of the best tokens, or the next token of another constraint.
        is_same_RPC = next_RP[:, :, None] == tokens_RC[:, None]
        is_duplicate_RP = is_same_RPC.argmax(-1) < np.arange(num_next) + num_best
        log_p_RC[:, num_best:][is_duplicate_RP] = IMPOSSIBLE

        met_RCP = constraints.met_after(tokens_RC)
        candidates = extend(partial.log_prob_R, log_p_RC, tokens_RC)
        candidates = candidates.without(self._is_impossible(partial, tokens_RC, met_RCP))
        candidates = candidates._replace(bank_NC=constraints.num_missing(met_RCP))
        return candidates.of_beams(len(partial))

    def _is_impossible(
        self,
        partial: PartialHypotheses,
        tokens_RC: Ints,
        met_RCP: Ints,
    ) -> Bools:
        """Return whether each candidate cannot become a hypothesis that meets all constraints, [R,
        C]."""
        constraints = partial.constraints
        assert constraints is not None
        # It may end if no constraint is missing.
        is_too_short_R = partial.is_too_short_B.repeat(self.width)
        is_incomplete_RC = constraints.num_missing(met_RCP) > 0
        # It may continue if the length limit leaves enough tokens.
        num_left_B = partial.max_length_B - partial.length - 1
        num_left_R = num_left_B.repeat(self.width)
        is_too_long_RC = constraints.num_required(met_RCP) > num_left_R[:, None]
        ends_RC = tokens_RC == partial.request.eos
        return np.where(ends_RC, is_incomplete_RC | is_too_short_R[:, None], is_too_long_RC)
