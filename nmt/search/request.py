"""Input and output of a search, and the interface of its model. All arrays are NumPy arrays.

Shape suffixes: B sentences, R rows (partial hypotheses), S source tokens, T target tokens, K best tokens of a row,
X banned tokens of a row, P gathered tokens of a row, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.integer[Any]]
Floats = NDArray[np.float32]
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class SearchRequest:
    """A batch of sentences to translate, and the constraints on their translations."""

    sources: Sequence[Sequence[int]]
    """Source token ids of each sentence, as the encoder reads them."""
    max_length_B: Ints
    """Maximum number of target tokens, not including the end token, which is forced at this length."""
    bos: int
    """Id of the start token."""
    eos: int
    """Id of the end token."""
    prefixes: Sequence[Sequence[int]] = ()
    """Token ids that each translation must begin with; empty: no prefixes."""
    constraints: Sequence[Sequence[Sequence[int]]] = ()
    """Sequences of token ids that must appear in each translation; only the `constrained` search supports them."""
    detokenize: Callable[[Sequence[int]], str] = str
    """Returns the text of token ids, for searches that compare texts."""
    suppressed_ids: Sequence[int] = ()
    """Ids of special tokens that must not be sampled."""

    @property
    def source_length_B(self) -> Ints:
        """Number of source tokens, including the end token if there is one."""
        return np.fromiter(map(len, self.sources), np.int64, len(self.sources))


@dataclass(frozen=True)
class Hypothesis:
    """A translation as token ids, without start and end tokens."""

    ids: list[int]
    log_prob: float
    """Σ log p(token) in nats, including the end token."""
    score: float
    """Score that hypotheses are ranked by, such as the log-probability after length normalization."""
    length_norm: float = 1.0
    """Divisor of the log-probability in the score; infinity if the score does not depend on the log-probability."""


@dataclass(frozen=True)
class StepRequest:
    """One decoding step: the tokens to read and the log-probabilities to return."""

    tokens_R: Ints
    """The token that each row reads."""
    parents_R: Ints
    """The row of the previous step that each row continues; in the first step, the sentence that it translates. Rows of
    one sentence must be adjacent, and every sentence must have the same number of rows."""
    k: int
    """Number of best tokens to return per row; fewer if the vocabulary is smaller."""
    banned_RX: Ints | None = None
    """Tokens to exclude from the best ones; -1 bans none."""
    gather_RP: Ints | None = None
    """Tokens whose log-probabilities to return."""
    all_log_probs: bool = False
    """Whether to return the log-probabilities of the whole vocabulary."""


@dataclass(frozen=True)
class StepResult:
    """A model's prediction of the next token of each row."""

    log_p_RK: Floats
    """Log-probabilities of the best tokens, best first; NaN ranks above all. Ties are broken by the lower id, except
    with PyTorch, which does not define their order."""
    tokens_RK: Ints
    gathered_log_p_RP: Floats | None = None
    """Log-probabilities of the gathered tokens, whether banned or not."""
    log_p_RV: Floats | None = None
    """Log-probabilities of all tokens, whether banned or not."""


class State(Protocol):
    """The decoder state of a batch during a search."""

    @property
    def attention_RS(self) -> Floats | None:
        """Cross-attention weights of the last step, if tracked; zero beyond the end of a source."""

    def step(self, request: StepRequest) -> StepResult:
        """Read one more token per row and return the log-probabilities of the next."""


class StepModel(Protocol):
    """A model that a search can decode with."""

    def init_search_state(self, sources: Sequence[Sequence[int]], *, track_attention: bool = False) -> State:
        """Encode source sentences and return the initial decoder state."""


def best_tokens(log_p_RV: Floats, request: StepRequest) -> StepResult:
    """Return the result of `State.step` from all log-probabilities."""
    banned_RX, gather_RP = request.banned_RX, request.gather_RP
    rows_R1 = np.arange(len(log_p_RV))[:, None]
    gathered_log_p_RP = None if gather_RP is None else log_p_RV[rows_R1, gather_RP]
    allowed_RV = log_p_RV
    if banned_RX is not None:
        allowed_RV = log_p_RV.copy()
        row, column = (banned_RX >= 0).nonzero()
        allowed_RV[row, banned_RX[row, column]] = -np.inf
    k = min(request.k, log_p_RV.shape[1])
    ranked_RV = np.where(np.isnan(allowed_RV), np.inf, allowed_RV)
    worst_R1 = -np.partition(-ranked_RV, max(k - 1, 0), axis=1)[:, max(k - 1, 0), None]
    above_RV, equal_RV = ranked_RV > worst_R1, ranked_RV == worst_R1
    chosen_RV = above_RV | (equal_RV & (equal_RV.cumsum(1) <= k - above_RV.sum(1, keepdims=True)))
    tokens_RK = chosen_RV.nonzero()[1].reshape(-1, k) if k else np.empty((len(log_p_RV), 0), np.int64)
    order_RK = np.argsort(-ranked_RV[rows_R1, tokens_RK], axis=1, kind="stable")
    tokens_RK = tokens_RK[rows_R1, order_RK]
    return StepResult(allowed_RV[rows_R1, tokens_RK], tokens_RK, gathered_log_p_RP, log_p_RV)
