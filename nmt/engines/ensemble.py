"""Ensembles of native models. Letters: R rows, V vocabulary, T target tokens, S source tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from nmt.engines import Sentences, TokenScores, min_positions
from nmt.engines.native import NativeModel, NativeState
from nmt.search.request import Floats, Ints, StepRequest, StepResult, best_tokens


class NativeEnsemble:
    """Averages the token probabilities of several models with the same vocabulary."""

    def __init__(self, models: Sequence[NativeModel]) -> None:
        self.models = models
        self.max_positions = min_positions(models)

    def init_search_state(
        self,
        sources: Sentences,
        *,
        track_attention: bool = False,
        candidates: Sequence[Ints] = (),
    ) -> EnsembleState:
        """Encode source sentences with every model."""
        states = []
        for model in self.models:
            state = model.init_search_state(
                sources, track_attention=track_attention, candidates=candidates
            )
            states.append(state)
        return EnsembleState(states)

    def score(self, sources: Sentences, targets: Sentences) -> list[TokenScores]:
        """Score given translations by the mean of the models' probabilities."""
        ensemble_scores = []
        for scores in zip(*(model.score(sources, targets) for model in self.models), strict=True):
            log_probs = mean_log_prob([each.log_probs for each in scores])
            attention_TS = np.mean([each.attention_TS for each in scores], 0)
            ensemble_scores.append(TokenScores(log_probs.tolist(), attention_TS))
        return ensemble_scores


class EnsembleState:
    """The states of all models; see `nmt.search.request.State`."""

    def __init__(self, states: Sequence[NativeState]) -> None:
        self.states = states

    @property
    def attention_RS(self) -> Floats | None:
        """The mean cross-attention of the models."""
        attention: list[Any] = [state.attention_RS for state in self.states]
        return None if attention[0] is None else np.mean(attention, 0)

    def step(self, request: StepRequest) -> StepResult:
        """Read one more token per row with every model."""
        all_log_probs = StepRequest(request.tokens_R, request.parents_R, 0, all_log_probs=True)
        log_probs = [state.step(all_log_probs).log_p_RV for state in self.states]
        return best_tokens(mean_log_prob(log_probs), request)


def mean_log_prob(log_probs: Sequence[Any]) -> Floats:
    """Return log (1/n Σ exp(log p)) over arrays of equal shape."""
    stacked = np.array(log_probs, np.float32)
    # A probability may be zero in all models.
    max_log_prob = stacked.max(0).clip(np.finfo(np.float32).min)
    with np.errstate(divide="ignore"):
        mean: Floats = max_log_prob + np.log(np.exp(stacked - max_log_prob).mean(0))
    return mean
