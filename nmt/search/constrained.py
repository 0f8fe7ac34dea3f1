"""Beam search whose translations hold given phrases.

Letters: B sentences, W beams of each, R = B*W rows, V vocabulary, P phrases of a sentence, M tokens of a phrase,
C candidates of a row, X = W*C.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from nmt.errors import ConfigError
from nmt.search.beam import Beamed, Ended, first_beams
from nmt.search.candidates import top_k
from nmt.search.limits import Limits
from nmt.search.task import Hypothesis, SearchModel, Task


@dataclass(frozen=True, kw_only=True)
class Constrained(Beamed):
    """Beams are shared out among the numbers of phrase tokens said so far (Post and Vilar 2018, dynamic allocation).

    Besides its most probable tokens, each beam proposes the next token of every phrase that is still missing. The best
    candidate of each number is taken, then the second best, until the beam is full: a beginning that said a rare word
    early need not compete with one that avoided it. A translation ends when it holds all; near the length limit only
    what is missing may be said. Phrases are counted one by one, so two that overlap may share their words; one that
    is broken off counts from its first token again.
    """

    size: int = 8

    def __post_init__(self) -> None:
        """Raise a ConfigError for options out of range."""
        super().__post_init__()
        if self.no_repeat_ngram:
            raise ConfigError("constrained takes no no_repeat_ngram: a phrase may need what it forbids")

    def __call__(self, model: SearchModel, task: Task) -> list[list[Hypothesis]]:
        """Return the `top` best hypotheses per sentence that hold every phrase, best first."""
        sentences, device = len(task.src_BS), task.src_BS.device
        phrases = Phrases(task)
        rules = Limits(task, self, at_least_B=phrases.tokens_B)
        state = model.begin(task.src_BS, task.src_mask_BS)
        ended = Ended(sentences, self.size, device)
        tokens_RT = torch.full((sentences * self.size, 1), task.bos, device=device)
        said_RP = phrases.none_said(self.size)
        log_prob_BW = first_beams(sentences, self.size, device)
        while len(ended):
            length = tokens_RT.shape[1] - 1
            log_p_RV = model.next_log_probs(tokens_RT[:, -1], state)
            rules.apply(log_p_RV, tokens_RT)
            log_p_RC, token_RC = top_k(log_p_RV, 2 * self.size)
            missing_RP = phrases.next_tokens(said_RP)
            log_p_RP = log_p_RV.gather(1, missing_RP)
            known_RP = (missing_RP[:, :, None] == token_RC[:, None]).any(-1) | _seen_before(missing_RP)
            log_p_RC = torch.cat((log_p_RC, log_p_RP.masked_fill(known_RP, -torch.inf)), 1)
            token_RC = torch.cat((token_RC, missing_RP), 1)

            said_RCP = phrases.advance(said_RP, token_RC)
            left_RC = phrases.left(said_RCP)
            ends_RC = token_RC == task.eos
            room_R1 = (rules.most_B - length).repeat_interleave(self.size)[:, None]
            impossible_RC = torch.where(ends_RC, left_RC > 0, phrases.needed(said_RCP) > room_R1 - 1)
            total_RC = log_prob_BW.view(-1, 1) + log_p_RC
            total_BX = total_RC.masked_fill(impossible_RC, -torch.inf).view(len(ended), -1)
            row_BX = (
                torch.arange(len(total_RC), device=device).repeat_interleave(token_RC.shape[1]).view(total_BX.shape)
            )
            bank_BX, ends_BX, token_BX = (x.view(total_BX.shape) for x in (left_RC, ends_RC, token_RC))

            norm = float(self.norm(torch.tensor(length + 1)))
            at_BW, log_prob_BW = _share_out(total_BX, bank_BX, self.size)
            hit_BW = ends_BX.gather(1, at_BW) & log_prob_BW.isfinite()
            ended.add(hit_BW, row_BX.gather(1, at_BW), tokens_RT, log_prob_BW, norm)

            at_BW, log_prob_BW = _share_out(total_BX.masked_fill(ends_BX, -torch.inf), bank_BX, self.size)
            row_BW, next_BW = row_BX.gather(1, at_BW), token_BX.gather(1, at_BW)
            stay_B = self.unfinished(log_prob_BW.amax(1), rules.most_B, ended, self.top)
            said_RP = said_RCP.view(*total_BX.shape, -1).gather(
                1, at_BW[:, :, None].expand(-1, -1, said_RP.shape[1])
            )  # [B, W, P] until the ended ones are gone
            stay = None if stay_B.all() else stay_B.nonzero()[:, 0]
            if stay is not None:
                row_BW, next_BW, log_prob_BW, said_RP = row_BW[stay], next_BW[stay], log_prob_BW[stay], said_RP[stay]
                ended.select(stay)
                rules.select(stay)
                phrases.select(stay, self.size)
            row_R, said_RP = row_BW.flatten(), said_RP.flatten(0, 1)
            state.select(row_R, stay)
            tokens_RT = torch.cat((tokens_RT[row_R], next_BW.view(-1, 1)), dim=1)
        return ended.best(self.top)


class Phrases:
    """The phrases of each sentence, and how far a beginning is with each of them."""

    def __init__(self, task: Task) -> None:
        phrases = [list(map(list, of)) for of in task.phrases] or [[] for _ in range(len(task.src_BS))]
        count = max(map(len, phrases), default=0)
        longest = max((len(phrase) for of in phrases for phrase in of), default=0)
        device = task.src_BS.device
        padded = [[[*phrase, *[task.eos] * (longest - len(phrase) + 1)] for phrase in of] for of in phrases]
        empty = [task.eos] * (longest + 1)
        rows = [[*of, *[empty] * (count - len(of))] for of in padded]
        self.tokens_BPM = torch.tensor(rows, dtype=torch.long, device=device).view(len(rows), count, longest + 1)
        lengths = [[*map(len, of), *[0] * (count - len(of))] for of in phrases]
        self.length_BP = torch.tensor(lengths, dtype=torch.long, device=device).view(len(rows), count)
        self.tokens_B = self.length_BP.sum(1)
        """Tokens of all phrases."""

    def none_said(self, width: int) -> Tensor:
        """Return how many tokens of each phrase are said at the beginning, [R, P], and spread over `width` rows."""
        self.tokens_RPM = self.tokens_BPM.repeat_interleave(width, 0)
        self.length_RP = self.length_BP.repeat_interleave(width, 0)
        return torch.zeros_like(self.length_RP)

    def next_tokens(self, said_RP: Tensor) -> Tensor:
        """Return the token that each phrase goes on with; the end token where none is missing."""
        return self.tokens_RPM.gather(2, said_RP[:, :, None])[:, :, 0]

    def advance(self, said_RP: Tensor, token_RC: Tensor) -> Tensor:
        """Return how far each candidate is with each phrase, [R, C, P].

        A token that breaks a phrase off may begin it anew.
        """
        complete_R1P = (said_RP == self.length_RP)[:, None]
        goes_on_RCP = token_RC[:, :, None] == self.next_tokens(said_RP)[:, None]
        begins_RCP = (token_RC[:, :, None] == self.tokens_RPM[:, None, :, 0]).long()
        said_R1P = said_RP[:, None]
        return torch.where(complete_R1P, said_R1P, torch.where(goes_on_RCP, said_R1P + 1, begins_RCP))

    def left(self, said_RCP: Tensor) -> Tensor:
        """Return how many tokens of phrases are missing, [R, C]."""
        return (self.length_RP[:, None] - said_RCP).sum(-1)

    def needed(self, said_RCP: Tensor) -> Tensor:
        """Return how many more tokens say all that is missing, at most, [R, C].

        Only one of the phrases that are begun can be gone on with; the others are then broken off.
        """
        length_R1P = self.length_RP[:, None]
        missing_RCP = said_RCP < length_R1P
        none_RC1 = said_RCP.new_zeros(*said_RCP.shape[:2], 1)
        begun_RC = torch.cat((said_RCP * missing_RCP, none_RC1), -1).amax(-1)
        return (length_R1P * missing_RCP).sum(-1) - begun_RC

    def select(self, sentences_B: Tensor, width: int) -> None:
        """Keep some of the sentences."""
        self.tokens_BPM, self.length_BP = self.tokens_BPM[sentences_B], self.length_BP[sentences_B]
        self.none_said(width)


def _seen_before(token_RP: Tensor) -> Tensor:
    """Say of which tokens the row holds the same one further left."""
    same_RPP = token_RP[:, :, None] == token_RP[:, None]
    return same_RPP.tril(-1).any(-1)


def _share_out(total_BX: Tensor, bank_BX: Tensor, width: int) -> tuple[Tensor, Tensor]:
    """Choose the best candidate of each bank, then the second best of each, and so on, until there are `width`.

    Returns:
        Where the chosen stand and their totals, [B, W] each; the total is -inf where there are too few.
    """
    total_BX, order_BX = total_BX.sort(descending=True, stable=True)
    bank_BX = bank_BX.gather(1, order_BX)
    of_bank_BXK = bank_BX[:, :, None] == torch.arange(int(bank_BX.max()) + 1, device=bank_BX.device)
    rank_BX = of_bank_BXK.cumsum(1).gather(2, bank_BX[:, :, None])[:, :, 0]
    rank_BX = rank_BX.masked_fill(total_BX == -torch.inf, total_BX.shape[1] + 1)
    chosen_BW = rank_BX.sort(stable=True).indices[:, :width]  # stable: among equal ranks the more probable
    return order_BX.gather(1, chosen_BW), total_BX.gather(1, chosen_BW)
