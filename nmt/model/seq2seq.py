"""What every encoder-decoder here has in common: embeddings, the output layer, and how training and search call it.

Shape letters: B sentences, S source tokens, T target tokens, D width, V vocabulary, R rows (B times the beams of each),
N real target positions. Masks are boolean, True = attend.

Training and search run the same code: `step` takes any number of target tokens and a state. In training the state is
empty and T is the whole sentence; in search T is 1 and the state holds what is remembered of the tokens so far.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from nmt.config import ModelConfig
from nmt.model.layers import Dropout


class Seq2Seq(nn.Module, ABC):
    """An encoder-decoder over pieces of a joint vocabulary; an architecture adds `encode`, `start` and `step`."""

    max_positions: int | None = None
    """Tokens, the end token counted, up to which source and target may be long; None: there is no limit."""

    def __init__(self, config: ModelConfig, vocabulary: int, pad: int = 0) -> None:
        """Make the embeddings with fresh weights.

        Args:
            config: sizes and dropout.
            vocabulary: V, pieces of the joint tokenizer.
            pad: id whose embedding starts at zero.
        """
        super().__init__()
        self.config = config
        self.compute_dtype: torch.dtype | None = None  # type of the activations; None: that of the weights
        tables = ("shared",) if config.tie_embeddings else ("source", "target", "output")
        self.embeddings = nn.ParameterDict({name: _embedding(vocabulary, config.dim, pad) for name in tables})
        self.dropout = Dropout(config.dropout)

    def table(self, role: str) -> Tensor:
        """Return the embeddings' matrix [V, D] of `source` or `target`, or the `output` layer's."""
        weight_VD: Tensor = self.embeddings["shared" if self.config.tie_embeddings else role]
        return weight_VD

    @property
    def output_weight_VD(self) -> Tensor:
        """The output layer's matrix, the embeddings' own when tied."""
        return self.table("output")

    @abstractmethod
    def encode(self, src_BS: Tensor, src_mask_BS: Tensor) -> Tensor:
        """Return the encoder's output, a vector for each source token."""

    @abstractmethod
    def start(self, memory: Tensor, src_mask_BS: Tensor, *, keep: bool = True) -> Any:
        """Open a state for decoding from the beginning; `keep=False` (training) stores nothing of the target."""

    @abstractmethod
    def step(self, tgt_RT: Tensor, state: Any) -> Tensor:
        """Read T more target tokens per row and return hidden_RTD; R is a multiple of the state's sentences."""

    def project(self, hidden: Tensor) -> Tensor:
        """Return the logits [..., V] of hidden vectors [..., D]."""
        return hidden @ self.output_weight_VD.to(hidden.dtype).t()

    def begin(self, src_BS: Tensor, src_mask_BS: Tensor) -> Any:
        """Read the source and return the state in which a search begins."""
        return self.start(self.encode(src_BS, src_mask_BS), src_mask_BS)

    def next_logits(self, tokens_R: Tensor, state: Any) -> Tensor:
        """Read one more token per row and return the float32 logits of the next, [R, V]."""
        return self.project(self.step(tokens_R[:, None], state)[:, -1]).float()

    def next_log_probs(self, tokens_R: Tensor, state: Any) -> Tensor:
        """Read one more token per row and return the float32 log-probabilities of the next, [R, V]."""
        return self.next_logits(tokens_R, state).log_softmax(-1)

    def forward(self, src_BS: Tensor, src_mask_BS: Tensor, tgt_in_BT: Tensor, target_index_N: Tensor) -> Tensor:
        """Return hidden_ND of the real target positions, padding gone: what the loss projects, in chunks.

        `target_index_N` are their numbers among the B·T positions.

        Target padding needs no mask of its own: it only follows the real tokens, which do not see what comes after.
        """
        memory = self.encode(src_BS, src_mask_BS)
        hidden_BTD = self.step(tgt_in_BT, self.start(memory, src_mask_BS, keep=False))
        return hidden_BTD.flatten(0, 1).index_select(0, target_index_N)

    def embed_tokens(self, role: str, ids_BT: Tensor) -> Tensor:
        """Return the scaled embeddings [B, T, D] of `source` or `target` ids, in the type of the activations."""
        x_BTD = F.embedding(ids_BT, self.table(role)) * math.sqrt(self.config.dim)
        return x_BTD if self.compute_dtype is None else x_BTD.to(self.compute_dtype)


def _embedding(vocabulary: int, dim: int, pad: int) -> nn.Parameter:
    table_VD = torch.randn(vocabulary, dim) * dim**-0.5
    table_VD[pad] = 0.0
    return nn.Parameter(table_VD)
