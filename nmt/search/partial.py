"""The partial hypotheses of a search, with its length limits, forced prefixes and banned tokens.

Shape suffixes: B unfinished sentences, W rows of each, R = B*W rows, T target tokens including the start token, K best
tokens of a row, P gathered tokens of a row, X banned tokens of a row, G n-grams of a row, N tokens of an n-gram, V
vocabulary.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from nmt.errors import ConfigError
from nmt.search.request import Bools, Ints, SearchRequest, StepModel, StepRequest, StepResult

NOT_FORCED = -1
"""Marks a row whose next token is not forced."""
ROUNDING = 1e-9
"""More than the rounding error of a length times a ratio: 1.1 · 50 is 55.00000000000001."""


@dataclass(frozen=True, kw_only=True)
class SearchOptions:
    """Options shared by all searches except `mbr`."""

    min_length_ratio: float = 0.0
    """Minimum number of target tokens per source token, not including end tokens."""
    max_length_ratio: float = 0.0
    """Maximum number of target tokens per source token; 0: only the limit of the request applies."""
    no_repeat_ngram_size: int = 0
    """Size of the n-grams that may occur only once; 0: off."""

    def __post_init__(self) -> None:
        """Raise a ConfigError for options out of range."""
        for name in ("min_length_ratio", "max_length_ratio"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ConfigError(f"{name} must be 0 or more, got {getattr(self, name)}")
        if self.max_length_ratio and self.min_length_ratio > self.max_length_ratio:
            raise ConfigError(
                f"min_length_ratio ({self.min_length_ratio}) exceeds max_length_ratio ({self.max_length_ratio})"
            )
        if self.no_repeat_ngram_size < 0:
            raise ConfigError(f"no_repeat_ngram_size must be 0 or more, got {self.no_repeat_ngram_size}")


def check_range(name: str, value: float, minimum: float, maximum: float, hint: str = "") -> None:
    """Raise a ConfigError if an option is out of range."""
    if not minimum <= value <= maximum:
        raise ConfigError(f"{name} must be between {minimum} and {maximum}, got {value}", hint)


class PartialHypotheses:
    """The partial hypotheses of a batch, one per row. `len()` is the number of unfinished sentences."""

    def __init__(
        self,
        model: StepModel,
        request: SearchRequest,
        options: SearchOptions,
        *,
        width: int = 1,
        reserved_B: Ints | int = 0,
        track_attention: bool = False,
    ) -> None:
        """Encode the sources, and start each sentence with `width` equal rows.

        Args:
            model: predicts the next tokens.
            request: the sentences.
            options: options of the search.
            width: initial W.
            reserved_B: number of tokens besides the prefix that the length limit must allow.
            track_attention: whether to record cross-attention; see `State`.
        """
        length_B = request.source_length_B - [source[-1] == request.eos for source in request.sources]
        self.request, self.no_repeat_ngram_size = request, options.no_repeat_ngram_size
        self.sentence_B = np.arange(len(request.sources))
        self.max_length_B = request.max_length_B.astype(np.int64)
        if options.max_length_ratio:
            self.max_length_B = np.minimum(
                self.max_length_B, np.ceil(float(options.max_length_ratio) * length_B - ROUNDING)
            ).astype(np.int64)
        self.min_length_B = np.minimum(
            self.max_length_B, np.floor(float(options.min_length_ratio) * length_B + ROUNDING)
        ).astype(np.int64)
        max_prefix_length = max(map(len, request.prefixes), default=0)
        self.prefix_BT = np.full((len(length_B), max_prefix_length), NOT_FORCED)
        for prefix_T, prefix in zip(self.prefix_BT, request.prefixes, strict=False):
            prefix_T[: len(prefix)] = prefix
        # A prefix counts toward the length limits but is never truncated.
        self.max_length_B = np.maximum(
            self.max_length_B, (self.prefix_BT != NOT_FORCED).sum(1, dtype=np.int64) + reserved_B
        )
        # Between these lengths, no token is forced.
        self._forces_until = max_prefix_length
        self._forces_from = min(self.max_length_B.tolist(), default=0)
        self.parents_R: Ints = self.sentence_B.repeat(width)
        self.tokens_RT = np.full((len(self.parents_R), 1), request.bos)
        self.state = model.init_search_state(request.sources, track_attention=track_attention)

    def __len__(self) -> int:
        return len(self.sentence_B)

    @property
    def width(self) -> int:
        """W, the number of rows per sentence."""
        return len(self.tokens_RT) // max(1, len(self))

    @property
    def length(self) -> int:
        """Number of tokens of each partial hypothesis, not including the start token."""
        return self.tokens_RT.shape[1] - 1

    def step(self, k: int, *, gather_RP: Ints | None = None, all_log_probs: bool = False) -> StepResult:
        """Return the model's best next tokens, with -inf for tokens that prefix, length limits or bans exclude.

        Log-probabilities are not renormalized over the allowed tokens.
        """
        forced_R, banned_RX, asked_RP = self._forced(), self._banned(), gather_RP
        if forced_R is not None:
            forced_R1 = np.maximum(forced_R, 0)[:, None]
            asked_RP = forced_R1 if gather_RP is None else np.concatenate((gather_RP, forced_R1), 1)
        result = self.state.step(
            StepRequest(self.tokens_RT[:, -1], self.parents_R, k, banned_RX, asked_RP, all_log_probs)
        )
        gathered_log_p_RP, log_p_RV = result.gathered_log_p_RP, result.log_p_RV
        if log_p_RV is not None:
            log_p_RV[:, list(self.request.suppressed_ids)] = -np.inf
        if banned_RX is not None:
            if log_p_RV is not None:
                row, at = (banned_RX >= 0).nonzero()
                log_p_RV[row, banned_RX[row, at]] = -np.inf
            if gather_RP is not None and gathered_log_p_RP is not None:
                is_banned_RP = (gather_RP[:, :, None] == banned_RX[:, None]).any(-1)
                gathered_log_p_RP[:, : gather_RP.shape[1]][is_banned_RP] = -np.inf
        if forced_R is not None:  # a forced token overrides a ban
            assert gathered_log_p_RP is not None
            rows = (forced_R != NOT_FORCED).nonzero()[0]
            forced_log_p_R1, forced_R1 = gathered_log_p_RP[rows, -1:], forced_R[rows, None]
            result.log_p_RK[rows] = -np.inf
            result.log_p_RK[rows, :1], result.tokens_RK[rows, :1] = forced_log_p_R1, forced_R1
            if log_p_RV is not None:
                log_p_RV[rows] = -np.inf
                log_p_RV[rows, forced_R[rows]] = forced_log_p_R1[:, 0]
            if gather_RP is not None:
                is_forced_RP = gather_RP[rows] == forced_R1
                gathered_log_p_RP[rows, :-1] = np.where(is_forced_RP, forced_log_p_R1, np.float32(-np.inf))
                result = replace(result, gathered_log_p_RP=gathered_log_p_RP[:, :-1])
        return result

    def advance(self, rows_R: Ints, tokens_R: Ints, is_running_B: Bools) -> None:
        """Extend rows by one token.

        Args:
            rows_R: index of the row that each new row extends, for unfinished sentences only.
            tokens_R: the token that extends it.
            is_running_B: which sentences continue.
        """
        if not is_running_B.all():
            self.sentence_B, self.prefix_BT = self.sentence_B[is_running_B], self.prefix_BT[is_running_B]
            self.max_length_B, self.min_length_B = self.max_length_B[is_running_B], self.min_length_B[is_running_B]
        self.parents_R = rows_R
        self.tokens_RT = np.concatenate((self.tokens_RT[rows_R], tokens_R[:, None]), 1)

    def _forced(self) -> Ints | None:
        """Return the forced next token of each row, or NOT_FORCED; None: no row has one."""
        length = self.length
        if self._forces_until <= length < self._forces_from:
            return None
        forced_B = np.where(self.max_length_B <= length, self.request.eos, NOT_FORCED)
        if length < self.prefix_BT.shape[1]:
            forced_B = np.where(self.prefix_BT[:, length] == NOT_FORCED, forced_B, self.prefix_BT[:, length])
        return forced_B.repeat(self.width) if (forced_B != NOT_FORCED).any() else None

    def _banned(self) -> Ints | None:
        """Return the banned next tokens of each row, padded with -1."""
        banned = []
        if (self.min_length_B > self.length).any():
            banned.append(np.where(self.min_length_B > self.length, self.request.eos, -1).repeat(self.width)[:, None])
        if self.no_repeat_ngram_size:
            banned.append(repeated_ngrams(self.tokens_RT, self.no_repeat_ngram_size))
        return np.concatenate(banned, 1) if banned else None


def repeated_ngrams(tokens_RT: Ints, size: int) -> Ints:
    """Return the tokens that would repeat an n-gram of their row, [R, G], padded with -1.

    `tokens_RT` begins with the start token, which does not belong to an n-gram.
    """
    target_RT = tokens_RT[:, 1:]
    if target_RT.shape[1] < size:
        return np.full((len(tokens_RT), 0), -1)
    grams_RGN = np.lib.stride_tricks.sliding_window_view(target_RT, size, axis=1)
    last_R1N = target_RT[:, None, target_RT.shape[1] - size + 1 :]
    repeated_RG = (grams_RGN[:, :, :-1] == last_R1N).all(-1)
    return np.where(repeated_RG, grams_RGN[:, :, -1], -1)
