"""The Transformer (Vaswani et al. 2017), encoder and decoder, for training and for cached search.

Shape letters: B sentences, S source tokens, T target tokens, D width, H heads, K head width, V vocabulary,
W rows (beams) per sentence, R = B*W rows, N real target positions. Masks are boolean, True = attend.

Training and search run the same code: `step` takes any number of target tokens and a `DecoderState`. In training
the state is empty and T is the whole sentence; in search T is 1 and the state holds the keys and values so far.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import cast

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from nmt.config import ModelConfig
from nmt.model.attention import Attention
from nmt.model.layers import Dropout, FeedForward, LayerNorm, Residual
from nmt.model.positions import POSITIONS

CACHE_BLOCK = 16
"""Positions by which a decoder's cache grows: few copies without reserving the longest possible output."""


class EncoderLayer(nn.Module):
    """Self-attention, then feed-forward."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.attention = Attention(config.dim, config.heads, config.attention_dropout)
        self.feed_forward = FeedForward(config.dim, config.ff, config.ff_dropout)
        self.around_attention = Residual(config.dim, config.dropout, config.norm)
        self.around_ff = Residual(config.dim, config.dropout, config.norm)

    def forward(self, x_BSD: Tensor, mask_B11S: Tensor) -> Tensor:
        """Run one layer over the source."""
        q, k, v = self.attention.project_qkv(self.around_attention.before(x_BSD))
        x_BSD = self.around_attention.after(x_BSD, self.attention.attend(q, k, v, mask_B11S))
        return self.around_ff.after(x_BSD, self.feed_forward(self.around_ff.before(x_BSD)))


class DecoderLayer(nn.Module):
    """Masked self-attention, attention to the encoder's output, feed-forward."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.attention = Attention(config.dim, config.heads, config.attention_dropout)
        self.cross = Attention(config.dim, config.heads, config.attention_dropout)
        self.feed_forward = FeedForward(config.dim, config.ff, config.ff_dropout)
        self.around_attention = Residual(config.dim, config.dropout, config.norm)
        self.around_cross = Residual(config.dim, config.dropout, config.norm)
        self.around_ff = Residual(config.dim, config.dropout, config.norm)

    def forward(self, x_RTD: Tensor, cache: LayerCache, causal_TT: Tensor | None, mask_B11S: Tensor) -> Tensor:
        """Run one layer over T new target positions and remember their keys and values in `cache`."""
        q, k, v = self.attention.project_qkv(self.around_attention.before(x_RTD))
        k, v = cache.append(k, v)
        x_RTD = self.around_attention.after(x_RTD, self.attention.attend(q, k, v, causal_TT))
        x_RTD = self.around_cross.after(x_RTD, self._look_at_source(self.around_cross.before(x_RTD), cache, mask_B11S))
        return self.around_ff.after(x_RTD, self.feed_forward(self.around_ff.before(x_RTD)))

    def open_cache(self, memory_BSD: Tensor, *, keep: bool) -> LayerCache:
        """Project the encoder's output to this layer's keys and values, once for a whole translation."""
        return LayerCache(*self.cross.project_kv(memory_BSD), keep=keep)

    def _look_at_source(self, x_RTD: Tensor, cache: LayerCache, mask_B11S: Tensor) -> Tensor:
        # The W rows of a sentence are read as W*T queries of one attention, so that the source's keys and values
        # exist once per sentence and not once per beam.
        sentences = cache.source_k_BHSK.shape[0]
        q = self.cross.project_q(x_RTD.reshape(sentences, -1, x_RTD.shape[-1]))
        return self.cross.attend(q, cache.source_k_BHSK, cache.source_v_BHSK, mask_B11S).view_as(x_RTD)


class LayerCache:
    """One decoder layer's memory: the source's keys and values, and those of the target so far."""

    def __init__(self, source_k_BHSK: Tensor, source_v_BHSK: Tensor, *, keep: bool) -> None:
        self.source_k_BHSK = source_k_BHSK
        self.source_v_BHSK = source_v_BHSK
        self.keep = keep
        self.length = 0
        self.room: Tensor | None = None  # [2, R, H, positions reserved, K]

    def append(self, k_RHTK: Tensor, v_RHTK: Tensor) -> tuple[Tensor, Tensor]:
        """Add new positions and return all so far."""
        if not self.keep:
            return k_RHTK, v_RHTK
        rows, heads, new, width = k_RHTK.shape
        end = self.length + new
        if self.room is None or end > self.room.shape[3]:
            reserved = -(-end // CACHE_BLOCK) * CACHE_BLOCK
            room = k_RHTK.new_empty(2, rows, heads, reserved, width)
            if self.room is not None:
                room[:, :, :, : self.length] = self.room[:, :, :, : self.length]
            self.room = room
        self.room[0, :, :, self.length : end] = k_RHTK
        self.room[1, :, :, self.length : end] = v_RHTK
        self.length = end
        return self.room[0, :, :, :end], self.room[1, :, :, :end]

    def select(self, rows: Tensor, sentences: Tensor | None) -> None:
        """Reorder rows, and drop or repeat sentences."""
        if self.room is not None:
            self.room = self.room.index_select(1, rows)
        if sentences is not None:
            self.source_k_BHSK = self.source_k_BHSK.index_select(0, sentences)
            self.source_v_BHSK = self.source_v_BHSK.index_select(0, sentences)


@dataclass
class DecoderState:
    """What a decoder remembers between steps."""

    layers: list[LayerCache]
    mask_B11S: Tensor
    length: int = 0

    def select(self, rows_R: Tensor, sentences_B: Tensor | None = None) -> None:
        """Keep `rows_R` of the present rows in that order, and, when given, `sentences_B` of the sentences.

        The rows of one sentence must stand together and be equally many for every sentence.
        """
        for layer in self.layers:
            layer.select(rows_R, sentences_B)
        if sentences_B is not None:
            self.mask_B11S = self.mask_B11S.index_select(0, sentences_B)


class Transformer(nn.Module):
    """Encoder-decoder Transformer with post-norm (the paper) or pre-norm and tied embeddings."""

    def __init__(self, config: ModelConfig, vocabulary: int, pad: int = 0) -> None:
        """Make the network with fresh weights.

        Args:
            config: sizes, dropout and norm placement.
            vocabulary: V, pieces of the joint tokenizer.
            pad: id whose embedding starts at zero.
        """
        super().__init__()
        self.config = config
        self.compute_dtype: torch.dtype | None = None  # type of the activations; None: that of the weights
        tables = ("shared",) if config.tied else ("source", "target", "output")
        self.embeddings = nn.ParameterDict({name: _embedding(vocabulary, config.dim, pad) for name in tables})
        self.positions = POSITIONS[config.positions](config.dim)
        self.dropout = Dropout(config.dropout)
        self.encoder = nn.ModuleList(EncoderLayer(config) for _ in range(config.encoder_layers))
        self.decoder = nn.ModuleList(DecoderLayer(config) for _ in range(config.decoder_layers))
        # Pre-norm leaves the residual stream unnormalised, so each stack ends on a norm; post-norm already does.
        final = LayerNorm if config.norm == "pre" else nn.Identity
        self.encoder_norm = final(config.dim)
        self.decoder_norm = final(config.dim)

    def _table(self, role: str) -> Tensor:
        weight_VD: Tensor = self.embeddings["shared" if self.config.tied else role]
        return weight_VD

    @property
    def output_weight_VD(self) -> Tensor:
        """The output layer's matrix, the embeddings' own when tied."""
        return self._table("output")

    def encode(self, src_BS: Tensor, src_mask_BS: Tensor) -> Tensor:
        """Return the encoder's output, memory_BSD."""
        x_BSD = self._embed("source", src_BS, 0)
        mask_B11S = src_mask_BS[:, None, None, :]
        for layer in self.encoder:
            x_BSD = layer(x_BSD, mask_B11S)
        memory_BSD: Tensor = self.encoder_norm(x_BSD)
        return memory_BSD

    def start(self, memory_BSD: Tensor, src_mask_BS: Tensor, *, keep: bool = True) -> DecoderState:
        """Open a state for decoding from the beginning; `keep=False` (training) stores nothing of the target."""
        decoder = cast(Iterable[DecoderLayer], self.decoder)
        layers = [layer.open_cache(memory_BSD, keep=keep) for layer in decoder]
        return DecoderState(layers, src_mask_BS[:, None, None, :])

    def step(self, tgt_RT: Tensor, state: DecoderState) -> Tensor:
        """Read T more target tokens per row and return hidden_RTD; R is a multiple of the state's sentences."""
        tokens = tgt_RT.shape[1]
        x_RTD = self._embed("target", tgt_RT, state.length)
        causal_TT = None
        if tokens > 1:
            end = state.length + tokens
            causal_TT = torch.ones(tokens, end, dtype=torch.bool, device=tgt_RT.device).tril(state.length)
        for layer, cache in zip(self.decoder, state.layers, strict=True):
            x_RTD = layer(x_RTD, cache, causal_TT, state.mask_B11S)
        state.length += tokens
        hidden_RTD: Tensor = self.decoder_norm(x_RTD)
        return hidden_RTD

    def project(self, hidden: Tensor) -> Tensor:
        """Return the logits [..., V] of hidden vectors [..., D]."""
        return hidden @ self.output_weight_VD.to(hidden.dtype).t()

    def forward(self, src_BS: Tensor, src_mask_BS: Tensor, tgt_in_BT: Tensor, places_N: Tensor) -> Tensor:
        """Return hidden_ND of the real target positions, padding gone: what the loss projects, in chunks.

        `places_N` are their numbers among the B·T positions.

        Target padding needs no mask of its own: it only follows the real tokens, and the look-ahead mask hides it.
        """
        memory_BSD = self.encode(src_BS, src_mask_BS)
        hidden_BTD = self.step(tgt_in_BT, self.start(memory_BSD, src_mask_BS, keep=False))
        return hidden_BTD.flatten(0, 1).index_select(0, places_N)

    def _embed(self, role: str, ids_BT: Tensor, start: int) -> Tensor:
        x_BTD = F.embedding(ids_BT, self._table(role)) * math.sqrt(self.config.dim)
        if self.compute_dtype is not None:
            x_BTD = x_BTD.to(self.compute_dtype)
        embedded: Tensor = self.dropout(self.positions.embed(x_BTD, start))
        return embedded


def _embedding(vocabulary: int, dim: int, pad: int) -> nn.Parameter:
    table_VD = torch.randn(vocabulary, dim) * dim**-0.5
    table_VD[pad] = 0.0
    return nn.Parameter(table_VD)
