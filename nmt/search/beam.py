"""Beam search. Letters: B sentences still running, W beams of each, R = B*W rows, V vocabulary, C candidates."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from nmt.errors import ConfigError
from nmt.search.candidates import log_normaliser, top_k
from nmt.search.limits import Limits, Ruled
from nmt.search.task import Hypothesis, SearchModel, Task

MOST_BEAMS = 1000
NORMALISATIONS = ("gnmt", "average")


@dataclass(frozen=True, kw_only=True)
class Beam(Ruled):
    """Keeps the W most probable beginnings at every step.

    The W most probable extensions of a sentence's beams are taken; those that end become hypotheses, and the W best
    that do not end live on. A sentence is done when W hypotheses have ended, or earlier, when no living beam can still
    reach one of the `top` best (`_may_improve`).
    """

    size: int = 4
    """W, beginnings kept at every step (beam_size)."""
    top: int = 1
    """Translations returned per sentence (top_beams)."""
    length_penalty: float = 1.0
    """α of the length normalisation; 0 is none and favours short translations."""
    normalisation: str = "gnmt"
    """What a log-probability is divided by: `gnmt`, ((5 + length) / 6)^α (Wu et al. 2016, equation 14), or `average`,
    length^α; the end token counts as one."""

    def __post_init__(self) -> None:
        """Raise a ConfigError for options out of range."""
        super().__post_init__()
        if not 1 <= self.size <= MOST_BEAMS:
            raise ConfigError(f"beam size must be between 1 and {MOST_BEAMS}, got {self.size}", "4 to 10 is usual")
        if not 1 <= self.top <= self.size:
            raise ConfigError(f"top beams must be between 1 and the beam size ({self.size}), got {self.top}")
        if not 0 <= self.length_penalty <= 10:
            raise ConfigError(f"length penalty must be between 0 and 10, got {self.length_penalty}", "1.0 is usual")
        if self.normalisation not in NORMALISATIONS:
            raise ConfigError(f"normalisation must be {' or '.join(NORMALISATIONS)}, got '{self.normalisation}'")

    @property
    def rows(self) -> int:
        """Rows of a batch for each sentence."""
        return self.size

    def __call__(self, model: SearchModel, task: Task) -> list[list[Hypothesis]]:
        """Return the `top` best hypotheses per sentence, best first."""
        rules = Limits(task, self)
        sentences, device = len(task.src_BS), task.src_BS.device
        found: list[list[Hypothesis]] = [[] for _ in range(sentences)]
        state = model.begin(task.src_BS, task.src_mask_BS)
        running_B = torch.arange(sentences, device=device)
        tokens_RT = torch.full((sentences * self.size, 1), task.bos, device=device)
        # All beams start alike, so only the first may propose: the others would fill the beam with copies of it.
        score_BW = torch.full((sentences, self.size), -torch.inf, device=device)
        score_BW[:, 0] = 0.0
        ended_BW = torch.full((sentences, self.size), -torch.inf, device=device)  # best scores so far, best first
        while len(running_B):
            length = tokens_RT.shape[1]  # of what ends now, the end token counted
            logits_RV = model.next_logits(tokens_RT[:, -1], state)
            normaliser_R1 = log_normaliser(logits_RV)
            rules.apply(logits_RV, tokens_RT)
            # At most one extension per beam ends, so among 2W at least W do not.
            logit_RC, token_RC = top_k(logits_RV, 2 * self.size)
            candidates = token_RC.shape[1]
            total_BX = (score_BW.view(-1, 1) + logit_RC - normaliser_R1).view(len(running_B), -1)
            score_BC, at_BC = total_BX.topk(min(2 * self.size, total_BX.shape[1]))
            beam_BC, token_BC = at_BC // candidates, token_RC.view(total_BX.shape).gather(1, at_BC)
            ends_BC = token_BC == task.eos

            # An impossible beam also proposes its end; it must not count as a hypothesis.
            hit_BC = ends_BC & score_BC.isfinite()
            hit_BC[:, self.size :] = False
            first_row_B1 = torch.arange(len(running_B), device=device)[:, None] * self.size
            if hit_BC.any():
                rows = (first_row_B1 + beam_BC)[hit_BC]
                normed_BC = (score_BC / self._norm(torch.tensor(length))).masked_fill(~hit_BC, -torch.inf)
                ended_BW = torch.cat((ended_BW, normed_BC), 1).topk(self.size).values
                for sentence, ids, log_prob, score in zip(
                    running_B[hit_BC.nonzero()[:, 0]].tolist(), tokens_RT[rows, 1:].tolist(),
                    score_BC[hit_BC].tolist(), normed_BC[hit_BC].tolist(), strict=True,
                ):  # fmt: skip
                    found[sentence].append(Hypothesis(ids, log_prob, score))

            # Move what goes on to the front, in order of score. An extension that ended can only be among the W that go
            # on where too few others are possible (the first step, the length limit); it is then as dead as they are.
            score_BW, order_BW = score_BC.masked_fill(ends_BC, -torch.inf).topk(self.size)
            rows_BW = first_row_B1 + beam_BC.gather(1, order_BW)
            next_BW = token_BC.gather(1, order_BW)
            longest_B = self._norm(rules.most_B + 1)
            stay_B = _may_improve(score_BW[:, 0], longest_B, ended_BW[:, self.top - 1])
            stay_B &= ended_BW[:, -1] == -torch.inf  # fewer than W have ended
            if not stay_B.all():
                stay = stay_B.nonzero()[:, 0]
                rows_BW, next_BW, score_BW = rows_BW[stay], next_BW[stay], score_BW[stay]
                running_B, ended_BW = running_B[stay], ended_BW[stay]
                state.select(rows_BW.flatten(), stay)
                rules.select(stay)
            else:
                state.select(rows_BW.flatten())
            tokens_RT = torch.cat((tokens_RT[rows_BW.flatten()], next_BW.view(-1, 1)), dim=1)
        return [sorted(hypotheses, key=lambda h: -h.score)[: self.top] for hypotheses in found]

    def _norm(self, length_B: Tensor) -> Tensor:
        """Return what log-probabilities of translations of that length, the end token counted, are divided by."""
        base_B = (5 + length_B) / 6 if self.normalisation == "gnmt" else length_B.float()
        return base_B**self.length_penalty


def _may_improve(best_live_B: Tensor, longest_B: Tensor, worst_B: Tensor) -> Tensor:
    """Say for which sentences a living beam may still enter the `top` best: an exact bound, not a guess.

    Log-probabilities only fall, and the normaliser only grows with length, so a beam's final score is at most its
    present log-probability under the normaliser of the longest translation allowed.
    """
    return (best_live_B > -torch.inf) & (best_live_B / longest_B > worst_B)
