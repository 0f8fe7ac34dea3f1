"""The partial hypotheses of a search, with its length limits, forced prefixes and banned tokens.

Shape suffixes: B unfinished sentences, W rows of each, R = B*W rows, S source tokens, T target
tokens including the start token, K best tokens of a row, P gathered tokens of a row, X banned
tokens of a row, G n-grams of a row, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from nmt.core.errors import ConfigError
from nmt.core.ranges import NotNegative, Range
from nmt.search.constraints import Constraints
from nmt.search.request import (
    Bools,
    Floats,
    Ints,
    SearchRequest,
    StepModel,
    StepRequest,
    StepResult,
    ban,
)

NOT_FORCED = -1
"""Marks a row whose next token is not forced."""
ROUNDING = 1e-9
"""More than the rounding error of a length times a ratio: 1.1 · 50 is 55.00000000000001."""


@dataclass(frozen=True, kw_only=True)
class SearchOptions:
    """Options shared by all searches except `mbr`."""

    min_length_ratio: Annotated[float, Range(0)] = 0.0
    """Minimum number of target tokens per source token, not including end tokens."""
    max_length_ratio: Annotated[float, Range(0)] = 0.0
    """Maximum number of target tokens per source token; 0: only the limit of the request
    applies."""
    no_repeat_ngram_size: NotNegative = 0
    """Size of the n-grams that may occur only once; 0: off."""
    shortlist: bool = True
    """Restrict the output layer to the shortlist of the model, if it has one."""

    def __post_init__(self) -> None:
        """Raise a ConfigError if the limits of the length exclude each other."""
        if self.max_length_ratio and self.min_length_ratio > self.max_length_ratio:
            raise ConfigError(
                f"min_length_ratio ({self.min_length_ratio}) exceeds max_length_ratio"
                f" ({self.max_length_ratio})"
            )


class PartialHypotheses:
    """The partial hypotheses of a batch, one per row. `len()` is the number of unfinished
    sentences."""

    def __init__(
        self,
        model: StepModel,
        request: SearchRequest,
        options: SearchOptions,
        *,
        rows_per_sentence: int = 1,
        constraints: Constraints | None = None,
        track_coverage: bool = False,
    ) -> None:
        """Encode the sources, and start each sentence with equal rows.

        Args:
            model: predicts the next tokens.
            request: the sentences.
            options: options of the search.
            rows_per_sentence: initial W.
            constraints: constraints of each sentence. The length limit always allows their tokens.
            track_coverage: whether to sum the cross-attention of each row.
        """
        self.request = request
        self.no_repeat_ngram_size = options.no_repeat_ngram_size
        self.sentence_B = np.arange(len(request.sources))
        """Index of each unfinished sentence in the request."""
        self.parents_R: Ints = self.sentence_B.repeat(rows_per_sentence)
        self.tokens_RT = np.full((len(self.parents_R), 1), request.bos)
        self.log_prob_R = np.zeros(len(self.parents_R), np.float32)
        self.coverage_RS = np.zeros((len(self.sentence_B), 1), np.float32)
        """Σ cross-attention weights of each source token, if tracked."""
        self.constraints = constraints
        self._min_length, max_length = length_limits(request, options)
        # Prefixes and constraints count toward the length limit but are never truncated.
        required_length = np.zeros_like(max_length)
        if request.prefixes:
            required_length += list(map(len, request.prefixes))
        if constraints:
            required_length += constraints.length_R1P.sum((1, 2))
            constraints.select(self.parents_R)
        self._max_length = np.maximum(max_length, required_length)
        self._forced_tokens = forced_tokens(request, self._max_length)
        self.state = model.init_search_state(
            request.sources,
            track_attention=track_coverage,
            candidates=request.candidates() if options.shortlist else (),
        )

    def __len__(self) -> int:
        return len(self.sentence_B)

    @property
    def rows_per_sentence(self) -> int:
        """W."""
        return len(self.tokens_RT) // max(1, len(self))

    @property
    def length(self) -> int:
        """Number of tokens of each partial hypothesis, not including the start token."""
        return self.tokens_RT.shape[1] - 1

    @property
    def is_too_short_B(self) -> Bools:
        """Whether the partial hypotheses of each sentence must not end."""
        return self._min_length[self.sentence_B] > self.length

    @property
    def max_length_B(self) -> Ints:
        """Maximum number of target tokens of each unfinished sentence, not including the end
        token."""
        return self._max_length[self.sentence_B]

    def step(
        self,
        k: int,
        *,
        gather_RP: Ints | None = None,
        all_log_probs: bool = False,
    ) -> StepResult:
        """Read the last token of each row, and return the best of the tokens that prefix, length
        limits and bans allow; the log-probability of others is -inf.

        Log-probabilities are not renormalized over the allowed tokens.

        Args:
            k: number of best tokens of each row.
            gather_RP: tokens whose log-probabilities to return, too, whether banned or not.
            all_log_probs: whether to return the log-probabilities of the whole vocabulary.
        """
        forced_R = self._forced()
        banned_RX = self._banned()
        # The log-probabilities of forced tokens are gathered in an additional column.
        asked_RP = gather_RP
        if forced_R is not None:
            asked_R1 = np.maximum(forced_R, 0)[:, None]
            asked_RP = asked_R1 if gather_RP is None else np.concatenate((gather_RP, asked_R1), 1)
        request = StepRequest(
            tokens_R=self.tokens_RT[:, -1],
            parents_R=self.parents_R,
            k=k,
            banned_RX=banned_RX,
            gather_RP=asked_RP,
            all_log_probs=all_log_probs,
        )
        result = self.state.step(request)
        if result.log_p_RV is not None:
            result.log_p_RV[:, list(self.request.suppressed_ids)] = -np.inf
            if banned_RX is not None:
                ban(result.log_p_RV, banned_RX)
        if forced_R is not None:  # a forced token overrides a ban
            result = _force(result, forced_R)
        if self.state.attention_RS is not None:
            self.coverage_RS = self.coverage_RS[self.parents_R] + self.state.attention_RS
        return result

    def advance(
        self,
        rows_R: Ints,
        tokens_R: Ints,
        log_prob_R: Floats,
        is_running_B: Bools,
    ) -> None:
        """Extend rows by one token.

        Args:
            rows_R: index of the row that each new row extends, for unfinished sentences only.
            tokens_R: the token that extends it.
            log_prob_R: log-probability of the new row.
            is_running_B: which sentences continue.
        """
        self.sentence_B = self.sentence_B[is_running_B]
        self.parents_R = rows_R
        self.log_prob_R = log_prob_R
        self.tokens_RT = np.concatenate((self.tokens_RT[rows_R], tokens_R[:, None]), 1)
        if self.constraints:
            self.constraints.advance(rows_R, tokens_R)

    def _forced(self) -> Ints | None:
        """Return the forced next token of each row, or NOT_FORCED; None: no row has one."""
        forced_B: Ints = self._forced_tokens[self.sentence_B, self.length]
        if (forced_B == NOT_FORCED).all():
            return None
        return forced_B.repeat(self.rows_per_sentence)

    def _banned(self) -> Ints | None:
        """Return the banned next tokens of each row, padded with -1."""
        banned = []
        if self.is_too_short_B.any():
            banned_B = np.where(self.is_too_short_B, self.request.eos, -1)
            banned_R = banned_B.repeat(self.rows_per_sentence)
            banned.append(banned_R[:, None])
        if self.no_repeat_ngram_size:
            banned.append(repeated_ngrams(self.tokens_RT, self.no_repeat_ngram_size))
        return np.concatenate(banned, 1) if banned else None


def length_limits(request: SearchRequest, options: SearchOptions) -> tuple[Ints, Ints]:
    """Return the minimum and maximum number of target tokens of each sentence, [B] each."""
    has_end_B = [source[-1] == request.eos for source in request.sources]
    length_B = request.source_length_B - has_end_B
    max_length_B = request.max_length_B.astype(np.int64)
    if options.max_length_ratio:
        ratio_limit_B = np.ceil(float(options.max_length_ratio) * length_B - ROUNDING)
        max_length_B = np.minimum(max_length_B, ratio_limit_B).astype(np.int64)
    ratio_limit_B = np.floor(float(options.min_length_ratio) * length_B + ROUNDING)
    min_length_B = np.minimum(max_length_B, ratio_limit_B).astype(np.int64)
    return min_length_B, max_length_B


def forced_tokens(request: SearchRequest, max_length_B: Ints) -> Ints:
    """Return the forced token of each sentence and target length, or NOT_FORCED, [B, T].

    These are the tokens of the prefix, and the end token at the length limit.
    """
    max_length = max(max_length_B.tolist(), default=0)
    forced_BT = np.full((len(max_length_B), max_length + 1), NOT_FORCED)
    for sentence, prefix in enumerate(request.prefixes):
        forced_BT[sentence, : len(prefix)] = prefix
    forced_BT[np.arange(len(forced_BT)), max_length_B] = request.eos
    return forced_BT


def _force(result: StepResult, forced_R: Ints) -> StepResult:
    """Set all log-probabilities to -inf but those of the forced tokens, which become the best of
    their rows.

    The last gathered log-probabilities are those of the forced tokens, and are removed.
    """
    assert result.gathered_log_p_RP is not None
    rows = (forced_R != NOT_FORCED).nonzero()[0]
    token_R1 = forced_R[rows, None]
    log_p_R1 = result.gathered_log_p_RP[rows, -1:]
    result.tokens_RK[rows, :1] = token_R1
    result.log_p_RK[rows] = -np.inf
    result.log_p_RK[rows, :1] = log_p_R1
    result.gathered_log_p_RP[rows] = -np.inf
    if result.log_p_RV is not None:
        result.log_p_RV[rows] = -np.inf
        result.log_p_RV[rows[:, None], token_R1] = log_p_R1
    return result._replace(gathered_log_p_RP=result.gathered_log_p_RP[:, :-1])


def repeated_ngrams(tokens_RT: Ints, size: int) -> Ints:
    """Return the tokens that would repeat an n-gram of their row, [R, G], padded with -1.

    `tokens_RT` begins with the start token, which does not belong to an n-gram.
    """
    target_RT = tokens_RT[:, 1:]
    num_ngrams = max(0, target_RT.shape[1] - size + 1)
    # The last token of an n-gram would repeat it if its other tokens are the last ones of the row.
    repeats_RG = np.ones((len(target_RT), num_ngrams), bool)
    for n in range(size - 1):
        place = num_ngrams + n
        repeats_RG &= target_RT[:, n:place] == target_RT[:, place : place + 1]
    return np.where(repeats_RG, target_RT[:, size - 1 :], -1)
