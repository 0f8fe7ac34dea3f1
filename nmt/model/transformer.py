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
from nmt.model.attention import CrossAttention, SelfAttention, keys_and_values, masked_softmax
from nmt.model.cache import TargetCache
from nmt.model.layers import Dropout, FeedForward, LayerNorm, Residual
from nmt.model.positions import POSITIONS

KeysValues = tuple[Tensor, Tensor]


@dataclass
class DecoderState:
    """What a decoder remembers between steps."""

    sources: list[KeysValues]
    """Each layer's keys and values of the encoder's output, [B, H, S, K]."""
    mask_B11S: Tensor | None
    """None: the sources hold no padding."""
    target: TargetCache | None
    """None: nothing is remembered, since the whole target is read at once."""
    watched: int | None = None
    """The layer whose attention to the source is noted."""
    seen_RTS: Tensor | None = None
    """Where the positions of the last step looked in that layer, the mean of its heads."""

    def watch(self) -> None:
        """Note from now on where target positions look in the source.

        It is the last layer but one, which aligns words best (Garg et al. 2019, section 4.1).
        """
        self.watched = max(0, len(self.sources) - 2)

    def observe(self, layer: int, q_BHQK: Tensor, rows: int) -> None:
        """Note where queries look, if this layer is watched."""
        if layer == self.watched:
            k_BHSK, _ = self.sources[layer]
            scores_BHQS = (q_BHQK / math.sqrt(q_BHQK.shape[-1])) @ k_BHSK.transpose(-1, -2)
            weights_BQS = masked_softmax(scores_BHQS.float(), self.mask_B11S).mean(1)
            self.seen_RTS = weights_BQS.view(rows, -1, k_BHSK.shape[2])

    @property
    def length(self) -> int:
        """Target positions so far."""
        return self.target.length if self.target else 0

    def remember(self, layer: int, kv_RT2HK: Tensor) -> KeysValues:
        """Take a layer's keys and values of new positions and return all so far."""
        if self.target is None:
            return keys_and_values(kv_RT2HK)
        k, v = self.target.append(layer, kv_RT2HK).permute(1, 2, 3, 0, 4).unbind(0)
        return k, v

    def advance(self, positions: int) -> None:
        """Count positions that every layer has remembered."""
        if self.target:
            self.target.advance(positions)

    def select(self, rows_R: Tensor, sentences_B: Tensor | None = None) -> None:
        """Keep `rows_R` of the present rows in that order, and, when given, `sentences_B` of the sentences.

        The rows of one sentence must stand together and be equally many for every sentence.
        """
        if self.target:
            self.target.select(rows_R)
        if sentences_B is not None:
            self.sources = [(k[sentences_B], v[sentences_B]) for k, v in self.sources]
            self.mask_B11S = None if self.mask_B11S is None else self.mask_B11S[sentences_B]


class EncoderLayer(nn.Module):
    """Self-attention, then feed-forward."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.attention = SelfAttention(config.dim, config.heads, config.attention_dropout)
        self.feed_forward = FeedForward(config.dim, config.ff, config.ff_dropout)
        self.around_attention = Residual(config.dim, config.dropout, config.norm)
        self.around_ff = Residual(config.dim, config.dropout, config.norm)

    def forward(self, x_BSD: Tensor, mask_B11S: Tensor) -> Tensor:
        """Run one layer over the source."""
        q, kv = self.attention.project(self.around_attention.before(x_BSD))
        x_BSD = self.around_attention.after(x_BSD, self.attention.attend(q, *keys_and_values(kv), mask_B11S))
        return self.around_ff.after(x_BSD, self.feed_forward(self.around_ff.before(x_BSD)))


class DecoderLayer(nn.Module):
    """Masked self-attention, attention to the encoder's output, feed-forward."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.attention = SelfAttention(config.dim, config.heads, config.attention_dropout)
        self.cross = CrossAttention(config.dim, config.heads, config.attention_dropout)
        self.feed_forward = FeedForward(config.dim, config.ff, config.ff_dropout)
        self.around_attention = Residual(config.dim, config.dropout, config.norm)
        self.around_cross = Residual(config.dim, config.dropout, config.norm)
        self.around_ff = Residual(config.dim, config.dropout, config.norm)

    def forward(self, x_RTD: Tensor, state: DecoderState, number: int, causal_TT: Tensor | None) -> Tensor:
        """Run one layer, the `number`-th from 0, over T new target positions."""
        q, kv = self.attention.project(self.around_attention.before(x_RTD))
        x_RTD = self.around_attention.after(x_RTD, self.attention.attend(q, *state.remember(number, kv), causal_TT))
        # The W rows of a sentence are read as W*T queries of one attention, so that the source's keys and values
        # exist once per sentence and not once per beam.
        k, v = state.sources[number]
        q = self.cross.project_q(self.around_cross.before(x_RTD).reshape(len(k), -1, x_RTD.shape[-1]))
        seen = self.cross.attend(q, k, v, state.mask_B11S)
        state.observe(number, q, len(x_RTD))
        x_RTD = self.around_cross.after(x_RTD, seen.view_as(x_RTD))
        return self.around_ff.after(x_RTD, self.feed_forward(self.around_ff.before(x_RTD)))


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

    def table(self, role: str) -> Tensor:
        """Return the embeddings' matrix [V, D] of `source` or `target`, or the `output` layer's."""
        weight_VD: Tensor = self.embeddings["shared" if self.config.tied else role]
        return weight_VD

    @property
    def output_weight_VD(self) -> Tensor:
        """The output layer's matrix, the embeddings' own when tied."""
        return self.table("output")

    def encode(self, src_BS: Tensor, src_mask_BS: Tensor) -> Tensor:
        """Return the encoder's output, memory_BSD."""
        x_BSD = self.embed("source", src_BS, 0)
        mask_B11S = src_mask_BS[:, None, None, :]
        for layer in self.encoder:
            x_BSD = layer(x_BSD, mask_B11S)
        memory_BSD: Tensor = self.encoder_norm(x_BSD)
        return memory_BSD

    def start(self, memory_BSD: Tensor, src_mask_BS: Tensor, *, keep: bool = True) -> DecoderState:
        """Open a state for decoding from the beginning; `keep=False` (training) stores nothing of the target."""
        sources = [layer.cross.project_kv(memory_BSD) for layer in cast(Iterable[DecoderLayer], self.decoder)]
        return DecoderState(sources, src_mask_BS[:, None, None, :], TargetCache(len(sources)) if keep else None)

    def step(self, tgt_RT: Tensor, state: DecoderState) -> Tensor:
        """Read T more target tokens per row and return hidden_RTD; R is a multiple of the state's sentences."""
        tokens = tgt_RT.shape[1]
        x_RTD = self.embed("target", tgt_RT, state.length)
        causal_TT = None
        if tokens > 1:
            end = state.length + tokens
            causal_TT = torch.ones(tokens, end, dtype=torch.bool, device=tgt_RT.device).tril(state.length)
        for number, layer in enumerate(self.decoder):
            x_RTD = layer(x_RTD, state, number, causal_TT)
        state.advance(tokens)
        hidden_RTD: Tensor = self.decoder_norm(x_RTD)
        return hidden_RTD

    def project(self, hidden: Tensor) -> Tensor:
        """Return the logits [..., V] of hidden vectors [..., D]."""
        return hidden @ self.output_weight_VD.to(hidden.dtype).t()

    def begin(self, src_BS: Tensor, src_mask_BS: Tensor) -> DecoderState:
        """Read the source and return the state in which a search begins."""
        return self.start(self.encode(src_BS, src_mask_BS), src_mask_BS)

    def next_logits(self, tokens_R: Tensor, state: DecoderState) -> Tensor:
        """Read one more token per row and return the float32 logits of the next, [R, V]."""
        return self.project(self.step(tokens_R[:, None], state)[:, -1]).float()

    def forward(self, src_BS: Tensor, src_mask_BS: Tensor, tgt_in_BT: Tensor, places_N: Tensor) -> Tensor:
        """Return hidden_ND of the real target positions, padding gone: what the loss projects, in chunks.

        `places_N` are their numbers among the B·T positions.

        Target padding needs no mask of its own: it only follows the real tokens, and the look-ahead mask hides it.
        """
        memory_BSD = self.encode(src_BS, src_mask_BS)
        hidden_BTD = self.step(tgt_in_BT, self.start(memory_BSD, src_mask_BS, keep=False))
        return hidden_BTD.flatten(0, 1).index_select(0, places_N)

    def embed(self, role: str, ids_BT: Tensor, start: int) -> Tensor:
        """Return the embeddings [B, T, D] of `source` or `target` ids that stand at positions start, start+1, ..."""
        x_BTD = F.embedding(ids_BT, self.table(role)) * math.sqrt(self.config.dim)
        if self.compute_dtype is not None:
            x_BTD = x_BTD.to(self.compute_dtype)
        embedded: Tensor = self.dropout(self.positions.embed(x_BTD, start))
        return embedded


def _embedding(vocabulary: int, dim: int, pad: int) -> nn.Parameter:
    table_VD = torch.randn(vocabulary, dim) * dim**-0.5
    table_VD[pad] = 0.0
    return nn.Parameter(table_VD)
