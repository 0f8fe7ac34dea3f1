"""Sampling: tokens drawn as the model finds them probable. Letters: B sentences, R rows of them, V vocabulary.

What is drawn depends on the seed and the sentence alone, not on the rest of the batch or on the machine.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nmt.errors import ConfigError
from nmt.search.partial import PartialHypotheses, SearchOptions
from nmt.search.request import Bools, Floats, Hypothesis, Ints, SearchRequest, StepModel

MAX_SAMPLES = 1000
SMALLEST = 1e-4
"""Temperature and share of probability below which samples are greedy anyway, and float32 might not hold them."""


@dataclass(frozen=True, kw_only=True)
class Sample(SearchOptions):
    """Draws each token from the model's distribution, sharpened or cut on request."""

    n_best: int = 1
    """Samples drawn per sentence; all are returned, the most probable first."""
    temperature: float = 1.0
    """Divisor of the logits: below 1 prefers what is probable anyway."""
    top_k: int = 0
    """Draw among so many most probable tokens (Fan et al. 2018, section 5.1); 0: among all."""
    top_p: float = 1.0
    """Draw among the most probable tokens that together hold so much probability (nucleus; Holtzman et al. 2020)."""
    seed: int = 0
    """Another seed draws other samples."""

    def __post_init__(self) -> None:
        """Raise a ConfigError for options out of range."""
        super().__post_init__()
        if not 1 <= self.n_best <= MAX_SAMPLES:
            raise ConfigError(f"samples (top) must be between 1 and {MAX_SAMPLES}, got {self.n_best}")
        if not SMALLEST <= self.temperature <= 100:
            raise ConfigError(f"temperature must be between {SMALLEST} and 100, got {self.temperature}", "1.0 is usual")
        if self.top_k < 0:
            raise ConfigError(f"top_k must be 0 or more, got {self.top_k}")
        if not SMALLEST <= self.top_p <= 1:
            raise ConfigError(f"top_p must be between {SMALLEST} and 1, got {self.top_p}", "0.9 is usual")

    @property
    def rows(self) -> int:
        """Rows of a batch for each sentence."""
        return self.n_best

    def __call__(self, model: StepModel, request: SearchRequest) -> list[list[Hypothesis]]:
        """Return the samples per sentence, the most probable first; log-probabilities are the model's own."""
        partial = PartialHypotheses(model, request, self, width=self.n_best)
        found: list[list[Hypothesis]] = [[] for _ in range(len(partial))]
        chance_RT = self._chances(request, int(partial.max_length_B.max(initial=0)) + 1)
        log_prob_R = np.zeros(len(chance_RT), np.float32)
        ended_R = np.zeros(len(chance_RT), bool)
        while len(partial):
            log_p_RV = partial.step(0, all_log_probs=True).log_p_RV
            assert log_p_RV is not None
            logits_RV = log_p_RV / np.float32(self.temperature)
            logits_RV[:, list(request.banned_ids)] = -np.inf
            tokens_R = draw(self._cut(logits_RV), chance_RT[:, partial.length])
            log_prob_R = log_prob_R + log_p_RV[np.arange(len(tokens_R)), tokens_R]  # read only where a row ends
            ends_R = ~ended_R & (tokens_R == request.eos)
            sentence_R = partial.sentence_B.repeat(self.n_best)
            for sentence, ids, log_prob in zip(
                sentence_R[ends_R].tolist(), partial.tokens_RT[ends_R, 1:].tolist(), log_prob_R[ends_R].tolist(),
                strict=True,
            ):  # fmt: skip
                found[sentence].append(Hypothesis(ids, log_prob, log_prob))
            ended_R |= ends_R
            stay_B: Bools = np.logical_not(ended_R.reshape(-1, self.n_best).all(1))
            rows_R = stay_B.repeat(self.n_best).nonzero()[0]
            log_prob_R, ended_R, chance_RT = log_prob_R[rows_R], ended_R[rows_R], chance_RT[rows_R]
            partial.advance(rows_R, tokens_R[rows_R], stay_B)
        return [sorted(hypotheses, key=lambda h: -h.score) for hypotheses in found]

    def _chances(self, request: SearchRequest, steps: int) -> NDArray[np.float64]:
        """Return a number in [0, 1) for every row and step."""
        chances = []
        for source in request.sources:
            address = hashlib.sha256(f"{self.seed} {list(source)}".encode()).digest()
            generator = np.random.Generator(np.random.PCG64(int.from_bytes(address[:16], "big")))
            # Steps first, so that a longer limit, which the batch may bring, draws the same for the steps before.
            chances.append(generator.random((steps, self.n_best)).T)
        return np.concatenate(chances) if chances else np.empty((0, steps))

    def _cut(self, logits_RV: Floats) -> Floats:
        if 0 < self.top_k < logits_RV.shape[1]:
            least_R1 = -np.partition(-logits_RV, self.top_k - 1, axis=1)[:, self.top_k - 1, None]
            logits_RV = np.where(logits_RV < least_R1, np.float32(-np.inf), logits_RV)
        if self.top_p < 1:
            order_RV = np.argsort(-logits_RV, axis=1, kind="stable")
            sorted_RV = np.take_along_axis(logits_RV, order_RV, 1)
            share_RV = np.exp(sorted_RV - sorted_RV[:, :1])
            up_to_RV = (share_RV / share_RV.sum(1, keepdims=True)).cumsum(1)
            sorted_RV[:, 1:][up_to_RV[:, :-1] >= self.top_p] = -np.inf  # the most probable token stays in any case
            np.put_along_axis(logits_RV, order_RV, sorted_RV, 1)
        return logits_RV


def draw(logits_RV: Floats, chance_R: NDArray[np.float64]) -> Ints:
    """Return the token of each row in whose share of the probability its chance falls (inverse transform sampling)."""
    up_to_RV = np.exp(logits_RV - logits_RV.max(1, keepdims=True)).cumsum(1, dtype=np.float64)
    drawn_R = (up_to_RV <= (chance_R * up_to_RV[:, -1])[:, None]).sum(1)
    # Rounding may leave a chance of nearly 1 behind the last possible token.
    last_R = logits_RV.shape[1] - 1 - (logits_RV[:, ::-1] > -np.inf).argmax(1)
    # NaN ranks first: a search must see an end that a length limit forces, whatever its probability.
    tokens_R: Ints = np.where(np.isnan(up_to_RV[:, -1]), logits_RV.argmax(1), np.minimum(drawn_R, last_R))
    return tokens_R
