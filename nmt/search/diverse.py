"""Diverse beam search (Vijayakumar et al. 2018).

Shape suffixes: B unfinished sentences, G groups, W beams of a group, R = B*G*W rows, K best tokens of a row, X = W*K
candidates of a group, C best candidates.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nmt.errors import ConfigError
from nmt.search.beam import BeamOptions, FinishedHypotheses, initial_log_probs
from nmt.search.partial import PartialHypotheses, check_range
from nmt.search.request import Hypothesis, SearchRequest, StepModel


@dataclass(frozen=True, kw_only=True)
class Diverse(BeamOptions):
    """Divides the beam into groups, and penalizes tokens that previous groups selected at the same step.

    Each group is a beam search whose candidates lose λ for each previous selection of their token (Hamming diversity,
    algorithm 1). There are two differences from the authors' code. It accumulates the penalties in the scores of the
    beams; here they affect only the selection at each step, and hypotheses are ranked by the model's scores. It also
    penalizes tokens selected by beams that end at this step; here only beams that continue count.
    """

    groups: int = 2
    """G, a divisor of beam_size."""
    diversity_penalty: float = 0.5
    """λ, in nats per token."""

    def __post_init__(self) -> None:
        """Raise a ConfigError if an option is out of range."""
        super().__post_init__()
        if not 1 <= self.groups <= self.beam_size or self.beam_size % self.groups:
            raise ConfigError(f"groups must divide beam_size ({self.beam_size}), got {self.groups}")
        check_range("diversity_penalty", self.diversity_penalty, 0, 100, "a typical value is 0.5")

    def __call__(self, model: StepModel, request: SearchRequest) -> list[list[Hypothesis]]:
        """Return the `top_beams` best distinct hypotheses of each sentence, best first."""
        partial = PartialHypotheses(model, request, self, width=self.beam_size)
        width = self.beam_size // self.groups
        groups = [FinishedHypotheses(len(partial), width) for _ in range(self.groups)]
        log_prob_GBW = [initial_log_probs(len(partial), width) for _ in groups]
        while num_running := len(partial):
            # The other groups may have selected beam_size - W of the tokens, and W more may end.
            result = partial.step(self.beam_size + width)
            k = result.tokens_RK.shape[1]
            tokens_BGX = result.tokens_RK.reshape(num_running, self.groups, -1)
            log_p_BGWK = result.log_p_RK.reshape(num_running, self.groups, width, k)
            length_norm = self.length_norm(partial.length + 1)
            selected_BX = np.empty((num_running, 0), np.int64)
            rows_BGW, next_BGW, is_running_B = [], [], np.zeros(num_running, bool)
            for number, finished in enumerate(groups):
                first_row_B1 = (np.arange(num_running)[:, None] * self.groups + number) * width
                tokens_BX = tokens_BGX[:, number]
                total_BX = (log_prob_GBW[number][:, :, None] + log_p_BGWK[:, number]).reshape(num_running, -1)
                repeats_BX = (tokens_BX[:, :, None] == selected_BX[:, None]).sum(-1)
                ranked_BX = total_BX - np.float32(self.diversity_penalty) * repeats_BX.astype(np.float32)
                index_BC = np.argsort(-ranked_BX, axis=1, kind="stable")[:, : 2 * width]
                log_prob_BC, tokens_BC, ranked_BC = (
                    np.take_along_axis(x_BX, index_BC, 1) for x_BX in (total_BX, tokens_BX, ranked_BX)
                )
                rows_BC = first_row_B1 + index_BC // k
                ends_BC = tokens_BC == request.eos
                finishes_BC = ends_BC & np.isfinite(log_prob_BC)
                finishes_BC[:, width:] = False
                if self.early_stopping:  # a group with W finished hypotheses is complete
                    finishes_BC &= ~finished.is_full_B[:, None]
                finished.add(finishes_BC, rows_BC, partial, log_prob_BC, length_norm)

                ranked_BC = np.where(ends_BC, np.float32(-np.inf), ranked_BC)
                order_BW = np.argsort(-ranked_BC, axis=1, kind="stable")[:, :width]
                continues_BC = np.where(ends_BC, np.float32(-np.inf), log_prob_BC)
                log_prob_GBW[number] = np.take_along_axis(continues_BC, order_BW, 1)
                rows_BGW.append(np.take_along_axis(rows_BC, order_BW, 1))
                next_BGW.append(np.take_along_axis(tokens_BC, order_BW, 1))
                selected_BX = np.concatenate((selected_BX, next_BGW[-1]), 1)
                log_prob_B = log_prob_GBW[number].max(1)
                is_running_B |= self.is_running(log_prob_B, partial.max_length_B, finished, min(self.top_beams, width))
            rows_R, tokens_R = (np.concatenate(parts, 1)[is_running_B].ravel() for parts in (rows_BGW, next_BGW))
            log_prob_GBW = [log_prob_BW[is_running_B] for log_prob_BW in log_prob_GBW]
            for finished in groups:
                finished.keep(is_running_B)
            partial.advance(rows_R, tokens_R, is_running_B)
        return [
            _distinct(hypotheses)[: self.top_beams]
            for hypotheses in zip(*(finished.hypotheses for finished in groups), strict=True)
        ]


def _distinct(groups: tuple[list[Hypothesis], ...]) -> list[Hypothesis]:
    """Return the distinct hypotheses of all groups, best first."""
    by_ids = {tuple(h.ids): h for hypotheses in groups for h in hypotheses}
    return sorted(by_ids.values(), key=lambda h: -h.score)
