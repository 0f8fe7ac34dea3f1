"""Sampling from the model's distribution. Shape suffixes: B unfinished sentences, W samples of
each, R = B*W rows, T steps, V vocabulary.

The random numbers depend only on the seed, `n_best` and the sentence, not on the batch or the
machine.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from nmt.core.ranges import NotNegative, Range
from nmt.search.partial import PartialHypotheses, SearchOptions
from nmt.search.request import (
    Floats,
    Ints,
    NBestLists,
    SearchRequest,
    StepModel,
    best_first,
    best_order,
    kth_best,
)
from nmt.search.rows import decode_rows

Doubles = NDArray[np.float64]
MAX_SAMPLES = 1000
MIN_VALUE = 1e-4
"""Minimum temperature and top_p. Smaller values are equivalent to greedy search, and could overflow
float32."""


@dataclass(frozen=True, kw_only=True)
class Sample(SearchOptions):
    """Samples each token from the model's distribution, with temperature, top-k and nucleus
    sampling."""

    n_best: Annotated[int, Range(1, MAX_SAMPLES)] = 1
    """Number of samples per sentence. They are returned most probable first."""
    temperature: Annotated[float, Range(MIN_VALUE, 100, hint="a typical value is 1.0")] = 1.0
    """Divisor of the logits; values below 1 favor probable tokens."""
    top_k: NotNegative = 0
    """Sample from the k most probable tokens (Fan et al. 2018); 0: all tokens."""
    top_p: Annotated[float, Range(MIN_VALUE, 1, hint="a typical value is 0.9")] = 1.0
    """Sample from the smallest set of tokens with this total probability (nucleus sampling;
    Holtzman et al. 2020)."""
    seed: int = 0
    """Random seed."""

    @property
    def rows(self) -> int:
        """Number of rows per sentence in a batch."""
        return self.n_best

    def __call__(self, model: StepModel, request: SearchRequest) -> NBestLists:
        """Return the samples of each sentence, most probable first.

        Log-probabilities are those of the model, without temperature, top_k and top_p.
        """
        partial = PartialHypotheses(model, request, self, rows_per_sentence=self.n_best)
        num_steps = int(partial.max_length_B.max(initial=0)) + 1
        uniform_BTW = np.array([self._uniform(source, num_steps) for source in request.sources])

        def select_tokens(partial: PartialHypotheses) -> tuple[Ints, Floats]:
            result = partial.step(1, all_log_probs=True)
            log_p_RV = result.log_p_RV
            assert log_p_RV is not None
            uniform_BW = uniform_BTW[partial.sentence_B, partial.length]
            uniform_R = uniform_BW.ravel()
            # The end token that a length limit forces may have any log-probability, also -inf.
            tokens_R = result.tokens_RK[:, 0].copy()
            rows = np.isfinite(log_p_RV.max(1)).nonzero()[0]
            logits_RV = log_p_RV[rows] / np.float32(self.temperature)
            tokens_R[rows] = draw(self._filter(logits_RV), uniform_R[rows])
            row_R = np.arange(len(tokens_R))
            return tokens_R, log_p_RV[row_R, tokens_R]

        samples = decode_rows(partial, select_tokens)
        return [best_first(hypotheses) for hypotheses in samples]

    def _uniform(self, source: Sequence[int], num_steps: int) -> Doubles:
        """Return a random number in [0, 1) for each step and sample of a sentence, [T, W].

        Steps are the first axis, because their number, which depends on the batch, must not change
        the numbers.
        """
        text = f"{self.seed} {list(source)}"
        digest = hashlib.sha256(text.encode()).digest()
        seed = int.from_bytes(digest[:16], "big")
        generator = np.random.Generator(np.random.PCG64(seed))
        return generator.random((num_steps, self.n_best))

    def _filter(self, logits_RV: Floats) -> Floats:
        """Set the logits of tokens that top_k and top_p exclude to -inf."""
        if 0 < self.top_k < logits_RV.shape[1]:
            worst_R1 = kth_best(logits_RV, self.top_k)
            logits_RV = np.where(logits_RV < worst_R1, np.float32(-np.inf), logits_RV)
        if self.top_p < 1:
            order_RV = best_order(logits_RV)
            sorted_RV = np.take_along_axis(logits_RV, order_RV, 1)
            p_RV = np.exp(sorted_RV - sorted_RV[:, :1])
            p_RV /= p_RV.sum(1, keepdims=True)
            # A token is excluded if those before it have the probability; the first token never is.
            is_excluded_RV = p_RV.cumsum(1)[:, :-1] >= self.top_p
            sorted_RV[:, 1:][is_excluded_RV] = -np.inf
            np.put_along_axis(logits_RV, order_RV, sorted_RV, 1)
        return logits_RV


def draw(logits_RV: Floats, uniform_R: Doubles) -> Ints:
    """Return a token of each row by inverse transform sampling of numbers in [0, 1)."""
    p_RV = np.exp(logits_RV - logits_RV.max(1, keepdims=True))
    cumulative_p_RV = p_RV.cumsum(1, dtype=np.float64)
    total_R1 = cumulative_p_RV[:, -1:]
    threshold_R1 = uniform_R[:, None] * total_R1
    tokens_R: Ints = (cumulative_p_RV <= threshold_R1).sum(1)
    return tokens_R
