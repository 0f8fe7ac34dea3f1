"""Several models that translate as one. Letters: B sentences, R rows, S source and T target tokens, V vocabulary."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from nmt.model.transformer import DecoderState


class Member(Protocol):
    """A model of an ensemble."""

    def begin(self, src_BS: Tensor, src_mask_BS: Tensor) -> DecoderState:
        """Read the source and return the state in which a search begins."""

    def next_log_probs(self, tokens_R: Tensor, state: DecoderState) -> Tensor:
        """Read one more token per row and return the float32 log-probabilities of the next, [R, V]."""


@dataclass
class EnsembleState:
    """The memory of every model."""

    states: list[DecoderState]

    def watch(self) -> None:
        """Note from now on where target positions look in the source."""
        for state in self.states:
            state.watch()

    @property
    def seen_RTS(self) -> Tensor | None:
        """Where the positions of the last step looked: the mean over the models."""
        seen = [state.seen_RTS for state in self.states if state.seen_RTS is not None]
        return torch.stack(seen).mean(0) if seen else None

    def select(self, rows_R: Tensor, sentences_B: Tensor | None = None) -> None:
        """Keep some rows, in that order, and some sentences."""
        for state in self.states:
            state.select(rows_R, sentences_B)


class Ensemble:
    """The mean of what several models with one vocabulary find probable."""

    def __init__(self, models: Sequence[Member]) -> None:
        self.models = models

    def begin(self, src_BS: Tensor, src_mask_BS: Tensor) -> EnsembleState:
        """Read the source with every model."""
        return EnsembleState([model.begin(src_BS, src_mask_BS) for model in self.models])

    def next_log_probs(self, tokens_R: Tensor, state: EnsembleState) -> Tensor:
        """Read one more token per row and return the logarithm of the models' mean probability of the next, [R, V]."""
        pairs = zip(self.models, state.states, strict=True)
        return mean_log_prob([model.next_log_probs(tokens_R, own) for model, own in pairs])


def mean_log_prob(log_probs: Sequence[Tensor]) -> Tensor:
    """Return log (1/n Σ exp(log p)) over tensors of one shape."""
    return torch.stack(tuple(log_probs)).logsumexp(0) - math.log(len(log_probs))
