"""Diverse beam search (Vijayakumar et al. 2018). Letters: B sentences, G groups, W beams of a group, C candidates."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nmt.errors import ConfigError
from nmt.search.beam import BeamOptions, FinishedHypotheses, first_beams
from nmt.search.partial import PartialHypotheses
from nmt.search.request import Hypothesis, SearchRequest, StepModel


@dataclass(frozen=True, kw_only=True)
class Diverse(BeamOptions):
    """Beams in groups, each of which avoids the tokens that the groups before it chose at the same step.

    A group is a beam search whose candidates lose λ for every earlier choice of their token (Hamming diversity,
    algorithm 1). Two things differ from the authors' code. It accumulates the penalties in the scores of the beams;
    here they affect only which candidates a step selects, and hypotheses of all groups are ranked by the model's own
    scores. It also penalizes tokens chosen by beams that end there; here only tokens of beams that continue count.
    """

    groups: int = 2
    """G; it must divide the size."""
    diversity_penalty: float = 0.5
    """λ, in nats a token."""

    def __post_init__(self) -> None:
        """Raise a ConfigError for options out of range."""
        super().__post_init__()
        if not 1 <= self.groups <= self.beam_size or self.beam_size % self.groups:
            raise ConfigError(f"groups must divide the beam size ({self.beam_size}), got {self.groups}")
        if not 0 <= self.diversity_penalty <= 100:
            raise ConfigError(
                f"diversity_penalty must be between 0 and 100, got {self.diversity_penalty}", "0.5 is usual"
            )

    def __call__(self, model: StepModel, request: SearchRequest) -> list[list[Hypothesis]]:
        """Return the `top` best different hypotheses per sentence, best first."""
        partial = PartialHypotheses(model, request, self, width=self.beam_size)
        width = self.beam_size // self.groups
        groups = [FinishedHypotheses(len(partial), width) for _ in range(self.groups)]
        log_prob_GBW = [first_beams(len(partial), width) for _ in groups]
        while running := len(partial):
            # Up to W tokens of each other group may lose their place, and W more may end.
            result = partial.step(self.beam_size + width)
            k = result.tokens_RK.shape[1]
            tokens_BGX = result.tokens_RK.reshape(running, self.groups, -1)
            log_p_BGWK = result.log_p_RK.reshape(running, self.groups, width, k)
            norm = self.norm(partial.length + 1)
            chosen_BX = np.empty((running, 0), np.int64)
            rows_BGW, next_BGW, stay_B = [], [], np.zeros(running, bool)
            for number, finished in enumerate(groups):
                first_row_B1 = (np.arange(running)[:, None] * self.groups + number) * width
                tokens_BX = tokens_BGX[:, number]
                total_BX = (log_prob_GBW[number][:, :, None] + log_p_BGWK[:, number]).reshape(running, -1)
                repeats_BX = (tokens_BX[:, :, None] == chosen_BX[:, None]).sum(-1)
                ranked_BX = total_BX - np.float32(self.diversity_penalty) * repeats_BX.astype(np.float32)
                at_BC = np.argsort(-ranked_BX, axis=1, kind="stable")[:, : 2 * width]
                log_prob_BC, tokens_BC, ranked_BC = (
                    np.take_along_axis(x_BX, at_BC, 1) for x_BX in (total_BX, tokens_BX, ranked_BX)
                )
                rows_BC = first_row_B1 + at_BC // k
                ends_BC = tokens_BC == request.eos
                finishes_BC = ends_BC & np.isfinite(log_prob_BC)
                finishes_BC[:, width:] = False
                if self.early_stopping:  # a group that has W finished hypotheses takes no more
                    finishes_BC &= ~finished.full_B[:, None]
                finished.add(finishes_BC, rows_BC, partial, log_prob_BC, norm)

                ranked_BC = np.where(ends_BC, np.float32(-np.inf), ranked_BC)
                order_BW = np.argsort(-ranked_BC, axis=1, kind="stable")[:, :width]
                going_BC = np.where(ends_BC, np.float32(-np.inf), log_prob_BC)
                log_prob_GBW[number] = np.take_along_axis(going_BC, order_BW, 1)
                rows_BGW.append(np.take_along_axis(rows_BC, order_BW, 1))
                next_BGW.append(np.take_along_axis(tokens_BC, order_BW, 1))
                chosen_BX = np.concatenate((chosen_BX, next_BGW[-1]), 1)
                best_B = log_prob_GBW[number].max(1)
                stay_B |= self.unfinished(best_B, partial.max_length_B, finished, min(self.top_beams, width))
            rows_R, tokens_R = (np.concatenate(parts, 1)[stay_B].ravel() for parts in (rows_BGW, next_BGW))
            log_prob_GBW = [log_prob_BW[stay_B] for log_prob_BW in log_prob_GBW]
            for finished in groups:
                finished.keep(stay_B)
            partial.advance(rows_R, tokens_R, stay_B)
        return [
            _different(hypotheses)[: self.top_beams]
            for hypotheses in zip(*(each.found for each in groups), strict=True)
        ]


def _different(found: tuple[list[Hypothesis], ...]) -> list[Hypothesis]:
    """Return the hypotheses of all groups, best first, each once."""
    by_ids = {tuple(h.ids): h for hypotheses in found for h in hypotheses}
    return sorted(by_ids.values(), key=lambda h: -h.score)
