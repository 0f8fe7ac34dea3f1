"""Greedy search: the most probable token at every step. Letters: B sentences still running."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from nmt.search.candidates import top_k
from nmt.search.limits import Limits, Ruled
from nmt.search.task import Hypothesis, SearchModel, Task


@dataclass(frozen=True, kw_only=True)
class Greedy(Ruled):
    """Takes the most probable token at every step."""

    rows: ClassVar[int] = 1
    top: ClassVar[int] = 1

    def __call__(self, model: SearchModel, task: Task) -> list[list[Hypothesis]]:
        """Return one hypothesis per sentence."""
        rules = Limits(task, self)
        sentences, device = len(task.src_BS), task.src_BS.device
        state = model.begin(task.src_BS, task.src_mask_BS)
        running_B = torch.arange(sentences, device=device)
        log_prob_B = torch.zeros(sentences, device=device)
        tokens_BT = torch.full((sentences, 1), task.bos, device=device)
        found: list[Hypothesis] = [Hypothesis([], 0.0, 0.0)] * sentences
        while len(running_B):
            log_p_BV = model.next_log_probs(tokens_BT[:, -1], state)
            rules.apply(log_p_BV, tokens_BT)
            best_B1, next_B1 = top_k(log_p_BV, 1)
            log_prob_B = log_prob_B + best_B1[:, 0]
            ended_B = next_B1[:, 0] == task.eos
            if ended_B.any():
                for sentence, ids, log_prob in zip(
                    running_B[ended_B].tolist(), tokens_BT[ended_B, 1:].tolist(), log_prob_B[ended_B].tolist(),
                    strict=True,
                ):  # fmt: skip
                    found[sentence] = Hypothesis(ids, log_prob, log_prob)
                rest = (~ended_B).nonzero()[:, 0]
                state.select(rest, rest)
                rules.select(rest)
                running_B, log_prob_B = running_B[rest], log_prob_B[rest]
                tokens_BT, next_B1 = tokens_BT[rest], next_B1[rest]
            tokens_BT = torch.cat((tokens_BT, next_B1), dim=1)
        return [[hypothesis] for hypothesis in found]
