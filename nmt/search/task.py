"""What a search is given and what it finds. Letters: B sentences, S source tokens, R rows, T target tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
    phrases: Sequence[Sequence[Sequence[int]]] = field(default=())
    """Runs of ids that must appear in each translation; only the search `constrained` heeds them."""
    text: Callable[[Sequence[int]], str] = str
    """The text of ids, for searches that compare texts."""
    never: Sequence[int] = ()
    """Ids that are no text and must not be drawn."""


@dataclass(frozen=True)
class Hypothesis:
    """One translation as piece ids, without start and end."""

    ids: list[int]
    log_prob: float
    """Σ log p(token), the end token included, in nats."""
    score: float
    """What hypotheses are ranked by, such as the log-probability after length normalisation."""
    norm: float = 1.0
    """What the log-probability is divided by in the score; infinity: it is no part of it."""


class State(Protocol):
    """A decoder's memory; see `nmt.model.transformer.DecoderState`."""

    seen_RTS: Tensor | None
    """Where the last step's target positions looked, if it is watched."""

    def watch(self) -> None:
        """Note from now on where target positions look in the source."""

    def select(self, rows_R: Tensor, sentences_B: Tensor | None = None) -> None:
        """Keep some rows, in that order, and some sentences."""


class SearchModel(Protocol):
    """Anything that can be searched: one model, an ensemble."""

    def begin(self, src_BS: Tensor, src_mask_BS: Tensor) -> Any:
        """Read the source and return a `State`."""

    def next_log_probs(self, tokens_R: Tensor, state: Any) -> Tensor:
        """Read one more token per row and return the float32 log-probabilities of the next, [R, V].

        They are good until the next step, and may be changed.
        """
