"""What each step of a translation may say: length limits, forced beginnings, no n-gram twice.

Letters: B sentences still running, W rows of each, R = B*W, V vocabulary.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from nmt.errors import ConfigError
from nmt.search.candidates import repeated
from nmt.search.task import Task

NEVER = -1


@dataclass(frozen=True, kw_only=True)
class Ruled:
    """What every search lets one ask for."""

    min_ratio: float = 0.0
    """Least target tokens per source token, end tokens not counted."""
    max_ratio: float = 0.0
    """Most target tokens per source token; 0: what the task allows, twice as many and ten."""
    no_repeat_ngram: int = 0
    """No so many tokens in a row may come twice; 0 is off."""

    def __post_init__(self) -> None:
        """Raise a ConfigError for options out of range."""
        for name in ("min_ratio", "max_ratio"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ConfigError(f"{name} must be 0 or more, got {getattr(self, name)}")
        if self.max_ratio and self.min_ratio > self.max_ratio:
            raise ConfigError(f"min_ratio ({self.min_ratio}) must not be above max_ratio ({self.max_ratio})")
        if self.no_repeat_ngram < 0:
            raise ConfigError(f"no_repeat_ngram must be 0 or more, got {self.no_repeat_ngram}")


class Limits:
    """The rules of a search and a task, applied to the log-probabilities of a step."""

    def __init__(self, task: Task, rules: Ruled, at_least_B: Tensor | int = 0) -> None:
        """Combine the limits of both; `at_least_B` more tokens than the prefix must be possible."""
        source_B = task.src_mask_BS.sum(1) - 1
        self.eos, self.no_repeat_ngram = task.eos, rules.no_repeat_ngram
        self.most_B = task.most_B
        if rules.max_ratio:
            self.most_B = torch.minimum(self.most_B.double(), (rules.max_ratio * source_B.double()).ceil()).long()
        self.least_B = torch.minimum(self.most_B.double(), (rules.min_ratio * source_B.double()).floor()).long()
        self.prefix_BT = _padded(task)
        # A prefix counts towards the limits, and they may not cut it.
        self.most_B = torch.maximum(self.most_B, (self.prefix_BT != NEVER).sum(1) + at_least_B)
        self._forces_until = max(self.prefix_BT.shape[1], int(self.least_B.max()))
        self._forces_from = int(self.most_B.min())

    def select(self, sentences_B: Tensor) -> None:
        """Keep some of the sentences."""
        self.most_B, self.least_B = self.most_B[sentences_B], self.least_B[sentences_B]
        self.prefix_BT = self.prefix_BT[sentences_B]

    def apply(self, log_p_RV: Tensor, tokens_RT: Tensor) -> None:
        """Give -inf to what may not be said, in place.

        Probabilities stay what the model says of all tokens, so what is left need not sum to one.
        """
        length, width = tokens_RT.shape[1] - 1, len(tokens_RT) // max(1, len(self.most_B))
        forced_R = None
        if not self._forces_until <= length < self._forces_from:
            forced_R = self._forced(length).repeat_interleave(width)[:, None]
            forced_log_p_R = log_p_RV.gather(1, forced_R.clamp(min=0))  # no rule is above what is forced
            too_short_R = (self.least_B > length).repeat_interleave(width)
            log_p_RV[too_short_R, self.eos] = -torch.inf
        if self.no_repeat_ngram:
            log_p_RV[repeated(tokens_RT, self.no_repeat_ngram)] = -torch.inf
        if forced_R is not None:
            row_R = (forced_R[:, 0] != NEVER).nonzero()[:, 0]
            log_p_RV[row_R] = -torch.inf
            log_p_RV[row_R, forced_R[row_R, 0]] = forced_log_p_R[row_R, 0]

    def _forced(self, length: int) -> Tensor:
        """Return the token that each sentence must say after `length` others, or NEVER."""
        forced_B = torch.where(self.most_B <= length, self.eos, NEVER)
        if length < self.prefix_BT.shape[1]:
            prefix_B = self.prefix_BT[:, length]
            forced_B = torch.where(prefix_B == NEVER, forced_B, prefix_B)
        return forced_B


def _padded(task: Task) -> Tensor:
    longest = max(map(len, task.prefixes), default=0)
    rows = [[*prefix, *[NEVER] * (longest - len(prefix))] for prefix in task.prefixes]
    return torch.tensor(rows or [[]] * len(task.src_BS), dtype=torch.long, device=task.src_BS.device)
