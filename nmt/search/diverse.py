"""Diverse beam search (Vijayakumar et al. 2018). Letters: B sentences, G groups, W beams of a group, C candidates."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from nmt.errors import ConfigError
from nmt.search.beam import Beamed, Ended, first_beams
from nmt.search.candidates import top_k
from nmt.search.limits import Limits
from nmt.search.task import Hypothesis, SearchModel, Task


@dataclass(frozen=True, kw_only=True)
class Diverse(Beamed):
    """Beams in groups, each of which avoids the tokens that the groups before it chose at the same step.

    A group is a beam search whose candidates lose λ for every earlier choice of their token (Hamming diversity,
    algorithm 1). Two things differ from the authors' code. It accumulates the penalties in the scores of the beams;
    here they affect only which candidates a step selects, and hypotheses of all groups are ranked by the model's own
    scores. It also penalizes tokens chosen by beams that end there; here only tokens of beams that continue count.
    """

    groups: int = 2
    """G; it must divide the size."""
    diversity: float = 0.5
    """λ, in nats a token."""

    def __post_init__(self) -> None:
        """Raise a ConfigError for options out of range."""
        super().__post_init__()
        if not 1 <= self.groups <= self.size or self.size % self.groups:
            raise ConfigError(f"groups must divide the beam size ({self.size}), got {self.groups}")
        if not 0 <= self.diversity <= 100:
            raise ConfigError(f"diversity must be between 0 and 100, got {self.diversity}", "0.5 is usual")

    def __call__(self, model: SearchModel, task: Task) -> list[list[Hypothesis]]:
        """Return the `top` best different hypotheses per sentence, best first."""
        rules = Limits(task, self)
        sentences, device, width = len(task.src_BS), task.src_BS.device, self.size // self.groups
        state = model.begin(task.src_BS, task.src_mask_BS)
        groups = [Ended(sentences, width, device) for _ in range(self.groups)]
        tokens_RT = torch.full((sentences * self.size, 1), task.bos, device=device)
        log_prob_GBW = [first_beams(sentences, width, device) for _ in groups]
        while len(groups[0]):
            running = len(groups[0])
            log_p_RV = model.next_log_probs(tokens_RT[:, -1], state)
            rules.apply(log_p_RV, tokens_RT)
            # Up to W tokens of each other group may lose their place, and W more may end.
            log_p_RC, token_RC = top_k(log_p_RV, self.size + width)
            token_BGX = token_RC.view(running, self.groups, -1)
            step_BGX = log_p_RC.view(token_BGX.shape)
            norm = float(self.norm(torch.tensor(tokens_RT.shape[1])))
            chosen_BX = token_RC.new_empty(running, 0)
            row_BGW, next_BGW, stay_B = [], [], torch.zeros(running, dtype=torch.bool, device=device)
            for number, ended in enumerate(groups):
                first_row_B1 = (torch.arange(running, device=device)[:, None] * self.groups + number) * width
                token_BX = token_BGX[:, number]
                total_BX = (log_prob_GBW[number][:, :, None] + step_BGX[:, number].view(running, width, -1)).flatten(1)
                swayed_BX = total_BX - self.diversity * (token_BX[:, :, None] == chosen_BX[:, None]).sum(-1)
                at_BC = swayed_BX.topk(min(2 * width, total_BX.shape[1])).indices
                log_prob_BC, token_BC = total_BX.gather(1, at_BC), token_BX.gather(1, at_BC)
                row_BC = first_row_B1 + at_BC // token_RC.shape[1]
                ends_BC = token_BC == task.eos
                hit_BC = ends_BC & log_prob_BC.isfinite()
                hit_BC[:, width:] = False
                if self.early_stopping:  # a group that has W finished hypotheses takes no more
                    hit_BC &= ~ended.full_B[:, None]
                ended.add(hit_BC, row_BC, tokens_RT, log_prob_BC, norm)

                goes_on_BC = swayed_BX.gather(1, at_BC).masked_fill(ends_BC, -torch.inf)
                order_BW = goes_on_BC.topk(width).indices
                log_prob_BW = log_prob_BC.masked_fill(ends_BC, -torch.inf).gather(1, order_BW)
                row_BGW.append(row_BC.gather(1, order_BW))
                next_BGW.append(token_BC.gather(1, order_BW))
                log_prob_GBW[number] = log_prob_BW
                chosen_BX = torch.cat((chosen_BX, next_BGW[-1]), 1)
                stay_B |= self.unfinished(log_prob_BW.amax(1), rules.most_B, ended, min(self.top, width))
            row_BX, next_BX = torch.cat(row_BGW, 1), torch.cat(next_BGW, 1)
            stay = None if stay_B.all() else stay_B.nonzero()[:, 0]
            if stay is not None:
                row_BX, next_BX = row_BX[stay], next_BX[stay]
                log_prob_GBW = [log_prob_BW[stay] for log_prob_BW in log_prob_GBW]
                rules.select(stay)
                for ended in groups:
                    ended.select(stay)
            row_R = row_BX.flatten()
            state.select(row_R, stay)
            tokens_RT = torch.cat((tokens_RT[row_R], next_BX.view(-1, 1)), dim=1)
        return [
            _different(hypotheses)[: self.top] for hypotheses in zip(*(ended.found for ended in groups), strict=True)
        ]


def _different(found: tuple[list[Hypothesis], ...]) -> list[Hypothesis]:
    """Return the hypotheses of all groups, best first, each once."""
    by_ids = {tuple(h.ids): h for hypotheses in found for h in hypotheses}
    return sorted(by_ids.values(), key=lambda h: -h.score)
