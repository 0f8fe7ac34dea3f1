"""Ensembles of native models. Letters: R rows, V vocabulary, T target tokens, S source tokens."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from nmt.engines import TokenScores
from nmt.engines.native import NativeModel, NativeState
from nmt.search.request import Floats, StepRequest, StepResult, best_tokens


class NativeEnsemble:
    """Averages the token probabilities of several models with the same vocabulary."""

    def __init__(self, models: Sequence[NativeModel]) -> None:
        self.models = models
        self.max_positions = min(
            (model.max_positions for model in models if model.max_positions), default=None
        )

    def init_search_state(
        self, sources: Sequence[Sequence[int]], *, track_attention: bool = False
    ) -> EnsembleState:
        """Encode source sentences with every model."""
        return EnsembleState(
            [
                model.init_search_state(sources, track_attention=track_attention)
                for model in self.models
            ]
        )

    def score(
        self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]
    ) -> list[TokenScores]:
        """Score given translations by the mean of the models' probabilities."""
        ensemble_scores = []
        for scores in zip(*(model.score(sources, targets) for model in self.models), strict=True):
            log_probs = mean_log_prob([np.array(each.log_probs, np.float32) for each in scores])
            attention = [each.attention_TS for each in scores if each.attention_TS is not None]
            ensemble_scores.append(TokenScores(log_probs.tolist(), np.mean(attention, 0)))
        return ensemble_scores


class EnsembleState:
    """The states of all models; see `nmt.search.request.State`."""

    def __init__(self, states: Sequence[NativeState]) -> None:
        self.states = states

    @property
    def attention_RS(self) -> Floats | None:
        """The mean cross-attention of the models."""
        attention = [state.attention_RS for state in self.states if state.attention_RS is not None]
        return np.mean(attention, 0) if attention else None

    def step(self, request: StepRequest) -> StepResult:
        """Read one more token per row with every model."""
        all_log_probs = StepRequest(request.tokens_R, request.parents_R, 0, all_log_probs=True)
        log_probs = [state.step(all_log_probs).log_p_RV for state in self.states]
        return best_tokens(
            mean_log_prob([log_p_RV for log_p_RV in log_probs if log_p_RV is not None]), request
        )


def mean_log_prob(log_probs: Sequence[NDArray[np.float32]]) -> NDArray[np.float32]:
    """Return log (1/n Σ exp(log p)) over arrays of equal shape."""
    stacked = np.stack(log_probs)
    max_log_prob = stacked.max(0).clip(
        np.finfo(np.float32).min
    )  # a probability may be zero in all models
    with np.errstate(divide="ignore"):
        mean: NDArray[np.float32] = max_log_prob + np.log(np.exp(stacked - max_log_prob).mean(0))
    return mean
