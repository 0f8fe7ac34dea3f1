"""What a search is given and what it finds. Letters: B sentences, S source tokens, R rows, T target tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from torch import Tensor


@dataclass(frozen=True)
class Task:
    """Sentences to translate together, and what every translation must keep to."""

    src_BS: Tensor
    src_mask_BS: Tensor
    """True at real source positions."""
    most_B: Tensor
    """Most tokens of each translation, the end token not counted; there the end is forced."""
    bos: int
    """Id that starts a translation."""
    eos: int
    """Id that ends one."""
    prefixes: Sequence[Sequence[int]] = field(default=())
    """Ids that each translation must begin with; empty: none has to."""


@dataclass(frozen=True)
class Hypothesis:
    """One translation as piece ids, without start and end."""

    ids: list[int]
    log_prob: float
    """Σ log p(token), the end token included, in nats."""
    score: float
    """What hypotheses are ranked by: the log-probability after length normalisation."""


class State(Protocol):
    """A decoder's memory; see `nmt.model.transformer.DecoderState`."""

    def select(self, rows_R: Tensor, sentences_B: Tensor | None = None) -> None:  # noqa: D102
        ...


class SearchModel(Protocol):
    """Anything that can be searched: one model, an ensemble."""

    def begin(self, src_BS: Tensor, src_mask_BS: Tensor) -> State: ...  # noqa: D102
    def next_logits(self, tokens_R: Tensor, state: Any) -> Tensor: ...  # noqa: D102
