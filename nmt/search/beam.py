"""Beam search.

Shape suffixes: B unfinished sentences, W rows (partial hypotheses) of each beam, R = B*W, T target tokens, C
candidates.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nmt.errors import ConfigError
from nmt.search.partial import PartialHypotheses, SearchOptions, check_range
from nmt.search.request import Bools, Floats, Hypothesis, Ints, SearchRequest, StepModel

MAX_BEAMS = 1000
NORMALIZATIONS = ("gnmt", "average")


@dataclass(frozen=True, kw_only=True)
class BeamOptions(SearchOptions):
    """Options of all beam searches."""

    beam_size: int = 4
    """W, the number of partial hypotheses kept per step."""
    top_beams: int = 1
    """Number of translations returned per sentence."""
    length_penalty: float = 1.0
    """Exponent α of length normalization; 0 is no normalization and favors short translations."""
    length_normalization: str = "gnmt"
    """Divisor of a log-probability: `gnmt`, ((5 + length) / 6)^α (Wu et al. 2016, equation 14), or `average`,
    length^α. The length includes the end token."""
    early_stopping: bool = False
    """Stop when W hypotheses have finished, as fairseq and CTranslate2 do, instead of when `can_improve` rules
    out any improvement."""

    def __post_init__(self) -> None:
        """Raise a ConfigError if an option is out of range."""
        super().__post_init__()
        check_range("beam_size", self.beam_size, 1, MAX_BEAMS, "typical values are 4 to 10")
        if not 1 <= self.top_beams <= self.beam_size:
            raise ConfigError(f"top_beams must be between 1 and beam_size ({self.beam_size}), got {self.top_beams}")
        check_range("length_penalty", self.length_penalty, 0, 10, "a typical value is 1.0")
        if self.length_normalization not in NORMALIZATIONS:
            raise ConfigError(
                f"length_normalization must be {' or '.join(NORMALIZATIONS)}, got '{self.length_normalization}'"
            )

    @property
    def rows(self) -> int:
        """Number of rows per sentence in a batch."""
        return self.beam_size

    @property
    def n_best(self) -> int:
        """Maximum number of hypotheses returned per sentence."""
        return self.top_beams

    def length_norm(self, length: Ints | int) -> Floats:
        """Return the divisor of the log-probability of a translation. The length includes the end token."""
        base = (5 + np.asarray(length)) / 6 if self.length_normalization == "gnmt" else np.asarray(length)
        return np.asarray(base.astype(np.float64) ** self.length_penalty, np.float32)

    def is_running(self, log_prob_B: Floats, max_length_B: Ints, finished: FinishedHypotheses, n_best: int) -> Bools:
        """Return whether the search continues for each sentence, [B].

        Args:
            log_prob_B: log-probability of the best partial hypothesis.
            max_length_B: maximum number of target tokens, not including the end token.
            finished: finished hypotheses.
            n_best: number of hypotheses to return.
        """
        running_B = can_improve(log_prob_B, self.length_norm(max_length_B + 1), finished.score_BW[:, n_best - 1])
        return running_B & ~finished.is_full_B if self.early_stopping else running_B


@dataclass(frozen=True, kw_only=True)
class Beam(BeamOptions):
    """Keeps the W most probable partial hypotheses at each step.

    Of the W most probable candidates of a sentence, those that end become finished hypotheses. The W best candidates
    that do not end form the new beam. The search stops when no partial hypothesis can improve the n-best list
    (`can_improve`), or, with `early_stopping`, when W hypotheses have finished.
    """

    coverage_penalty: float = 0.0
    """Weight β of the coverage penalty (Wu et al. 2016, equation 14), which penalizes translations that do not attend
    to all source tokens; 0 is off, a typical value is 0.2."""

    def __post_init__(self) -> None:
        """Raise a ConfigError if an option is out of range."""
        super().__post_init__()
        check_range("coverage_penalty", self.coverage_penalty, 0, 10, "a typical value is 0.2")

    def __call__(self, model: StepModel, request: SearchRequest) -> list[list[Hypothesis]]:
        """Return the `top_beams` best hypotheses of each sentence, best first."""
        # One row per sentence at the start token; its extensions fill the beam.
        partial = PartialHypotheses(model, request, self, track_attention=bool(self.coverage_penalty))
        finished = FinishedHypotheses(len(partial), self.beam_size)
        coverage_RS: Floats | None = None
        log_prob_BW = np.zeros((len(partial), 1), np.float32)
        while len(partial):
            # At most one extension per row ends, so at least W of the 2W best do not.
            result = partial.step(2 * self.beam_size)
            width, k = partial.width, result.tokens_RK.shape[1]
            log_prob_BC, index_BC = best_candidates(log_prob_BW, result.log_p_RK, 2 * self.beam_size)
            at_B1 = np.arange(len(partial))[:, None]  # to index with: np.take_along_axis is slow for small arrays
            rows_BC = at_B1 * width + index_BC // k
            tokens_BC = result.tokens_RK[rows_BC, index_BC % k]
            ends_BC = tokens_BC == request.eos

            # The extensions of an impossible row, at -inf, are not hypotheses.
            finishes_BC = ends_BC & np.isfinite(log_prob_BC)
            finishes_BC[:, self.beam_size :] = False
            penalty_BC = None
            if self.coverage_penalty:
                assert partial.state.attention_RS is not None
                attention_RS = partial.state.attention_RS
                coverage_RS = attention_RS if coverage_RS is None else coverage_RS + attention_RS
                lengths_R = request.source_length_B[partial.sentence_B].repeat(width)
                penalty_BC = self.coverage_penalty * coverage_penalty(coverage_RS, lengths_R)[rows_BC]
            length_norm = self.length_norm(partial.length + 1)
            finished.add(finishes_BC, rows_BC, partial, log_prob_BC, length_norm, penalty_BC)

            # Continue the others; -inf pads the beam if there are too few (first step, length limit).
            continues_BC = np.where(ends_BC, np.float32(-np.inf), log_prob_BC)
            order_BW = np.argsort(-continues_BC, axis=1, kind="stable")[:, : self.beam_size]
            log_prob_BW = continues_BC[at_B1, order_BW]
            is_running_B = self.is_running(log_prob_BW[:, 0], partial.max_length_B, finished, self.top_beams)
            rows_R = rows_BC[at_B1, order_BW][is_running_B].ravel()
            tokens_R = tokens_BC[at_B1, order_BW][is_running_B].ravel()
            log_prob_BW = log_prob_BW[is_running_B]
            coverage_RS = None if coverage_RS is None else coverage_RS[rows_R]
            finished.keep(is_running_B)
            partial.advance(rows_R, tokens_R, is_running_B)
        return finished.best(self.top_beams)


def best_candidates(log_prob_BW: Floats, log_p_RK: Floats, count: int) -> tuple[Floats, Ints]:
    """Return the log-probabilities of the `count` best candidates of each sentence, best first, and their indices.

    Candidate w*K + k extends row w with its k-th best token. Log-probabilities are padded with -inf.
    """
    log_prob_BX = (log_prob_BW.reshape(-1, 1) + log_p_RK).reshape(len(log_prob_BW), -1)
    index_BC = np.argsort(-log_prob_BX, axis=1, kind="stable")[:, :count]
    log_prob_BC = log_prob_BX[np.arange(len(log_prob_BX))[:, None], index_BC]
    if missing := count - index_BC.shape[1]:
        log_prob_BC = np.pad(log_prob_BC, ((0, 0), (0, missing)), constant_values=-np.inf)
        index_BC = np.pad(index_BC, ((0, 0), (0, missing)))
    return log_prob_BC, index_BC


def initial_log_probs(num_sentences: int, width: int) -> Floats:
    """Return the log-probabilities of equal initial rows, [B, W]: -inf for all but one, to avoid duplicates."""
    log_prob_BW = np.full((num_sentences, width), -np.inf, np.float32)
    log_prob_BW[:, 0] = 0.0
    return log_prob_BW


def can_improve(log_prob_B: Floats, max_length_norm_B: Floats, min_score_B: Floats) -> Bools:
    """Return whether a partial hypothesis of each sentence can still enter the n-best list.

    The bound is admissible: stopping never changes the n-best list. Log-probabilities decrease and length norms
    increase with the length, and a coverage penalty is at most 0. A final score is therefore at most the current
    log-probability divided by the length norm of the longest translation.
    """
    with np.errstate(invalid="ignore"):
        return (log_prob_B > -np.inf) & (log_prob_B / max_length_norm_B > min_score_B)


def coverage_penalty(coverage_RS: Floats, lengths_R: Ints) -> Floats:
    """Return Σ_i log min(Σ_j p_ij, 1) over the source tokens of each row (Wu et al. 2016, equation 14), [R]."""
    tiny = np.finfo(np.float32).tiny  # a weight may underflow, and log 0 would exclude the hypothesis
    is_source_RS = np.arange(coverage_RS.shape[1]) < lengths_R[:, None]
    log_RS = np.where(is_source_RS, np.log(coverage_RS.clip(tiny, 1.0)), np.float32(0.0))
    penalty_R: Floats = log_RS.cumsum(1)[:, -1]  # sequential, so that padding does not change the rounding
    return penalty_R


class FinishedHypotheses:
    """The finished hypotheses of every sentence."""

    def __init__(self, num_sentences: int, width: int) -> None:
        self.hypotheses: list[list[Hypothesis]] = [[] for _ in range(num_sentences)]
        self.score_BW = np.full((num_sentences, width), -np.inf, np.float32)
        """The W best scores of each unfinished sentence, best first."""

    @property
    def is_full_B(self) -> Bools:
        """Whether each unfinished sentence has W finished hypotheses."""
        return self.score_BW[:, -1] > -np.inf

    def add(
        self, finishes_BC: Bools, rows_BC: Ints, partial: PartialHypotheses, log_prob_BC: Floats, length_norm: Floats,
        penalty_BC: Floats | None = None,
    ) -> None:  # fmt: skip
        """Add the rows of the candidates selected by `finishes_BC`, with the score log_prob / length_norm + penalty."""
        if not finishes_BC.any():
            return
        score_BC = log_prob_BC / length_norm
        if penalty_BC is not None:
            score_BC = score_BC + penalty_BC
        all_BX = np.concatenate((self.score_BW, np.where(finishes_BC, score_BC, np.float32(-np.inf))), 1)
        self.score_BW = -np.sort(-all_BX, axis=1)[:, : self.score_BW.shape[1]]
        for sentence, ids, log_prob, score in zip(
            partial.sentence_B[finishes_BC.nonzero()[0]].tolist(), partial.tokens_RT[rows_BC[finishes_BC], 1:].tolist(),
            log_prob_BC[finishes_BC].tolist(), score_BC[finishes_BC].tolist(), strict=True,
        ):  # fmt: skip
            self.hypotheses[sentence].append(Hypothesis(ids, log_prob, score, float(length_norm)))

    def keep(self, is_running_B: Bools) -> None:
        """Remove sentences that no longer run."""
        self.score_BW = self.score_BW[is_running_B]

    def best(self, count: int) -> list[list[Hypothesis]]:
        """Return the best hypotheses of each sentence, best first."""
        return [sorted(hypotheses, key=lambda h: -h.score)[:count] for hypotheses in self.hypotheses]
