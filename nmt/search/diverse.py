"""Diverse beam search (Vijayakumar et al. 2018).

Shape suffixes: B unfinished sentences, G groups, N = B*G beams, W rows (partial hypotheses) of each
beam, R = N*W rows, C candidates of a beam, X tokens that previous groups have selected.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from nmt.core.errors import ConfigError
from nmt.core.ranges import Range
from nmt.search.beam import BeamOptions
from nmt.search.candidates import Candidates, extend
from nmt.search.partial import PartialHypotheses
from nmt.search.request import Floats, Ints, SearchRequest, StepModel


@dataclass(frozen=True, kw_only=True)
class Diverse(BeamOptions):
    """Divides the beam into groups, and penalizes tokens that previous groups selected at the same
    step.

    Each group is a beam search whose candidates lose λ for each previous selection of their token
    (Hamming diversity, algorithm 1). There are two differences from the authors' code. It
    accumulates the penalties in the scores of the beams; here they affect only the selection at
    each step, and hypotheses are ranked by the model's scores. It also penalizes tokens selected by
    beams that end at this step; here only beams that continue count.
    """

    groups: int = 2
    """G, a divisor of beam_size."""
    diversity_penalty: Annotated[float, Range(0, 100, hint="a typical value is 0.5")] = 0.5
    """λ, in nats per token."""

    def __post_init__(self) -> None:
        """Raise a ConfigError if the groups have different sizes."""
        super().__post_init__()
        if not 1 <= self.groups <= self.beam_size or self.beam_size % self.groups:
            raise ConfigError(f"groups must divide beam_size ({self.beam_size}), got {self.groups}")

    @property
    def num_groups(self) -> int:
        """G, the number of beams of each sentence."""
        return self.groups

    def start(self, model: StepModel, request: SearchRequest) -> PartialHypotheses:
        """Encode the sources."""
        return PartialHypotheses(model, request, self, rows_per_sentence=self.beam_size)

    def candidates(self, partial: PartialHypotheses) -> Candidates:
        """Return candidates that are ranked with their penalties. Adjacent beams are a group
        each."""
        # The other groups select at most beam_size - W tokens, and one token ends, so at least W
        # of the best beam_size + 1 of a row are neither penalized nor end.
        result = partial.step(self.beam_size + 1)
        extensions = extend(partial.log_prob_R, result.log_p_RK, result.tokens_RK)
        num_sentences = len(partial)
        candidates = extensions.of_beams(num_sentences * self.groups)
        penalty_NC = np.zeros_like(candidates.log_prob_NC)
        selected_BX = np.empty((num_sentences, 0), np.int64)
        for first in range(self.groups):
            beams = slice(first, None, self.groups)
            group = candidates.map(operator.itemgetter(beams))
            penalty_BC = self._penalty(group.tokens_NC, selected_BX)
            penalty_NC[beams] = penalty_BC
            # The tokens of the new beam are penalized in the next groups.
            ends_BC = group.tokens_NC == partial.request.eos
            penalized = group._replace(penalty_NC=penalty_BC)
            beam = penalized.without(ends_BC).best(self.width)
            selected_BX = np.concatenate((selected_BX, beam.tokens_NC), 1)
        return candidates._replace(penalty_NC=penalty_NC)

    def _penalty(self, tokens_BC: Ints, selected_BX: Ints) -> Floats:
        """Return λ for each previous selection of a token (Hamming diversity, algorithm 1), [B,
        C]."""
        is_same_BCX = tokens_BC[:, :, None] == selected_BX[:, None]
        num_selections_BC = is_same_BCX.sum(-1)
        penalty_BC: Floats = num_selections_BC.astype(np.float32)
        penalty_BC *= np.float32(self.diversity_penalty)
        return penalty_BC
