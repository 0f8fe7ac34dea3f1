"""What a search is given, what it returns, and the model it asks. Everything is NumPy.

Shape letters: B sentences, R rows (partial hypotheses), S source tokens, T target tokens, K best tokens of a row,
X banned tokens of a row, P gathered tokens of a row, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.integer[Any]]
Floats = NDArray[np.float32]
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class SearchRequest:
    """Sentences to translate together, and what every translation must satisfy."""

    sources: Sequence[Sequence[int]]
    """Source ids of each sentence, the end token included."""
    max_length_B: Ints
    """Maximum number of target tokens, the end token not counted; there the end is forced."""
    bos: int
    """Id that starts a translation."""
    eos: int
    """Id that ends one."""
    prefixes: Sequence[Sequence[int]] = field(default=())
    """Ids that each translation must begin with; empty: none must."""
    constraints: Sequence[Sequence[Sequence[int]]] = field(default=())
    """Runs of ids that must appear in each translation; only the search `constrained` satisfies them."""
    detokenize: Callable[[Sequence[int]], str] = str
    """Returns the text of ids, for searches that compare texts."""
    banned_ids: Sequence[int] = ()
    """Ids that are no text and must not be sampled."""

    @property
    def source_length_B(self) -> Ints:
        """Source tokens, the end token included."""
        return np.fromiter(map(len, self.sources), np.int64, len(self.sources))


@dataclass(frozen=True)
class Hypothesis:
    """One translation as ids, without start and end."""

    ids: list[int]
    log_prob: float
    """Σ log p(token), the end token included, in nats."""
    score: float
    """What hypotheses are ranked by, such as the log-probability after length normalization."""
    norm: float = 1.0
    """Divisor of the log-probability in the score; infinity: the score does not contain it."""


@dataclass(frozen=True)
class StepResult:
    """What a model says of the next token of each row."""

    log_p_RK: Floats
    """Log-probabilities of the best tokens, best first, and NaN before all; of equal ones the lower id comes first,
    except in PyTorch, whose order of them is not defined."""
    tokens_RK: Ints
    gathered_RP: Floats | None = None
    """Log-probabilities of the tokens that were asked for, banned or not."""
    log_p_RV: Floats | None = None
    """All log-probabilities, banned or not."""


class State(Protocol):
    """A batch in the middle of a search."""

    @property
    def attention_RS(self) -> Floats | None:
        """Where the rows of the last step attend in their sources, if that is tracked; zero beyond a source's end."""

    def step(
        self,
        tokens_R: Ints,
        parents_R: Ints,
        k: int,
        *,
        banned_RX: Ints | None = None,
        gather_RP: Ints | None = None,
        all_log_probs: bool = False,
    ) -> StepResult:
        """Read one more token per row.

        Args:
            tokens_R: the tokens to read.
            parents_R: which row of the previous step each row continues; in the first step, which sentence it
                translates. Rows of one sentence must be neighbors, and equally many for every sentence.
            k: best tokens to return; fewer where the vocabulary is smaller.
            banned_RX: tokens that are not among the best; -1 bans none.
            gather_RP: tokens whose log-probabilities are returned.
            all_log_probs: whether to return all of them.
        """


class StepModel(Protocol):
    """Anything that can be searched."""

    def prefill(self, sources: Sequence[Sequence[int]], *, track_attention: bool = False) -> State:
        """Encode source sentences and return the state in which a search begins."""


def best_tokens(log_p_RV: Floats, k: int, banned_RX: Ints | None, gather_RP: Ints | None) -> StepResult:
    """Return what `State.step` returns, for models that have all log-probabilities at hand."""
    rows_R1 = np.arange(len(log_p_RV))[:, None]
    gathered_RP = None if gather_RP is None else log_p_RV[rows_R1, gather_RP]
    allowed_RV = log_p_RV
    if banned_RX is not None:
        allowed_RV = log_p_RV.copy()
        row, at = (banned_RX >= 0).nonzero()
        allowed_RV[row, banned_RX[row, at]] = -np.inf
    k = min(k, log_p_RV.shape[1])
    ranked_RV = np.where(np.isnan(allowed_RV), np.inf, allowed_RV)
    worst_R1 = -np.partition(-ranked_RV, max(k - 1, 0), axis=1)[:, max(k - 1, 0), None]
    above_RV, equal_RV = ranked_RV > worst_R1, ranked_RV == worst_R1
    chosen_RV = above_RV | (equal_RV & (equal_RV.cumsum(1) <= k - above_RV.sum(1, keepdims=True)))
    tokens_RK = chosen_RV.nonzero()[1].reshape(-1, k) if k else np.empty((len(log_p_RV), 0), np.int64)
    order_RK = np.argsort(-ranked_RV[rows_R1, tokens_RK], axis=1, kind="stable")
    tokens_RK = tokens_RK[rows_R1, order_RK]
    return StepResult(allowed_RV[rows_R1, tokens_RK], tokens_RK, gathered_RP, log_p_RV)
