"""The Transformer (Vaswani et al. 2017), encoder and decoder, for training and for cached search.

Shape letters: B sentences, S source tokens, T target tokens, D width, H heads, G heads of keys and values, K head
width, W rows (beams) per sentence, R = B*W rows. Masks are boolean, True = attend.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn

from nmt.config import ModelConfig
from nmt.model.attention import CrossAttention, SelfAttention, keys_and_values
from nmt.model.cache import KVCache
from nmt.model.layers import NORMS, FeedForward, Residual
from nmt.model.positions import POSITIONS, Place, Stack
from nmt.model.seq2seq import Seq2Seq
from nmt.registry import resolve

KeysValues = tuple[Tensor, Tensor]


@dataclass
class DecoderState:
    """What a decoder remembers between steps."""

    sources: list[KeysValues]
    """Each layer's keys and values of the encoder's output, [B, G, S, K]."""
    mask_B11S: Tensor | None
    """None: the sources hold no padding."""
    target: KVCache | None
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

    def observe(self, layer: int, attention: CrossAttention, q_BHQK: Tensor, rows: int) -> None:
        """Note where queries look, if this layer is watched."""
        if layer == self.watched:
            k_BGSK = self.sources[layer][0]
            weights_BQS = attention.weights(q_BHQK, k_BGSK, self.mask_B11S).float().mean(1)
            self.seen_RTS = weights_BQS.reshape(rows, -1, k_BGSK.shape[2])

    @property
    def length(self) -> int:
        """Target positions so far."""
        return self.target.length if self.target else 0

    def remember(self, layer: int, kv_RT2GK: Tensor) -> KeysValues:
        """Take a layer's keys and values of new positions and return all so far."""
        if self.target is None:
            return keys_and_values(kv_RT2GK)
        k, v = self.target.append(layer, kv_RT2GK).permute(1, 2, 3, 0, 4).unbind(0)
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
        self.attention = SelfAttention(config)
        self.feed_forward = FeedForward(config.dim, config.ffn_dim, config.activation_dropout, config.activation)
        self.attention_residual, self.ffn_residual = _residual(config), _residual(config)

    def forward(self, x_BSD: Tensor, mask_B11S: Tensor, place: Place) -> Tensor:
        """Run one layer over the source."""
        q, kv = self.attention.project(self.attention_residual.before(x_BSD), place)
        x_BSD = self.attention_residual.after(x_BSD, self.attention.attend(q, *keys_and_values(kv), mask_B11S, place))
        return self.ffn_residual.after(x_BSD, self.feed_forward(self.ffn_residual.before(x_BSD)))


class DecoderLayer(nn.Module):
    """Masked self-attention, attention to the encoder's output, feed-forward."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.attention = SelfAttention(config)
        self.cross = CrossAttention(config)
        self.feed_forward = FeedForward(config.dim, config.ffn_dim, config.activation_dropout, config.activation)
        self.attention_residual, self.cross_attention_residual, self.ffn_residual = (
            _residual(config) for _ in range(3)
        )

    def forward(self, x_RTD: Tensor, state: DecoderState, causal_TT: Tensor | None, place: Place) -> Tensor:
        """Run the layer at `place` over T new target positions."""
        q, kv = self.attention.project(self.attention_residual.before(x_RTD), place)
        k, v = state.remember(place.layer, kv)
        x_RTD = self.attention_residual.after(x_RTD, self.attention.attend(q, k, v, causal_TT, place))
        # The W rows of a sentence are read as W*T queries of one attention, so that the source's keys and values
        # exist once per sentence and not once per beam.
        k, v = state.sources[place.layer]
        q = self.cross.project_q(self.cross_attention_residual.before(x_RTD).reshape(k.shape[0], -1, x_RTD.shape[-1]))
        seen = self.cross.attend(q, k, v, state.mask_B11S)
        state.observe(place.layer, self.cross, q, x_RTD.shape[0])
        x_RTD = self.cross_attention_residual.after(x_RTD, seen.view_as(x_RTD))
        return self.ffn_residual.after(x_RTD, self.feed_forward(self.ffn_residual.before(x_RTD)))


class Transformer(Seq2Seq):
    """Encoder-decoder Transformer, as in the paper or with what `ModelConfig` offers besides."""

    def __init__(self, config: ModelConfig, vocabulary: int, pad: int = 0) -> None:
        """Make the network with fresh weights; see `Seq2Seq`."""
        super().__init__(config, vocabulary, pad)
        encoding = resolve("positions", POSITIONS, config.position_encoding)
        self.source_positions = encoding(Stack(config.dim, config.heads, config.encoder_layers))
        self.target_positions = encoding(Stack(config.dim, config.heads, config.decoder_layers, causal=True))
        self.max_positions = self.source_positions.most
        self.encoder = nn.ModuleList(EncoderLayer(config) for _ in range(_own(config.encoder_layers, config)))
        self.decoder = nn.ModuleList(DecoderLayer(config) for _ in range(_own(config.decoder_layers, config)))
        # Pre-norm leaves the residual stream unnormalized, so each stack ends on a norm; post-norm already does.
        final = NORMS[config.norm] if config.norm_position == "pre" else nn.Identity
        self.encoder_norm = final(config.dim)
        self.decoder_norm = final(config.dim)

    @property
    def encoder_layers(self) -> list[EncoderLayer]:
        """The encoder's layers in order, those with shared weights as often as they run."""
        own = list(cast(Iterable[EncoderLayer], self.encoder))
        return [own[i // self.config.layer_sharing] for i in range(self.config.encoder_layers)]

    @property
    def decoder_layers(self) -> list[DecoderLayer]:
        """The decoder's layers in order, those with shared weights as often as they run."""
        own = list(cast(Iterable[DecoderLayer], self.decoder))
        return [own[i // self.config.layer_sharing] for i in range(self.config.decoder_layers)]

    def encode(self, src_BS: Tensor, src_mask_BS: Tensor) -> Tensor:
        """Return the encoder's output, memory_BSD."""
        x_BSD = self.embed("source", src_BS, 0)
        mask_B11S = src_mask_BS[:, None, None, :]
        for number, layer in enumerate(self.encoder_layers):
            place = Place(self.source_positions, number, 0)
            x_BSD = layer(place.embed(x_BSD), mask_B11S, place)
        memory_BSD: Tensor = self.encoder_norm(x_BSD)
        return memory_BSD

    def start(self, memory_BSD: Tensor, src_mask_BS: Tensor, *, keep: bool = True) -> DecoderState:
        """Open a state for decoding from the beginning; `keep=False` (training) stores nothing of the target."""
        projected = {
            id(layer): layer.cross.project_kv(memory_BSD) for layer in cast(Iterable[DecoderLayer], self.decoder)
        }
        sources = [projected[id(layer)] for layer in self.decoder_layers]
        target = KVCache(len(sources)) if keep else None
        return DecoderState(sources, src_mask_BS[:, None, None, :], target)

    def step(self, tgt_RT: Tensor, state: DecoderState) -> Tensor:
        """Read T more target tokens per row and return hidden_RTD; R is a multiple of the state's sentences."""
        tokens = tgt_RT.shape[1]
        x_RTD = self.embed("target", tgt_RT, state.length)
        causal_TT = None
        if tokens > 1:
            end = state.length + tokens
            causal_TT = torch.ones(tokens, end, dtype=torch.bool, device=tgt_RT.device).tril(state.length)
        for number, layer in enumerate(self.decoder_layers):
            place = Place(self.target_positions, number, state.length)
            x_RTD = layer(place.embed(x_RTD), state, causal_TT, place)
        state.advance(tokens)
        hidden_RTD: Tensor = self.decoder_norm(x_RTD)
        return hidden_RTD

    def embed(self, role: str, ids_BT: Tensor, start: int) -> Tensor:
        """Return the embeddings [B, T, D] of `source` or `target` ids that stand at positions start, start+1, ..."""
        positions = self.source_positions if role == "source" else self.target_positions
        embedded: Tensor = self.dropout(positions.embed(self.embed_tokens(role, ids_BT), 0, start))
        return embedded


def _residual(config: ModelConfig) -> Residual:
    return Residual(config.dim, config.dropout, config.norm_position, config.norm)


def _own(layers: int, config: ModelConfig) -> int:
    """Return how many layers have weights of their own."""
    return -(-layers // config.layer_sharing)
