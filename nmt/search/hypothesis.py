"""What a search finds, and the model it needs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor


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
    """Anything that can be searched: one model, an ensemble, a quantised one."""

    def encode(self, src_BS: Tensor, src_mask_BS: Tensor) -> Tensor: ...  # noqa: D102
    def start(self, memory_BSD: Tensor, src_mask_BS: Tensor) -> State: ...  # noqa: D102
    def step(self, tgt_RT: Tensor, state: State) -> Tensor: ...  # noqa: D102
    def project(self, hidden: Tensor) -> Tensor: ...  # noqa: D102
