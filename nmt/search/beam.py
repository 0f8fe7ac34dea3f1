"""Beam search: the loop of all variants, and plain beam search.

Shape suffixes: B unfinished sentences, G beams of each (one, except in diverse beam search), N =
B*G beams, W rows (partial hypotheses) of each beam, R = N*W rows, S source tokens, C candidates of
a beam.
"""

from __future__ import annotations

import bisect
import itertools
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from nmt.core.errors import ConfigError
from nmt.core.ranges import Range
from nmt.search.candidates import IMPOSSIBLE, Candidates, extend
from nmt.search.partial import PartialHypotheses, SearchOptions
from nmt.search.request import (
    Bools,
    Floats,
    Hypothesis,
    Ints,
    NBestLists,
    SearchRequest,
    StepModel,
    best_first,
    rank,
)

MAX_BEAMS = 1000
BeamSize = Annotated[int, Range(1, MAX_BEAMS, hint="typical values are 4 to 10")]
NORMALIZATIONS = ("gnmt", "average")


@dataclass(frozen=True, kw_only=True)
class BeamOptions(SearchOptions):
    """The options and the loop of all beam searches, which differ in `start` and `candidates`."""

    beam_size: BeamSize = 4
    """Number of partial hypotheses kept per step and sentence."""
    top_beams: int = 1
    """Number of translations returned per sentence."""
    length_penalty: Annotated[float, Range(0, 10, hint="a typical value is 1.0")] = 1.0
    """Exponent α of length normalization; 0 is no normalization and favors short translations."""
    length_normalization: str = "gnmt"
    """Divisor of a log-probability: `gnmt`, ((5 + length) / 6)^α (Wu et al. 2016, equation 14), or
    `average`, length^α. The length includes the end token."""
    early_stopping: bool = False
    """Also stop when W hypotheses have finished, as fairseq and CTranslate2 do, although others
    might still improve the n-best list."""

    def __post_init__(self) -> None:
        """Raise a ConfigError if options contradict each other or are unknown."""
        super().__post_init__()
        if not 1 <= self.top_beams <= self.beam_size:
            raise ConfigError(
                f"top_beams must be between 1 and beam_size ({self.beam_size}), got"
                f" {self.top_beams}"
            )
        if self.length_normalization not in NORMALIZATIONS:
            raise ConfigError(
                f"length_normalization must be {' or '.join(NORMALIZATIONS)}, got"
                f" '{self.length_normalization}'"
            )

    @property
    def rows(self) -> int:
        """Number of rows per sentence in a batch."""
        return self.beam_size

    @property
    def n_best(self) -> int:
        """Maximum number of hypotheses returned per sentence."""
        return self.top_beams

    @property
    def num_groups(self) -> int:
        """G, the number of beams of each sentence."""
        return 1

    @property
    def width(self) -> int:
        """W, the number of rows of each beam."""
        return self.beam_size // self.num_groups

    def start(self, model: StepModel, request: SearchRequest) -> PartialHypotheses:
        """Encode the sources. The rows of a sentence are equal, and are divided among its beams."""
        raise NotImplementedError

    def candidates(self, partial: PartialHypotheses) -> Candidates:
        """Read the last token of each row, and return candidates of each beam, [N, C].

        They include the W best of all, and the W best of those that do not end.
        """
        raise NotImplementedError

    def score(self, best: Candidates, partial: PartialHypotheses) -> Floats:
        """Return the scores of candidates that end."""
        score_NW: Floats = best.log_prob_NC / self.length_norm(partial.length + 1)
        return score_NW

    def __call__(self, model: StepModel, request: SearchRequest) -> NBestLists:
        """Return the `top_beams` best distinct hypotheses of each sentence, best first."""
        partial = self.start(model, request)
        # The finished hypotheses of all beams and of those that run, best first.
        finished: NBestLists = [[] for _ in range(len(partial) * self.num_groups)]
        finished_N = finished
        exclude_duplicates(partial, self.num_groups)
        while len(partial):
            candidates = self.candidates(partial)
            ends_NC = candidates.tokens_NC == request.eos
            # Of the W best candidates, those that end are finished hypotheses.
            if ends_NC.any():
                self._finish(candidates.best(self.width), partial, finished_N)
            # The W best candidates that do not end are the new beam.
            beam = candidates.without(ends_NC).best(self.width)
            # A sentence runs while any of its beams does.
            is_running_N = self._is_running(beam, partial, finished_N)
            is_running_B: Bools = np.any(is_running_N.reshape(-1, self.num_groups), axis=1)
            is_kept_N = is_running_B.repeat(self.num_groups)
            finished_N = list(itertools.compress(finished_N, is_kept_N))
            log_prob_R = beam.log_prob_NC[is_kept_N].ravel()
            rows_R = beam.rows_NC[is_kept_N].ravel()
            tokens_R = beam.tokens_NC[is_kept_N].ravel()
            partial.advance(rows_R, tokens_R, log_prob_R, is_running_B)
        return merge_groups(finished, self.num_groups, self.top_beams)

    def _finish(
        self,
        best: Candidates,
        partial: PartialHypotheses,
        finished_N: NBestLists,
    ) -> None:
        """Add the candidates that end to the finished hypotheses."""
        ends_NW = best.tokens_NC == partial.request.eos
        ends_NW &= np.isfinite(best.log_prob_NC)
        if self.early_stopping:
            ends_NW &= ~self._is_full(finished_N)[:, None]
        score_NW = self.score(best, partial)
        length_norm = float(self.length_norm(partial.length + 1))
        for beam, place in np.argwhere(ends_NW):
            row = best.rows_NC[beam, place]
            hypothesis = Hypothesis(
                ids=partial.tokens_RT[row, 1:].tolist(),
                log_prob=float(best.log_prob_NC[beam, place]),
                score=float(score_NW[beam, place]),
                length_norm=length_norm,
            )
            bisect.insort(finished_N[beam], hypothesis, key=rank)

    def _is_full(self, finished_N: NBestLists) -> Bools:
        """Return whether each beam has W finished hypotheses, [N]. With early stopping, it is then
        complete."""
        return np.array([len(finished) >= self.width for finished in finished_N])

    def _is_running(
        self,
        beam: Candidates,
        partial: PartialHypotheses,
        finished_N: NBestLists,
    ) -> Bools:
        """Return whether the search of each beam continues, [N]."""
        max_length_N = partial.max_length_B.repeat(self.num_groups)
        max_length_norm_N = self.length_norm(max_length_N + 1)
        n_best = min(self.top_beams, self.width)
        min_score_N = np.full(len(finished_N), IMPOSSIBLE)
        for n, finished in enumerate(finished_N):
            if len(finished) >= n_best:
                min_score_N[n] = finished[n_best - 1].score
        is_running_N = can_improve(beam.log_prob_NC.max(1), max_length_norm_N, min_score_N)
        if self.early_stopping:
            is_running_N &= ~self._is_full(finished_N)
        return is_running_N

    def length_norm(self, length: Ints | int) -> Floats:
        """Return the divisor of the log-probability of a translation. The length includes the end
        token."""
        base = np.asarray(length)
        if self.length_normalization == "gnmt":
            base = (5 + base) / 6
        return np.asarray(base.astype(np.float64) ** self.length_penalty, np.float32)


def exclude_duplicates(partial: PartialHypotheses, num_groups: int) -> None:
    """Make all rows of a beam but the first impossible, because the rows are equal at first."""
    rows_per_beam = max(1, partial.rows_per_sentence // num_groups)
    partial.log_prob_R[:] = IMPOSSIBLE
    partial.log_prob_R[::rows_per_beam] = 0.0


def merge_groups(
    hypotheses: NBestLists,
    num_groups: int,
    count: int,
) -> NBestLists:
    """Return the `count` best distinct hypotheses of each sentence, given those of each of its
    beams."""
    merged = []
    for first in range(0, len(hypotheses), num_groups):
        groups = hypotheses[first : first + num_groups]
        by_ids = {tuple(h.ids): h for h in itertools.chain.from_iterable(groups)}
        distinct = best_first(by_ids.values())
        merged.append(distinct[:count])
    return merged


def can_improve(
    log_prob_N: Floats,
    max_length_norm_N: Floats,
    min_score_N: Floats,
) -> Bools:
    """Return whether a partial hypothesis of each beam can still enter the n-best list of the beam.

    The bound is admissible: stopping never changes the list. Log-probabilities decrease and
    length norms increase with the length, and a coverage penalty is at most 0. A final score is
    therefore at most the current log-probability divided by the length norm of the longest
    translation.
    """
    with np.errstate(invalid="ignore"):
        max_score_N = log_prob_N / max_length_norm_N
    return (log_prob_N > IMPOSSIBLE) & (max_score_N > min_score_N)


@dataclass(frozen=True, kw_only=True)
class Beam(BeamOptions):
    """Keeps the W most probable partial hypotheses at each step.

    Of the W most probable candidates of a sentence, those that end become finished hypotheses. The
    W best candidates that do not end form the new beam. The search stops when no partial hypothesis
    can improve the n-best list (`can_improve`), or, with `early_stopping`, when W hypotheses have
    finished.
    """

    coverage_penalty: Annotated[float, Range(0, 10, hint="a typical value is 0.2")] = 0.0
    """Weight β of the coverage penalty (Wu et al. 2016, equation 14), which penalizes translations
    that do not attend to all source tokens; 0 is off, a typical value is 0.2."""

    def start(self, model: StepModel, request: SearchRequest) -> PartialHypotheses:
        """Encode the sources, with one row per sentence. Its extensions fill the beam."""
        return PartialHypotheses(model, request, self, track_coverage=bool(self.coverage_penalty))

    def candidates(self, partial: PartialHypotheses) -> Candidates:
        """Return the extensions of each row by its W + 1 best tokens, of which at most one ends."""
        result = partial.step(self.width + 1)
        extensions = extend(partial.log_prob_R, result.log_p_RK, result.tokens_RK)
        return extensions.of_beams(len(partial))

    def score(self, best: Candidates, partial: PartialHypotheses) -> Floats:
        """Return the scores of candidates that end, with the coverage penalty."""
        score_NW = super().score(best, partial)
        if not self.coverage_penalty:
            return score_NW
        length_B = partial.request.source_length_B[partial.sentence_B]
        length_R = length_B.repeat(partial.rows_per_sentence)
        log_coverage_R = log_coverage(partial.coverage_RS, length_R)
        return score_NW + self.coverage_penalty * log_coverage_R[best.rows_NC]


def log_coverage(coverage_RS: Floats, length_R: Ints) -> Floats:
    """Return Σ_i log min(Σ_j p_ij, 1) over the source tokens of each row (Wu et al. 2016, equation
    14), [R]."""
    # A weight may underflow, and log 0 would exclude the hypothesis.
    tiny = np.finfo(np.float32).tiny
    log_RS = np.log(coverage_RS.clip(tiny, 1.0))
    is_source_RS = np.arange(coverage_RS.shape[1]) < length_R[:, None]
    log_RS[~is_source_RS] = 0.0
    # The sum is sequential, so that padding does not change the rounding.
    sum_R: Floats = log_RS.cumsum(1)[:, -1]
    return sum_R
