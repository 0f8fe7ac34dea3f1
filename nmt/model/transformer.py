"""The Transformer (Vaswani et al. 2017), encoder and decoder, for training and for cached search.

Shape suffixes: B sentences, S source tokens, T target tokens, D model dimension, H query heads, G
key-value heads, K head dimension, W rows (beams) per sentence, R = B*W rows. Masks are boolean,
True = attend; on a GPU, padding masks are additive.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn

from nmt.core.config import ModelConfig
from nmt.core.registry import resolve
from nmt.model.attention import (
    CausalMask,
    CrossAttention,
    Mask,
    SelfAttention,
    additive_mask,
    select_mask,
    split_kv,
)
from nmt.model.cache import KVCache
from nmt.model.layers import FeedForward, Residual, build_norm
from nmt.model.positions import (
    POSITION_ENCODINGS,
    Position,
    PositionEncoding,
    PositionInput,
    StackSpec,
    distances,
)
from nmt.model.segment_attention import Segments
from nmt.model.seq2seq import Seq2Seq
from nmt.model.ssru import SSRU, SSRUStates

KeysValues = tuple[Tensor, Tensor]


@dataclass
class DecoderState:
    """The state of a decoder between steps."""

    cross_kv: list[KeysValues]
    """Keys and values of the encoder output in each layer, [B, G, S, K]."""
    mask_B11S: Tensor
    """Padding mask of the sources, boolean or additive."""
    cache: KVCache | SSRUStates | None
    """None: no cache, because the whole target is read at once."""
    tracked_layer: int | None = None
    """Layer whose cross-attention is recorded."""
    cross_attention_RTS: Tensor | None = None
    """Cross-attention of the tracked layer in the last step, averaged over heads."""

    def track_attention(self) -> None:
        """Record cross-attention from the next step on.

        The tracked layer is the one that aligns words best: the second to last (Garg et al. 2019,
        section 4.1), but of two layers the last. With the pretrained models, the first of two
        layers puts 23% of the tags of scripts/bench_emphasis.py on wrong words, the last one 4%.
        """
        num_layers = len(self.cross_kv)
        self.tracked_layer = num_layers - 2 if num_layers > 2 else num_layers - 1

    def record_cross_attention(
        self, layer: int, attention: CrossAttention, q_BHQK: Tensor, rows: int
    ) -> None:
        """Record the attention of these queries if `layer` is tracked."""
        if layer != self.tracked_layer:
            return
        k_BGSK, _ = self.cross_kv[layer]
        weights_BHQS = attention.weights(q_BHQK, attention.repeat_kv(k_BGSK), self.mask_B11S)
        weights_BQS = weights_BHQS.float().mean(1)
        self.cross_attention_RTS = weights_BQS.reshape(rows, -1, k_BGSK.shape[2])

    @property
    def position(self) -> Position:
        """Position of the next target token."""
        return self.cache.position if self.cache else 0

    def append_kv(self, layer: int, kv_RT2GK: Tensor) -> KeysValues:
        """Append keys and values of new positions to the cache of a layer, and return all so
        far."""
        if not isinstance(self.cache, KVCache):
            return split_kv(kv_RT2GK)
        k, v = self.cache.append(layer, kv_RT2GK).permute(1, 2, 3, 0, 4).unbind(0)
        return k, v

    def attend_to_target(
        self, attention: SelfAttention, x_RTD: Tensor, mask: Mask | None, position: PositionInput
    ) -> Tensor:
        """Return the self-attention of T new target positions, [R, T, D]."""
        q, kv = attention.project(x_RTD, position)
        k, v = self.append_kv(position.layer, kv)
        return attention.attend_and_project(q, k, v, mask, position)

    def recur(self, ssru: SSRU, x_RTD: Tensor, layer: int) -> Tensor:
        """Return the output of the recurrence at T new target positions, [R, T, D]."""
        if not isinstance(self.cache, SSRUStates):
            return ssru(x_RTD)[0]
        output_RTD, self.cache.layers[layer] = ssru(x_RTD, self.cache.layers.get(layer))
        return output_RTD

    def attend_to_source(self, attention: CrossAttention, x_RTD: Tensor, layer: int) -> Tensor:
        """Return the cross-attention of T new target positions, [R, T, D]."""
        # The W rows of a sentence become W*T queries of one attention, so that the keys and values
        # of the source are stored once per sentence, not once per beam.
        k, v = self.cross_kv[layer]
        x_BQD = x_RTD.reshape(k.shape[0], -1, x_RTD.shape[-1])
        q = attention.project_q(x_BQD)
        attended_BQD = attention.attend_and_project(q, k, v, self.mask_B11S)
        self.record_cross_attention(layer, attention, q, x_RTD.shape[0])
        return attended_BQD.view_as(x_RTD)

    def advance(self, positions: int) -> None:
        """Increase the length by the number of positions that every layer has appended."""
        if self.cache:
            self.cache.advance(positions)

    def reorder(self, rows_R: Tensor, sentences_B: Tensor | None = None) -> None:
        """Keep the rows `rows_R`, in that order, and, if given, the sentences `sentences_B`.

        The rows of a sentence must be adjacent, and every sentence must have the same number of
        rows.
        """
        if self.cache:
            self.cache.reorder(rows_R)
        if sentences_B is not None:
            self.cross_kv = [(k[sentences_B], v[sentences_B]) for k, v in self.cross_kv]
            self.mask_B11S = select_mask(self.mask_B11S, sentences_B)


@dataclass(frozen=True)
class PackedState:
    """What a decoder attends to when it reads whole targets side by side, as packed training
    does."""

    memory_1SD: Tensor
    target: Segments
    source: Segments
    """The segments of the target as queries and of the source as keys."""

    def attend_to_target(
        self, attention: SelfAttention, x_1TD: Tensor, mask: None, position: PositionInput
    ) -> Tensor:
        """Return the self-attention of all target positions, [1, T, D]."""
        return attention(x_1TD, self.target, position)

    def attend_to_source(self, attention: CrossAttention, x_1TD: Tensor, layer: int) -> Tensor:
        """Return the cross-attention of all target positions, [1, T, D]."""
        return attention.attend_in_segments(x_1TD, self.memory_1SD, self.source)


class EncoderLayer(nn.Module):
    """Self-attention, then feed-forward."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.self_attention = SelfAttention(config)
        self.feed_forward = FeedForward(config)
        self.attention_residual = Residual(config)
        self.ffn_residual = Residual(config)

    def forward(self, x_BSD: Tensor, mask: Tensor | Segments, position: PositionInput) -> Tensor:
        """Run the layer over the source."""
        normed_BSD = self.attention_residual.norm_input(x_BSD)
        attended_BSD = self.self_attention(normed_BSD, mask, position)
        x_BSD = self.attention_residual.add(x_BSD, attended_BSD)
        normed_BSD = self.ffn_residual.norm_input(x_BSD)
        return self.ffn_residual.add(x_BSD, self.feed_forward(normed_BSD))


class DecoderLayer(nn.Module):
    """Masked self-attention or a recurrence, cross-attention, then feed-forward."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.is_recurrent = config.decoder == "ssru"
        if self.is_recurrent:
            self.ssru = SSRU(config)
        else:
            self.self_attention = SelfAttention(config)
        self.cross_attention = CrossAttention(config)
        self.feed_forward = FeedForward(config)
        self.attention_residual = Residual(config)
        self.cross_attention_residual = Residual(config)
        self.ffn_residual = Residual(config)

    def forward(
        self,
        x_RTD: Tensor,
        state: DecoderState | PackedState,
        mask: Any,
        position: PositionInput,
    ) -> Tensor:
        """Run the layer over T new target positions; the mask is that of a `DecoderState`."""
        normed_RTD = self.attention_residual.norm_input(x_RTD)
        if self.is_recurrent:
            assert isinstance(state, DecoderState)  # `supports_packing` is false
            context_RTD = state.recur(self.ssru, normed_RTD, position.layer)
        else:
            context_RTD = state.attend_to_target(self.self_attention, normed_RTD, mask, position)
        x_RTD = self.attention_residual.add(x_RTD, context_RTD)
        normed_RTD = self.cross_attention_residual.norm_input(x_RTD)
        attended_RTD = state.attend_to_source(self.cross_attention, normed_RTD, position.layer)
        x_RTD = self.cross_attention_residual.add(x_RTD, attended_RTD)
        normed_RTD = self.ffn_residual.norm_input(x_RTD)
        return self.ffn_residual.add(x_RTD, self.feed_forward(normed_RTD))


class PackedSide(NamedTuple):
    """The sources or targets of a batch, side by side."""

    ids_N: Tensor
    position_N: Tensor
    """Position of each token in its sentence."""
    bounds_E: Tensor
    """Where the sentences begin and end, in int32."""


class LayerFunctions(NamedTuple):
    """What runs the layers in packed training: their own methods, or compiled ones."""

    encoder: Callable[..., Tensor] = EncoderLayer.forward
    decoder: Callable[..., Tensor] = DecoderLayer.forward


def _distinct_layers(layer: type[nn.Module], config: ModelConfig, num_layers: int) -> nn.ModuleList:
    """Return the layers with weights of their own, each of which is applied `layer_sharing`
    times."""
    layers = nn.ModuleList()
    for _ in range(0, num_layers, config.layer_sharing):
        layers.append(layer(config))
    return layers


class Transformer(Seq2Seq):
    """The Transformer of the paper, or one with the variants of `ModelConfig`."""

    has_positions = True

    def __init__(self, config: ModelConfig, vocab_size: int) -> None:
        """Create the network with freshly initialized weights; see `Seq2Seq`."""
        super().__init__(config, vocab_size)
        encoding = resolve("position encoding", POSITION_ENCODINGS, config.position_encoding)
        self.source_positions = encoding(StackSpec(config.dim, config.heads, config.encoder_layers))
        is_recurrent = config.decoder == "ssru"
        if is_recurrent and self.source_positions.is_relative:
            encoding = PositionEncoding  # there is no self-attention that could read it
        self.target_positions = encoding(
            StackSpec(config.dim, config.heads, config.decoder_layers, causal=True)
        )
        self.max_positions = self.source_positions.max_positions
        self.layer_sharing = config.layer_sharing
        self.supports_graphs = (
            self.target_positions.supports_graphs
            and not config.attention_window
            and not is_recurrent
        )
        self.supports_packing = (
            self.source_positions.supports_packing
            and not is_recurrent
            and config.attention_score == "dot"
            and not config.attention_window
            and not config.attention_dropout
        )
        self.encoder = _distinct_layers(EncoderLayer, config, config.encoder_layers)
        self.decoder = _distinct_layers(DecoderLayer, config, config.decoder_layers)
        # In pre-norm the residual stream is not normalized, so each stack ends with a norm.
        is_pre_norm = config.norm_position == "pre"
        self.encoder_norm = build_norm(config) if is_pre_norm else nn.Identity()
        self.decoder_norm = build_norm(config) if is_pre_norm else nn.Identity()

    @property
    def encoder_layers(self) -> list[EncoderLayer]:
        """The layers of the encoder in order; layers with shared weights are repeated."""
        return self._repeat(self.encoder, self.config.encoder_layers)

    @property
    def decoder_layers(self) -> list[DecoderLayer]:
        """The layers of the decoder in order; layers with shared weights are repeated."""
        return self._repeat(self.decoder, self.config.decoder_layers)

    def _repeat(self, distinct: Iterable[Any], count: int) -> list[Any]:
        """Return what belongs to each of `count` layers, from what belongs to those with distinct
        weights."""
        items = list(distinct)
        return [items[i // self.layer_sharing] for i in range(count)]

    def encode(self, src_BS: Tensor, src_mask_BS: Tensor) -> Tensor:
        """Return the output of the encoder, memory_BSD."""
        x_BSD = self.embed("source", src_BS, 0)
        mask = self._padding_mask(src_mask_BS)
        if window := self.config.attention_window:
            length = src_BS.shape[1]
            is_near_SS = distances(length, length, 0, src_BS.device).abs() <= window
            mask = src_mask_BS[:, None, None] & is_near_SS
        for layer_index, layer in enumerate(self.encoder_layers):
            position = PositionInput(self.source_positions, layer_index, 0)
            x_BSD = layer(position.add_positions(x_BSD), mask, position)
        return self.encoder_norm(x_BSD)

    def init_state(
        self, memory_BSD: Tensor, src_mask_BS: Tensor, *, use_cache: bool = True
    ) -> DecoderState:
        """Return the initial decoder state; with `use_cache=False` (training) it caches no target
        tokens."""
        layers = cast(Iterable[DecoderLayer], self.decoder)
        projected = [layer.cross_attention.project_kv(memory_BSD) for layer in layers]
        cross_kv = self._repeat(projected, self.config.decoder_layers)
        cache: KVCache | SSRUStates | None = None
        if use_cache:
            cache = SSRUStates() if self.config.decoder == "ssru" else KVCache()
        return DecoderState(cross_kv, self._padding_mask(src_mask_BS), cache)

    def forward_packed(
        self,
        source: PackedSide,
        target: PackedSide,
        max_length: int,
        layers: LayerFunctions = LayerFunctions(),  # noqa: B008
    ) -> Tensor:
        """Return hidden_ND of all target positions of sentences side by side.

        Args:
            source: the sources.
            target: the targets, with <s>.
            max_length: at least the length of the longest source or target.
            layers: what runs the layers.
        """
        # The table of a position encoding cannot grow while a CUDA graph is captured.
        for encoding in (self.source_positions, self.target_positions):
            encoding.reserve(max_length, source.ids_N.device)
        x_1SD = self.embed("source", source.ids_N[None], source.position_N)
        segments = Segments(source.bounds_E, source.bounds_E, max_length)
        position = PositionInput(self.source_positions, 0, source.position_N)
        for layer in self.encoder_layers:
            x_1SD = layers.encoder(layer, x_1SD, segments, position)
        state = PackedState(
            self.encoder_norm(x_1SD),
            Segments(target.bounds_E, target.bounds_E, max_length, causal=True),
            Segments(target.bounds_E, source.bounds_E, max_length),
        )
        x_1TD = self.embed("target", target.ids_N[None], target.position_N)
        position = PositionInput(self.target_positions, 0, target.position_N)
        for decoder_layer in self.decoder_layers:
            x_1TD = layers.decoder(decoder_layer, x_1TD, state, None, position)
        hidden_1TD: Tensor = self.decoder_norm(x_1TD)
        return hidden_1TD[0]

    def _padding_mask(self, src_mask_BS: Tensor) -> Tensor:
        mask_B11S = src_mask_BS[:, None, None, :]
        if not src_mask_BS.is_cuda:
            return mask_B11S
        return additive_mask(mask_B11S, self.compute_dtype or self.output_weight_VD.dtype)

    def decode(self, tgt_RT: Tensor, state: DecoderState) -> Tensor:
        """Read T more target tokens per row and return hidden_RTD; R is a multiple of the sentences
        in the state."""
        x_RTD = self.embed("target", tgt_RT, state.position)
        mask = self._target_mask(tgt_RT, state.cache, x_RTD.dtype)
        for layer_index, layer in enumerate(self.decoder_layers):
            position = PositionInput(self.target_positions, layer_index, state.position)
            x_RTD = layer(position.add_positions(x_RTD), state, mask, position)
        state.advance(tgt_RT.shape[1])
        return self.decoder_norm(x_RTD)

    def _target_mask(
        self, tgt_RT: Tensor, cache: KVCache | SSRUStates | None, dtype: torch.dtype
    ) -> Mask | None:
        """Return the mask of self-attention for the next target tokens; None: they attend to all
        positions so far."""
        window = self.config.attention_window
        if isinstance(cache, KVCache) and cache.position_1 is not None:
            return additive_mask(cache.is_filled_P[None, None, None], dtype)
        tokens = tgt_RT.shape[1]
        if tokens == 1 and not window:
            return None
        start = cache.length if cache else 0
        distance_TS = distances(tokens, start + tokens, start, tgt_RT.device)
        allowed_TS = distance_TS >= 0
        if window:
            return allowed_TS & (distance_TS <= window)
        return allowed_TS if start else CausalMask(allowed_TS)

    def embed(self, role: str, ids_BT: Tensor, start: Position) -> Tensor:
        """Return the embeddings [B, T, D] of `source` or `target` ids at positions start, start+1,
        ..."""
        encoding = self.source_positions if role == "source" else self.target_positions
        x_BTD = encoding.add_positions(self.embed_tokens(role, ids_BT), 0, start)
        return self.dropout(x_BTD)
