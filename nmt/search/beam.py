"""Beam search. Letters: B running sentences, W beams of each, R = B*W rows, T target tokens, C candidates."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nmt.errors import ConfigError
from nmt.search.partial import PartialHypotheses, SearchOptions
from nmt.search.request import Bools, Floats, Hypothesis, Ints, SearchRequest, StepModel

MAX_BEAMS = 1000
NORMALIZATIONS = ("gnmt", "average")


@dataclass(frozen=True, kw_only=True)
class BeamOptions(SearchOptions):
    """Options of every search with beams."""

    beam_size: int = 4
    """W, partial hypotheses kept at every step (beam_size)."""
    top_beams: int = 1
    """Translations returned per sentence (top_beams)."""
    length_penalty: float = 1.0
    """Exponent α of length normalization; 0 is none and favors short translations."""
    length_normalization: str = "gnmt"
    """Divisor of a log-probability: `gnmt`, ((5 + length) / 6)^α (Wu et al. 2016, equation 14), or `average`,
    length^α; the end token counts as one."""
    early_stopping: bool = False
    """Stop a sentence once W hypotheses have finished, as most toolkits do, and not by an exact bound alone."""

    def __post_init__(self) -> None:
        """Raise a ConfigError for options out of range."""
        super().__post_init__()
        if not 1 <= self.beam_size <= MAX_BEAMS:
            raise ConfigError(f"beam size must be between 1 and {MAX_BEAMS}, got {self.beam_size}", "4 to 10 is usual")
        if not 1 <= self.top_beams <= self.beam_size:
            raise ConfigError(f"top beams must be between 1 and the beam size ({self.beam_size}), got {self.top_beams}")
        if not 0 <= self.length_penalty <= 10:
            raise ConfigError(f"length penalty must be between 0 and 10, got {self.length_penalty}", "1.0 is usual")
        if self.length_normalization not in NORMALIZATIONS:
            raise ConfigError(
                f"length_normalization must be {' or '.join(NORMALIZATIONS)}, got '{self.length_normalization}'"
            )

    @property
    def rows(self) -> int:
        """Rows of a batch for each sentence."""
        return self.beam_size

    @property
    def n_best(self) -> int:
        """Maximum number of hypotheses returned per sentence."""
        return self.top_beams

    def norm(self, length: Ints | int) -> Floats:
        """Return the divisor of log-probabilities of translations of that length, the end token counted."""
        base = (5 + np.asarray(length)) / 6 if self.length_normalization == "gnmt" else np.asarray(length)
        return np.asarray(base.astype(np.float64) ** self.length_penalty, np.float32)

    def unfinished(self, best_B: Floats, max_length_B: Ints, finished: FinishedHypotheses, top: int) -> Bools:
        """Return for which sentences the search continues, [B].

        Args:
            best_B: log-probability of the best partial hypothesis.
            max_length_B: maximum number of target tokens, the end token not counted.
            finished: the finished hypotheses.
            top: how many of them are returned.
        """
        stay_B = can_improve(best_B, self.norm(max_length_B + 1), finished.score_BW[:, top - 1])
        return stay_B & ~finished.full_B if self.early_stopping else stay_B


@dataclass(frozen=True, kw_only=True)
class Beam(BeamOptions):
    """Keeps the W most probable partial hypotheses at every step.

    The W most probable extensions of a sentence's beams are taken; those that end become hypotheses, and the W best
    that do not end are continued. A sentence is done when no beam can still reach one of the `top` best
    (`can_improve`), or, with `early_stopping`, already when W hypotheses have finished.
    """

    coverage_penalty: float = 0.0
    """β of the coverage penalty (Wu et al. 2016, equation 14): translations that leave a part of the source without
    attention lose; 0 is off, 0.2 is usual."""

    def __post_init__(self) -> None:
        """Raise a ConfigError for options out of range."""
        super().__post_init__()
        if not 0 <= self.coverage_penalty <= 10:
            raise ConfigError(f"coverage_penalty must be between 0 and 10, got {self.coverage_penalty}", "0.2 is usual")

    def __call__(self, model: StepModel, request: SearchRequest) -> list[list[Hypothesis]]:
        """Return the `top` best hypotheses per sentence, best first."""
        # All beams would begin alike: one row for each sentence reads the start token; its extensions fill the beam.
        partial = PartialHypotheses(model, request, self, track_attention=bool(self.coverage_penalty))
        finished = FinishedHypotheses(len(partial), self.beam_size)
        coverage_RS: Floats | None = None
        log_prob_BW = np.zeros((len(partial), 1), np.float32)
        while len(partial):
            # At most one extension per beam ends, so among 2W at least W do not.
            result = partial.step(2 * self.beam_size)
            width, k = partial.width, result.tokens_RK.shape[1]
            log_prob_BC, at_BC = best_candidates(log_prob_BW, result.log_p_RK, 2 * self.beam_size)
            rows_BC = np.arange(len(partial))[:, None] * width + at_BC // k
            tokens_BC = result.tokens_RK[rows_BC, at_BC % k]
            ends_BC = tokens_BC == request.eos

            # An impossible beam also proposes its end; it must not count as a hypothesis.
            finishes_BC = ends_BC & np.isfinite(log_prob_BC)
            finishes_BC[:, self.beam_size :] = False
            penalty_BC = None
            if self.coverage_penalty:
                assert partial.state.attention_RS is not None
                attention_RS = partial.state.attention_RS
                coverage_RS = attention_RS if coverage_RS is None else coverage_RS + attention_RS
                lengths_R = request.source_length_B[partial.sentence_B].repeat(width)
                penalty_BC = self.coverage_penalty * coverage_penalty(coverage_RS, lengths_R)[rows_BC]
            norm = self.norm(partial.length + 1)
            finished.add(finishes_BC, rows_BC, partial, log_prob_BC, norm, penalty_BC)

            # What ends is out; where too few others are possible (the first step, the length limit), -inf fills up.
            going_BC = np.where(ends_BC, np.float32(-np.inf), log_prob_BC)
            order_BW = np.argsort(-going_BC, axis=1, kind="stable")[:, : self.beam_size]
            log_prob_BW = np.take_along_axis(going_BC, order_BW, 1)
            stay_B = self.unfinished(log_prob_BW[:, 0], partial.max_length_B, finished, self.top_beams)
            rows_R = np.take_along_axis(rows_BC, order_BW, 1)[stay_B].ravel()
            tokens_R = np.take_along_axis(tokens_BC, order_BW, 1)[stay_B].ravel()
            log_prob_BW = log_prob_BW[stay_B]
            coverage_RS = None if coverage_RS is None else coverage_RS[rows_R]
            finished.keep(stay_B)
            partial.advance(rows_R, tokens_R, stay_B)
        return finished.best(self.top_beams)


def best_candidates(log_prob_BW: Floats, log_p_RK: Floats, count: int) -> tuple[Floats, Ints]:
    """Return the `count` best extensions of each sentence, best first, and their places; -inf fills up.

    A place is w*K + k: the k-th best token of row w.
    """
    total_BX = (log_prob_BW.reshape(-1, 1) + log_p_RK).reshape(len(log_prob_BW), -1)
    at_BC = np.argsort(-total_BX, axis=1, kind="stable")[:, :count]
    best_BC = np.take_along_axis(total_BX, at_BC, 1)
    if missing := count - at_BC.shape[1]:
        best_BC = np.pad(best_BC, ((0, 0), (0, missing)), constant_values=-np.inf)
        at_BC = np.pad(at_BC, ((0, 0), (0, missing)))
    return best_BC, at_BC


def first_beams(sentences: int, size: int) -> Floats:
    """Return log-probabilities [B, W] of equal first rows: only one proposes, or copies of it would fill the beam."""
    log_prob_BW = np.full((sentences, size), -np.inf, np.float32)
    log_prob_BW[:, 0] = 0.0
    return log_prob_BW


def can_improve(best_B: Floats, longest_B: Floats, worst_B: Floats) -> Bools:
    """Return for which sentences a partial hypothesis may still enter the `top` best: an exact bound, not a guess.

    Log-probabilities only fall, the divisor only grows with length, and a coverage penalty only subtracts, so a final
    score is at most the present log-probability divided by the norm of the longest translation allowed.
    """
    with np.errstate(invalid="ignore"):
        return (best_B > -np.inf) & (best_B / longest_B > worst_B)


def coverage_penalty(coverage_RS: Floats, lengths_R: Ints) -> Floats:
    """Return Σ_i log min(Σ_j p_ij, 1) over each row's source tokens (Wu et al. 2016, equation 14), [R]."""
    tiny = np.finfo(np.float32).tiny  # a weight may underflow, and log 0 would forbid what it should only dislike
    real_RS = np.arange(coverage_RS.shape[1]) < lengths_R[:, None]
    log_RS = np.where(real_RS, np.log(coverage_RS.clip(tiny, 1.0)), np.float32(0.0))
    penalty_R: Floats = log_RS.cumsum(1)[:, -1]  # in order, so that the batch's padding does not change the rounding
    return penalty_R


class FinishedHypotheses:
    """The finished hypotheses of every sentence."""

    def __init__(self, sentences: int, size: int) -> None:
        self.size = size
        self.found: list[list[Hypothesis]] = [[] for _ in range(sentences)]
        self.score_BW = np.full((sentences, size), -np.inf, np.float32)
        """The W best scores of each running sentence, best first."""

    @property
    def full_B(self) -> Bools:
        """Which running sentences have W finished hypotheses."""
        return self.score_BW[:, -1] > -np.inf

    def add(
        self, finishes_BC: Bools, rows_BC: Ints, partial: PartialHypotheses, log_prob_BC: Floats, norm: Floats,
        penalty_BC: Floats | None = None,
    ) -> None:  # fmt: skip
        """Add the candidates that `finishes_BC` marks: rows that end now, scored log_prob / norm + penalty."""
        if not finishes_BC.any():
            return
        score_BC = log_prob_BC / norm if penalty_BC is None else log_prob_BC / norm + penalty_BC
        all_BX = np.concatenate((self.score_BW, np.where(finishes_BC, score_BC, np.float32(-np.inf))), 1)
        self.score_BW = -np.sort(-all_BX, axis=1)[:, : self.size]
        for sentence, ids, log_prob, score in zip(
            partial.sentence_B[finishes_BC.nonzero()[0]].tolist(), partial.tokens_RT[rows_BC[finishes_BC], 1:].tolist(),
            log_prob_BC[finishes_BC].tolist(), score_BC[finishes_BC].tolist(), strict=True,
        ):  # fmt: skip
            self.found[sentence].append(Hypothesis(ids, log_prob, score, float(norm)))

    def keep(self, stay_B: Bools) -> None:
        """Keep some of the running sentences."""
        self.score_BW = self.score_BW[stay_B]

    def best(self, top: int) -> list[list[Hypothesis]]:
        """Return each sentence's best, best first."""
        return [sorted(hypotheses, key=lambda h: -h.score)[:top] for hypotheses in self.found]
