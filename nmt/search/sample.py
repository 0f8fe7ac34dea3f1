"""Sampling from the model's distribution. Shape suffixes: B sentences, R rows, T steps, V vocabulary.

The random numbers depend only on the seed, `n_best` and the sentence, not on the batch or the machine.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nmt.errors import ConfigError
from nmt.search.partial import PartialHypotheses, SearchOptions, check_range
from nmt.search.request import Bools, Floats, Hypothesis, Ints, SearchRequest, StepModel

MAX_SAMPLES = 1000
MIN_VALUE = 1e-4
"""Minimum temperature and top_p. Smaller values are equivalent to greedy search, and could overflow float32."""


@dataclass(frozen=True, kw_only=True)
class Sample(SearchOptions):
    """Samples each token from the model's distribution, with temperature, top-k and nucleus sampling."""

    n_best: int = 1
    """Number of samples per sentence. They are returned most probable first."""
    temperature: float = 1.0
    """Divisor of the logits; values below 1 favor probable tokens."""
    top_k: int = 0
    """Sample from the k most probable tokens (Fan et al. 2018); 0: all tokens."""
    top_p: float = 1.0
    """Sample from the smallest set of tokens with this total probability (nucleus sampling; Holtzman et al. 2020)."""
    seed: int = 0
    """Random seed."""

    def __post_init__(self) -> None:
        """Raise a ConfigError if an option is out of range."""
        super().__post_init__()
        check_range("n_best", self.n_best, 1, MAX_SAMPLES)
        check_range("temperature", self.temperature, MIN_VALUE, 100, "a typical value is 1.0")
        if self.top_k < 0:
            raise ConfigError(f"top_k must be 0 or more, got {self.top_k}")
        check_range("top_p", self.top_p, MIN_VALUE, 1, "a typical value is 0.9")

    @property
    def rows(self) -> int:
        """Number of rows per sentence in a batch."""
        return self.n_best

    def __call__(self, model: StepModel, request: SearchRequest) -> list[list[Hypothesis]]:
        """Return the samples of each sentence, most probable first.

        Log-probabilities are those of the model, without temperature, top_k and top_p.
        """
        partial = PartialHypotheses(model, request, self, width=self.n_best)
        samples: list[list[Hypothesis]] = [[] for _ in range(len(partial))]
        uniform_RT = self._uniform(request, int(partial.max_length_B.max(initial=0)) + 1)
        log_prob_R = np.zeros(len(uniform_RT), np.float32)
        is_finished_R = np.zeros(len(uniform_RT), bool)
        while len(partial):
            log_p_RV = partial.step(0, all_log_probs=True).log_p_RV
            assert log_p_RV is not None
            logits_RV = log_p_RV / np.float32(self.temperature)
            tokens_R = draw(self._filter(logits_RV), uniform_RT[:, partial.length])
            log_prob_R = log_prob_R + log_p_RV[np.arange(len(tokens_R)), tokens_R]  # used only for rows that end here
            ends_R = ~is_finished_R & (tokens_R == request.eos)
            sentence_R = partial.sentence_B.repeat(self.n_best)
            for sentence, ids, log_prob in zip(
                sentence_R[ends_R].tolist(), partial.tokens_RT[ends_R, 1:].tolist(), log_prob_R[ends_R].tolist(),
                strict=True,
            ):  # fmt: skip
                samples[sentence].append(Hypothesis(ids, log_prob, log_prob))
            is_finished_R |= ends_R
            is_running_B: Bools = np.logical_not(is_finished_R.reshape(-1, self.n_best).all(1))
            rows_R = is_running_B.repeat(self.n_best).nonzero()[0]
            log_prob_R, is_finished_R, uniform_RT = log_prob_R[rows_R], is_finished_R[rows_R], uniform_RT[rows_R]
            partial.advance(rows_R, tokens_R[rows_R], is_running_B)
        return [sorted(hypotheses, key=lambda h: -h.score) for hypotheses in samples]

    def _uniform(self, request: SearchRequest, num_steps: int) -> NDArray[np.float64]:
        """Return a random number in [0, 1) for each row and step."""
        uniform = [np.empty((0, num_steps))]
        for source in request.sources:
            digest = hashlib.sha256(f"{self.seed} {list(source)}".encode()).digest()
            generator = np.random.Generator(np.random.PCG64(int.from_bytes(digest[:16], "big")))
            # The first axis is steps, so that the number of steps, which depends on the batch, does not change them.
            uniform.append(generator.random((num_steps, self.n_best)).T)
        return np.concatenate(uniform)

    def _filter(self, logits_RV: Floats) -> Floats:
        if 0 < self.top_k < logits_RV.shape[1]:
            threshold_R1 = -np.partition(-logits_RV, self.top_k - 1, axis=1)[:, self.top_k - 1, None]
            logits_RV = np.where(logits_RV < threshold_R1, np.float32(-np.inf), logits_RV)
        if self.top_p < 1:
            order_RV = np.argsort(-logits_RV, axis=1, kind="stable")
            sorted_RV = np.take_along_axis(logits_RV, order_RV, 1)
            p_RV = np.exp(sorted_RV - sorted_RV[:, :1])
            cumulative_p_RV = (p_RV / p_RV.sum(1, keepdims=True)).cumsum(1)
            sorted_RV[:, 1:][cumulative_p_RV[:, :-1] >= self.top_p] = -np.inf  # always keeps the most probable token
            np.put_along_axis(logits_RV, order_RV, sorted_RV, 1)
        return logits_RV


def draw(logits_RV: Floats, uniform_R: NDArray[np.float64]) -> Ints:
    """Return a token of each row by inverse transform sampling of numbers in [0, 1)."""
    cumulative_p_RV = np.exp(logits_RV - logits_RV.max(1, keepdims=True)).cumsum(1, dtype=np.float64)
    total_R = cumulative_p_RV[:, -1]
    tokens_R: Ints = (cumulative_p_RV <= (uniform_R * total_R)[:, None]).sum(1)
    # argmax selects NaN: the end token that a length limit forces may have any log-probability.
    return np.where(np.isnan(total_R), logits_RV.argmax(1), tokens_R)
