"""The base class of encoder-decoder models: embeddings, the output layer, and the interface of
training and search.

Shape suffixes: B sentences, S source tokens, T target tokens, D model dimension, V vocabulary, R
rows (B times the beams of each), N target positions without padding. Masks are boolean, True =
attend.

Training and search run the same code: `decode` takes any number of target tokens and a state. In
training the state holds no target tokens and T is the whole sentence; in search T is 1 and the
state caches the tokens so far.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from nmt.core.config import ModelConfig
from nmt.model.layers import Dropout
from nmt.text.tokenizer import BOS


class Seq2Seq(nn.Module, ABC):
    """An encoder-decoder with a joint vocabulary; an architecture implements `encode`, `init_state`
    and `decode`."""

    max_positions: int | None = None
    """Maximum length of source and target in tokens, including the end token; None: unlimited."""
    has_positions = False
    """Whether `source_positions` and `target_positions` are position encodings."""
    supports_graphs = False
    """Whether `decode` works in CUDA graphs: it never waits, and its state has a `KVCache`."""
    supports_packing = False
    """Whether `forward_packed` exists and is equal to `forward`: each position reads its own
    segment only, by an attention without bias, window or dropout."""
    supports_low_precision = True
    """Whether the weights of a search may be bf16 or fp16; else they stay float32."""
    layer_sharing = 1
    """How often a layer is applied, at most."""

    def __init__(self, config: ModelConfig, vocab_size: int) -> None:
        """Create the embeddings with freshly initialized weights; `vocab_size` is that of the joint
        tokenizer."""
        super().__init__()
        self.config = config
        self.compute_dtype: torch.dtype | None = None
        """Dtype of the activations; None: that of the weights."""
        tables = ("shared",) if config.tie_embeddings else ("source", "target", "output")
        weights = {name: _embedding(vocab_size, config.dim) for name in tables}
        self.embeddings = nn.ParameterDict(weights)
        self.output_bias_V = nn.Parameter(torch.zeros(vocab_size)) if config.output_bias else None
        self.dropout = Dropout(config.dropout)

    def embedding_weight(self, role: str) -> Tensor:
        """Return the embedding matrix [V, D] of `source` or `target`, or the matrix of the `output`
        layer."""
        return self.embeddings["shared" if self.config.tie_embeddings else role]

    @property
    def output_weight_VD(self) -> Tensor:
        """The matrix of the output layer; the embeddings themselves when tied."""
        return self.embedding_weight("output")

    @abstractmethod
    def encode(self, src_BS: Tensor, src_mask_BS: Tensor) -> Tensor:
        """Return the output of the encoder, one vector per source token."""

    @abstractmethod
    def init_state(self, memory: Tensor, src_mask_BS: Tensor, *, use_cache: bool = True) -> Any:
        """Return the initial decoder state; with `use_cache=False` (training) it caches no target
        tokens."""

    @abstractmethod
    def decode(self, tgt_RT: Tensor, state: Any) -> Tensor:
        """Read T more target tokens per row and return hidden_RTD; R is a multiple of the sentences
        in the state."""

    def logits(self, hidden: Tensor) -> Tensor:
        """Return the logits [..., V] of hidden states [..., D]."""
        weight_VD = self.output_weight_VD.to(hidden.dtype)
        logits = hidden @ weight_VD.t()
        if self.output_bias_V is None:
            return logits
        return logits.float() + self.output_bias_V

    def encode_and_init_state(self, src_BS: Tensor, src_mask_BS: Tensor) -> Any:
        """Encode the source and return the initial decoder state of a search."""
        return self.init_state(self.encode(src_BS, src_mask_BS), src_mask_BS)

    def next_logits(self, tokens_R: Tensor, state: Any) -> Tensor:
        """Read one more token per row and return the float32 logits of the next, [R, V]."""
        hidden_R1D = self.decode(tokens_R[:, None], state)
        return self.logits(hidden_R1D[:, -1]).float()

    def next_log_probs(self, tokens_R: Tensor, state: Any) -> Tensor:
        """Read one more token per row and return the float32 log-probabilities of the next, [R,
        V]."""
        hidden_R1D = self.decode(tokens_R[:, None], state)
        return self.logits(hidden_R1D[:, -1]).log_softmax(-1, dtype=torch.float32)

    def forward(
        self, src_BS: Tensor, src_mask_BS: Tensor, tgt_in_BT: Tensor, target_index_N: Tensor
    ) -> Tensor:
        """Return hidden_ND of the target positions without padding; the loss projects them in
        chunks.

        `target_index_N` are their indices among the B·T positions. The target needs no padding
        mask: padding follows the tokens, which the causal mask keeps from attending to it.
        """
        memory = self.encode(src_BS, src_mask_BS)
        state = self.init_state(memory, src_mask_BS, use_cache=False)
        hidden_BTD = self.decode(tgt_in_BT, state)
        return hidden_BTD.flatten(0, 1).index_select(0, target_index_N)

    def embed_tokens(self, role: str, ids_BT: Tensor) -> Tensor:
        """Return the scaled embeddings [B, T, D] of `source` or `target` ids, in the dtype of the
        activations."""
        x_BTD = F.embedding(ids_BT, self.embedding_weight(role))
        scaled_BTD = x_BTD * math.sqrt(self.config.dim)
        if role == "target" and not self.config.target_bos:
            scaled_BTD = scaled_BTD.masked_fill((ids_BT == BOS)[..., None], 0.0)
        if self.compute_dtype is None:
            return scaled_BTD
        return scaled_BTD.to(self.compute_dtype)


def _embedding(vocab_size: int, dim: int) -> nn.Parameter:
    weight_VD = torch.empty(vocab_size, dim)
    if not weight_VD.is_meta:  # for which PyTorch would import its compiler, which takes seconds
        weight_VD.normal_().mul_(dim**-0.5)
    weight_VD[0] = 0.0  # the padding token
    return nn.Parameter(weight_VD)
