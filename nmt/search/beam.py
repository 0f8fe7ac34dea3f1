"""Beam search. Letters: B sentences still running, W beams of each, R = B*W rows, V vocabulary, C candidates."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from nmt.errors import ConfigError
from nmt.search.candidates import top_k
from nmt.search.limits import Limits, Ruled
from nmt.search.task import Hypothesis, SearchModel, State, Task

MOST_BEAMS = 1000
NORMALISATIONS = ("gnmt", "average")


@dataclass(frozen=True, kw_only=True)
class Beamed(Ruled):
    """What every search with beams lets one ask for."""

    size: int = 4
    """W, beginnings kept at every step (beam_size)."""
    top: int = 1
    """Translations returned per sentence (top_beams)."""
    length_penalty: float = 1.0
    """α of the length normalisation; 0 is none and favours short translations."""
    normalisation: str = "gnmt"
    """What a log-probability is divided by: `gnmt`, ((5 + length) / 6)^α (Wu et al. 2016, equation 14), or `average`,
    length^α; the end token counts as one."""
    early_stopping: bool = False
    """Stop a sentence once W hypotheses have finished, as most toolkits do, and not by an exact bound alone."""

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

    def norm(self, length_B: Tensor) -> Tensor:
        """Return what log-probabilities of translations of that length, the end token counted, are divided by."""
        base_B = (5 + length_B) / 6 if self.normalisation == "gnmt" else length_B.float()
        return base_B**self.length_penalty

    def unfinished(self, best_live_B: Tensor, most_B: Tensor, ended: Ended, top: int) -> Tensor:
        """Return for which sentences the search continues, [B].

        Args:
            best_live_B: log-probability of the best beam that is still running.
            most_B: maximum number of target tokens, the end token not counted.
            ended: the finished hypotheses.
            top: how many of them are returned.
        """
        stay_B = may_improve(best_live_B, self.norm(most_B + 1), ended.score_BW[:, top - 1])
        return stay_B & ~ended.full_B if self.early_stopping else stay_B


@dataclass(frozen=True, kw_only=True)
class Beam(Beamed):
    """Keeps the W most probable beginnings at every step.

    The W most probable extensions of a sentence's beams are taken; those that end become hypotheses, and the W best
    that do not end live on. A sentence is done when no living beam can still reach one of the `top` best
    (`may_improve`), or, with `early_stopping`, already when W hypotheses have finished.
    """

    coverage: float = 0.0
    """β of the coverage penalty (Wu et al. 2016, equation 14): ended translations that left a part of the source unread
    lose; 0 is off, 0.2 is usual."""

    def __post_init__(self) -> None:
        """Raise a ConfigError for options out of range."""
        super().__post_init__()
        if not 0 <= self.coverage <= 10:
            raise ConfigError(f"coverage must be between 0 and 10, got {self.coverage}", "0.2 is usual")

    def __call__(self, model: SearchModel, task: Task) -> list[list[Hypothesis]]:
        """Return the `top` best hypotheses per sentence, best first."""
        rules = Limits(task, self)
        sentences, device = len(task.src_BS), task.src_BS.device
        state = model.begin(task.src_BS, task.src_mask_BS)
        coverage = Coverage(self.coverage, state, task) if self.coverage else None
        ended = Ended(sentences, self.size, device)
        # All beams begin alike: one row for each sentence reads the start token, and its best extensions fill the beam.
        tokens_RT = torch.full((sentences, 1), task.bos, device=device)
        log_prob_BW = torch.zeros(sentences, 1, device=device)
        while len(ended):
            log_p_RV = model.next_log_probs(tokens_RT[:, -1], state)
            rules.apply(log_p_RV, tokens_RT)
            # At most one extension per beam ends, so among 2W at least W do not.
            log_prob_BC, at_BC = top_k(log_p_RV, 2 * self.size, log_prob_BW)
            if (few := 2 * self.size - at_BC.shape[1]) > 0:  # impossible ones fill up
                log_prob_BC, at_BC = F.pad(log_prob_BC, (0, few), value=-torch.inf), F.pad(at_BC, (0, few))
            beam_BC, token_BC = at_BC // log_p_RV.shape[1], at_BC % log_p_RV.shape[1]
            ends_BC = token_BC == task.eos

            # An impossible beam also proposes its end; it must not count as a hypothesis.
            hit_BC = ends_BC & log_prob_BC.isfinite()
            hit_BC[:, self.size :] = False
            row_BC = beam_BC + torch.arange(len(ended), device=device)[:, None] * log_prob_BW.shape[1]
            length = tokens_RT.shape[1]  # of what ends now, the end token counted
            extra_BC = None if coverage is None else coverage.read()[row_BC]
            ended.add(hit_BC, row_BC, tokens_RT, log_prob_BC, float(self.norm(torch.tensor(length))), extra_BC)

            # Move what goes on to the front, in order of score. An extension that ended can only be among the W that go
            # on where too few others are possible (the first step, the length limit); it is then as dead as they are.
            log_prob_BW, order_BW = log_prob_BC.masked_fill(ends_BC, -torch.inf).topk(self.size)
            row_BW, next_BW = row_BC.gather(1, order_BW), token_BC.gather(1, order_BW)
            stay_B = self.unfinished(log_prob_BW[:, 0], rules.most_B, ended, self.top)
            stay = None if stay_B.all() else stay_B.nonzero()[:, 0]
            if stay is not None:
                row_BW, next_BW, log_prob_BW = row_BW[stay], next_BW[stay], log_prob_BW[stay]
                ended.select(stay)
                rules.select(stay)
            row_R = row_BW.flatten()
            state.select(row_R, stay)
            if coverage is not None:
                coverage.select(row_R, stay)
            tokens_RT = torch.cat((tokens_RT[row_R], next_BW.view(-1, 1)), dim=1)
        return ended.best(self.top)


def first_beams(sentences: int, size: int, device: torch.device) -> Tensor:
    """Return the log-probabilities [B, W] to begin with.

    All beams start alike, so only the first may propose: the others would fill the beam with copies of it.
    """
    log_prob_BW = torch.full((sentences, size), -torch.inf, device=device)
    log_prob_BW[:, 0] = 0.0
    return log_prob_BW


def may_improve(best_live_B: Tensor, longest_B: Tensor, worst_B: Tensor) -> Tensor:
    """Say for which sentences a living beam may still enter the `top` best: an exact bound, not a guess.

    Log-probabilities only fall, the normaliser only grows with length, and a coverage penalty only takes away, so a
    beam's final score is at most its present log-probability under the normaliser of the longest translation allowed.
    """
    return (best_live_B > -torch.inf) & (best_live_B / longest_B > worst_B)


class Ended:
    """The hypotheses that have ended; its length is the number of sentences still running."""

    def __init__(self, sentences: int, size: int, device: torch.device) -> None:
        self.size = size
        self.found: list[list[Hypothesis]] = [[] for _ in range(sentences)]
        self.running_B = torch.arange(sentences, device=device)
        self.score_BW = torch.full((sentences, size), -torch.inf, device=device)
        """Each running sentence's W best scores so far, best first."""

    def __len__(self) -> int:
        return len(self.running_B)

    @property
    def full_B(self) -> Tensor:
        """Return which running sentences have W finished hypotheses."""
        return self.score_BW[:, -1] > -torch.inf

    def add(
        self, hit_BC: Tensor, row_BC: Tensor, tokens_RT: Tensor, log_prob_BC: Tensor, norm: float,
        extra_BC: Tensor | None = None,
    ) -> None:  # fmt: skip
        """Take the candidates that `hit_BC` marks: beams `row_BC` that end here, scored log_prob / norm + extra."""
        if not hit_BC.any():
            return
        score_BC = log_prob_BC / norm if extra_BC is None else log_prob_BC / norm + extra_BC
        ended_BC = score_BC.masked_fill(~hit_BC, -torch.inf)
        self.score_BW = torch.cat((self.score_BW, ended_BC), 1).topk(self.size).values
        for sentence, ids, log_prob, score in zip(
            self.running_B[hit_BC.nonzero()[:, 0]].tolist(), tokens_RT[row_BC[hit_BC], 1:].tolist(),
            log_prob_BC[hit_BC].tolist(), score_BC[hit_BC].tolist(), strict=True,
        ):  # fmt: skip
            self.found[sentence].append(Hypothesis(ids, log_prob, score, norm))

    def select(self, sentences_B: Tensor) -> None:
        """Keep some of the running sentences."""
        self.running_B, self.score_BW = self.running_B[sentences_B], self.score_BW[sentences_B]

    def best(self, top: int) -> list[list[Hypothesis]]:
        """Return each sentence's best, best first."""
        return [sorted(hypotheses, key=lambda h: -h.score)[:top] for hypotheses in self.found]


class Coverage:
    """How much attention each source token has got: cp = β Σ_i log min(Σ_j p_ij, 1) (Wu et al. 2016, equation 14)."""

    def __init__(self, weight: float, state: State, task: Task) -> None:
        state.watch()
        self.weight, self.state = weight, state
        self.mask_BS = task.src_mask_BS
        self.got_RS: Tensor | None = None

    def read(self) -> Tensor:
        """Add where the last step looked, and return every row's penalty, [R]."""
        assert self.state.seen_RTS is not None
        seen_RS = self.state.seen_RTS[:, -1].float()
        self.got_RS = seen_RS if self.got_RS is None else self.got_RS + seen_RS
        mask_RS = self.mask_BS.repeat_interleave(len(seen_RS) // len(self.mask_BS), 0)
        least = torch.finfo(torch.float32).tiny  # softmax may underflow, and log 0 would forbid what it should dislike
        return self.weight * self.got_RS.clamp(least, 1.0).log().masked_fill(~mask_RS, 0.0).sum(1)

    def select(self, row_R: Tensor, sentences_B: Tensor | None) -> None:
        """Keep some rows, in that order."""
        assert self.got_RS is not None
        self.got_RS = self.got_RS[row_R]
        if sentences_B is not None:
            self.mask_BS = self.mask_BS[sentences_B]
