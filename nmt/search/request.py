"""Input and output of a search, and the interface of its model. All arrays are NumPy arrays.

Shape suffixes: B sentences, R rows (partial hypotheses), S source tokens, T target tokens, K best
tokens of a row, X banned tokens of a row, P gathered tokens of a row, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from nmt.search.shortlist import Shortlist

Ints = NDArray[np.integer[Any]]
Floats = NDArray[np.float32]
Bools = NDArray[np.bool_]


class SearchRequest(NamedTuple):
    """A batch of sentences to translate, and the constraints on their translations."""

    sources: Sequence[Sequence[int]]
    """Source token ids of each sentence, as the encoder reads them."""
    max_length_B: Ints
    """Maximum number of target tokens, not including the end token, which is forced at this
    length."""
    bos: int
    """Id of the start token."""
    eos: int
    """Id of the end token."""
    prefixes: Sequence[Sequence[int]] = ()
    """Token ids that each translation must begin with; empty: no prefixes."""
    constraints: Sequence[Sequence[Sequence[int]]] = ()
    """Sequences of token ids that must appear in each translation; only the `constrained` search
    supports them."""
    detokenize: Callable[[Sequence[int]], str] = str
    """Returns the text of token ids, for searches that compare texts."""
    suppressed_ids: Sequence[int] = ()
    """Ids of special tokens that must not be sampled."""
    shortlist: Shortlist | None = None
    """Restricts the output layer to likely tokens, unless an option of the search turns it off."""

    def candidates(self) -> Sequence[Ints]:
        """Return the tokens that the shortlist allows in each translation, with those of its prefix
        and constraints; without a shortlist, nothing."""
        if self.shortlist is None:
            return []
        candidates = []
        for i, source in enumerate(self.sources):
            required = list(self.prefixes[i]) if self.prefixes else []
            if self.constraints:
                required += chain.from_iterable(self.constraints[i])
            candidates.append(self.shortlist.candidates(source, required))
        return candidates

    @property
    def source_length_B(self) -> Ints:
        """Number of source tokens, including the end token if there is one."""
        return np.fromiter(map(len, self.sources), np.int64, len(self.sources))


class Hypothesis(NamedTuple):
    """A translation as token ids, without start and end tokens."""

    ids: list[int]
    log_prob: float
    """Σ log p(token) in nats, including the end token."""
    score: float
    """Score that hypotheses are ranked by, such as the log-probability after length
    normalization."""
    length_norm: float = 1.0
    """Divisor of the log-probability in the score; infinity if the score does not depend on the
    log-probability."""


NBestLists = list[list[Hypothesis]]
"""The hypotheses of each sentence, best first."""


class StepRequest(NamedTuple):
    """One decoding step: the tokens to read and the log-probabilities to return."""

    tokens_R: Ints
    """The token that each row reads."""
    parents_R: Ints
    """The row of the previous step that each row continues; in the first step, the sentence that it
    translates. Rows of one sentence must be adjacent, and every sentence must have the same number
    of rows."""
    k: int
    """Number of best tokens to return per row; fewer if the vocabulary is smaller."""
    banned_RX: Ints | None = None
    """Tokens to exclude from the best ones; -1 bans none."""
    gather_RP: Ints | None = None
    """Tokens whose log-probabilities to return."""
    all_log_probs: bool = False
    """Whether to return the log-probabilities of the whole vocabulary."""


class StepResult(NamedTuple):
    """A model's prediction of the next token of each row."""

    log_p_RK: Floats
    """Log-probabilities of the best tokens, best first; NaN ranks above all. Ties are broken by the
    lower id, except with PyTorch, which does not define their order."""
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

    def init_search_state(
        self,
        sources: Sequence[Sequence[int]],
        *,
        track_attention: bool = False,
        candidates: Sequence[Ints] = (),
    ) -> State:
        """Encode source sentences and return the initial decoder state.

        Args:
            sources: token ids of each sentence, as the encoder reads them.
            track_attention: whether steps record the cross-attention.
            candidates: the only tokens that may appear in each translation, in ascending order;
                empty: all tokens. Probabilities are normalized over them; that of others is 0.
        """


class Search(Protocol):
    """Searches for the best translations of a batch."""

    @property
    def rows(self) -> int:
        """Number of rows per sentence in a batch."""

    @property
    def n_best(self) -> int:
        """Maximum number of hypotheses returned per sentence."""

    def __call__(self, model: StepModel, request: SearchRequest) -> NBestLists:
        """Return the hypotheses of each sentence, best first."""


def best_first(hypotheses: Iterable[Hypothesis]) -> list[Hypothesis]:
    """Sort hypotheses by their scores."""
    return sorted(hypotheses, key=rank)


def rank(hypothesis: Hypothesis) -> float:
    """Return the key that sorts hypotheses, best first."""
    return -hypothesis.score


def ban(log_p_RV: Floats, banned_RX: Ints) -> None:
    """Set the log-probabilities of banned tokens to -inf."""
    row, column = (banned_RX >= 0).nonzero()
    log_p_RV[row, banned_RX[row, column]] = -np.inf


def best_tokens(log_p_RV: Floats, request: StepRequest) -> StepResult:
    """Return the result of `State.step` from all log-probabilities."""
    row_R1 = np.arange(len(log_p_RV))[:, None]
    gathered_log_p_RP = None
    if request.gather_RP is not None:
        gathered_log_p_RP = log_p_RV[row_R1, request.gather_RP]
    allowed_RV = log_p_RV
    if request.banned_RX is not None:
        allowed_RV = log_p_RV.copy()
        ban(allowed_RV, request.banned_RX)
    tokens_RK = _top_k(allowed_RV, request.k)
    return StepResult(allowed_RV[row_R1, tokens_RK], tokens_RK, gathered_log_p_RP, log_p_RV)


def _top_k(log_p_RV: Floats, k: int) -> Ints:
    """Return the k best tokens of each row, best first, without sorting the whole vocabulary."""
    num_rows, num_tokens = log_p_RV.shape
    k = min(k, num_tokens)
    tokens_RK = np.empty((num_rows, k), np.int64)
    if k == 0:
        return tokens_RK
    rank_RV = np.where(np.isnan(log_p_RV), np.inf, log_p_RV)
    is_candidate_RV = rank_RV >= kth_best(rank_RV, k)
    for row in range(num_rows):
        # More than k tokens if several are equal. They are in the order of their ids.
        candidates = is_candidate_RV[row].nonzero()[0]
        order = best_order(rank_RV[row, candidates])
        tokens_RK[row] = candidates[order[:k]]
    return tokens_RK


def kth_best(values_RV: Floats, k: int) -> Floats:
    """Return the k-th largest value of each row, [R, 1]."""
    place = values_RV.shape[1] - k
    return np.partition(values_RV, place, axis=1)[:, place, None]


def best_order(values: Floats) -> Ints:
    """Return the indices that sort the last axis, best first. Equal values keep their order."""
    return np.argsort(-values, axis=-1, kind="stable")
