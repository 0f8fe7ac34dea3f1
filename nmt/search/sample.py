"""Sampling: tokens drawn as the model finds them probable. Letters: B sentences, R rows of them, V vocabulary.

What is drawn depends on the seed and the sentence alone, not on what is translated beside it or on which machine.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import torch
from torch import Tensor

from nmt.errors import ConfigError
from nmt.search.limits import Limits, Ruled
from nmt.search.task import Hypothesis, SearchModel, Task

MOST_SAMPLES = 1000
LEAST = 1e-4
"""Temperature and share of probability below which samples are greedy anyway, and float32 might not hold them."""


@dataclass(frozen=True, kw_only=True)
class Sample(Ruled):
    """Draws each token from the model's distribution, sharpened or cut on request."""

    top: int = 1
    """Samples drawn per sentence; all are returned, the most probable first."""
    temperature: float = 1.0
    """What logits are divided by: below 1 prefers what is probable anyway."""
    top_k: int = 0
    """Draw among so many most probable tokens (Fan et al. 2018, section 5.1); 0: among all."""
    top_p: float = 1.0
    """Draw among the most probable tokens that together hold so much probability (nucleus; Holtzman et al. 2020)."""
    seed: int = 0
    """Another seed draws other samples."""

    def __post_init__(self) -> None:
        """Raise a ConfigError for options out of range."""
        super().__post_init__()
        if not 1 <= self.top <= MOST_SAMPLES:
            raise ConfigError(f"samples (top) must be between 1 and {MOST_SAMPLES}, got {self.top}")
        if not LEAST <= self.temperature <= 100:
            raise ConfigError(f"temperature must be between {LEAST} and 100, got {self.temperature}", "1.0 is usual")
        if self.top_k < 0:
            raise ConfigError(f"top_k must be 0 or more, got {self.top_k}")
        if not LEAST <= self.top_p <= 1:
            raise ConfigError(f"top_p must be between {LEAST} and 1, got {self.top_p}", "0.9 is usual")

    @property
    def rows(self) -> int:
        """Rows of a batch for each sentence."""
        return self.top

    def __call__(self, model: SearchModel, task: Task) -> list[list[Hypothesis]]:
        """Return the samples per sentence, the most probable first; log-probabilities are the model's own."""
        rules = Limits(task, self)
        sentences, device = len(task.src_BS), task.src_BS.device
        state = model.begin(task.src_BS, task.src_mask_BS)
        rows = sentences * self.top
        found: list[list[Hypothesis]] = [[] for _ in range(sentences)]
        chance_RT = self._chances(task, int(rules.most_B.max()) + 1).to(device)
        tokens_RT = torch.full((rows, 1), task.bos, device=device)
        log_prob_R = torch.zeros(rows, device=device)
        ended_R = torch.zeros(rows, dtype=torch.bool, device=device)
        running_B = torch.arange(sentences, device=device)
        while len(running_B):
            log_p_RV = model.next_log_probs(tokens_RT[:, -1], state)
            log_p_RV[:, list(task.never)] = -torch.inf
            rules.apply(log_p_RV, tokens_RT)
            next_R1 = draw(self._cut(log_p_RV / self.temperature), chance_RT[:, tokens_RT.shape[1] - 1, None])
            log_prob_R = log_prob_R + log_p_RV.gather(1, next_R1)[:, 0]  # read where a row ends, and never after
            ends_R = ~ended_R & (next_R1[:, 0] == task.eos)
            sentence_R = running_B.repeat_interleave(self.top)
            for sentence, ids, log_prob in zip(
                sentence_R[ends_R].tolist(), tokens_RT[ends_R, 1:].tolist(), log_prob_R[ends_R].tolist(), strict=True
            ):
                found[sentence].append(Hypothesis(ids, log_prob, log_prob))
            ended_R |= ends_R
            tokens_RT = torch.cat((tokens_RT, next_R1), dim=1)
            stay_B = ~ended_R.view(-1, self.top).all(1)
            if not stay_B.all():
                stay = stay_B.nonzero()[:, 0]
                row_R = (stay[:, None] * self.top + torch.arange(self.top, device=device)).flatten()
                state.select(row_R, stay)
                rules.select(stay)
                tokens_RT, log_prob_R, ended_R = tokens_RT[row_R], log_prob_R[row_R], ended_R[row_R]
                running_B, chance_RT = running_B[stay], chance_RT[row_R]
        return [sorted(hypotheses, key=lambda h: -h.score) for hypotheses in found]

    def _chances(self, task: Task, steps: int) -> Tensor:
        """Return a number in [0, 1) for every row and step."""
        chances = []
        for ids, mask in zip(task.src_BS.tolist(), task.src_mask_BS.tolist(), strict=True):
            real = [i for i, is_real in zip(ids, mask, strict=True) if is_real]
            address = hashlib.sha256(f"{self.seed} {real}".encode()).digest()
            generator = torch.Generator().manual_seed(int.from_bytes(address[:8], "big", signed=True))
            # Steps first, so that a longer limit, which company may bring, draws the same for the steps before.
            chances.append(torch.rand(steps, self.top, generator=generator, dtype=torch.float64).t())
        return torch.cat(chances)

    def _cut(self, logits_RV: Tensor) -> Tensor:
        if 0 < self.top_k < logits_RV.shape[1]:
            least_R1 = logits_RV.topk(self.top_k).values[:, -1:]
            logits_RV = logits_RV.masked_fill(logits_RV < least_R1, -torch.inf)
        if self.top_p < 1:
            sorted_RV, order_RV = logits_RV.sort(descending=True, stable=True)
            before_RV = sorted_RV.softmax(-1).cumsum(-1).roll(1, -1)
            before_RV[:, 0] = 0.0  # the most probable token stays, whatever it holds
            sorted_RV = sorted_RV.masked_fill(before_RV >= self.top_p, -torch.inf)
            logits_RV = torch.empty_like(logits_RV).scatter_(1, order_RV, sorted_RV)
        return logits_RV


def draw(logits_RV: Tensor, chance_R1: Tensor) -> Tensor:
    """Return the token, [R, 1], in whose share of the probability the chance falls (inverse transform sampling)."""
    up_to_RV = logits_RV.double().softmax(-1).cumsum(-1)
    drawn_R1 = torch.searchsorted(up_to_RV, chance_R1 * up_to_RV[:, -1:], right=True)
    # Rounding may leave a chance of nearly 1 behind the last possible token.
    last_R1 = (logits_RV > -torch.inf).int().cumsum(1).argmax(1, keepdim=True)
    return torch.minimum(drawn_R1, last_R1)
