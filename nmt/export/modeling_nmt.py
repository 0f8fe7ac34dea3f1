"""A model of nmt for Hugging Face Transformers, which `trust_remote_code=True` loads.

`nmt export --to transformers` copies this file into the export, so it needs PyTorch and
Transformers only. Modules and weights have the names that they have in nmt. The model translates
and scores; train it with nmt.

Shape suffixes: B sentences (or beams), S source tokens, T new target tokens, D model dimension, H
query heads, G key-value heads, K head dimension, X pairs of features, V vocabulary.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import GenerationMixin, PretrainedConfig, PreTrainedModel
from transformers.modeling_outputs import BaseModelOutput, Seq2SeqLMOutput

NORMS: dict[str, Any] = {"layer": nn.LayerNorm, "rms": partial(nn.RMSNorm, eps=1e-6)}


def swiglu(x_BT2F: Tensor) -> Tensor:
    """Return silu(a)·b of the two halves a and b of the last axis."""
    gate, x = x_BT2F.chunk(2, -1)
    return functional.silu(gate) * x


ACTIVATIONS: dict[str, Any] = {
    "relu": functional.relu,
    "gelu": functional.gelu,
    "silu": functional.silu,
    "swiglu": swiglu,
}


class NmtConfig(PretrainedConfig):
    """The architecture, with the names of the options of nmt."""

    model_type = "nmt"
    attribute_map = {  # noqa: RUF012
        "hidden_size": "dim",
        "num_attention_heads": "heads",
        "num_hidden_layers": "decoder_layers",
    }

    is_encoder_decoder: bool = True
    tie_word_embeddings: bool = False  # `tie_embeddings` shares one parameter instead
    vocab_size: int = 8000
    dim: int = 256
    heads: int = 4
    kv_heads: int = 4
    ffn_dim: int = 1024
    encoder_layers: int = 3
    decoder_layers: int = 3
    layer_sharing: int = 1
    norm_position: str = "pre"
    norm: str = "layer"
    activation: str = "relu"
    position_encoding: str = "rotary"
    rotary_base: float = 10_000.0
    tie_embeddings: bool = True
    output_bias: bool = False


def angles(start: int, length: int, dim: int, base: float, device: torch.device) -> Tensor:
    """Return position times rate of each pair of features, [T, X]."""
    even_X = torch.arange(0, dim, 2, dtype=torch.float64, device=device)
    position_T = torch.arange(start, start + length, dtype=torch.float64, device=device)
    return position_T[:, None] * base ** (-even_X / dim)


def rotate(x_BHTK: Tensor, angle_TX: Tensor) -> Tensor:
    """Rotate pairs of neighboring features (Su et al. 2021, equation 34)."""
    cos_TX = angle_TX.cos().float()
    sin_TX = angle_TX.sin().float()
    first, second = x_BHTK.float().unflatten(-1, (-1, 2)).unbind(-1)
    rotated = (first * cos_TX - second * sin_TX, second * cos_TX + first * sin_TX)
    return torch.stack(rotated, -1).flatten(-2).type_as(x_BHTK)


def padding_mask(attention_mask_BS: Tensor | None) -> Tensor | None:
    """Return a mask for all heads and queries; None: there is no padding."""
    if attention_mask_BS is None:
        return None
    return attention_mask_BS[:, None, None].bool()


class Attention(nn.Module):
    """Multi-head attention, to the same sequence or to another one."""

    def __init__(self, config: NmtConfig, *, is_cross: bool) -> None:
        super().__init__()
        self.heads = config.heads
        self.head_dim = config.dim // config.heads
        self.num_repeats = config.heads // config.kv_heads
        kv_dim = 2 * config.kv_heads * self.head_dim
        if is_cross:
            self.q = nn.Linear(config.dim, config.dim)
            self.kv = nn.Linear(config.dim, kv_dim)
        else:
            self.qkv = nn.Linear(config.dim, config.dim + kv_dim)
        self.out = nn.Linear(config.dim, config.dim)

    def split_heads(self, x_BTD: Tensor) -> Tensor:
        """Return [B, H or G, T, K]."""
        return x_BTD.unflatten(-1, (-1, self.head_dim)).transpose(1, 2)

    def project(self, x_BTD: Tensor, angle_TX: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """Return queries, keys and values of self-attention."""
        qkv = self.split_heads(self.qkv(x_BTD))
        num_kv_heads = self.heads // self.num_repeats
        q, k, v = qkv.split((self.heads, num_kv_heads, num_kv_heads), 1)
        if angle_TX is None:
            return q, k, v
        return rotate(q, angle_TX), rotate(k, angle_TX), v

    def project_kv(self, memory_BSD: Tensor) -> tuple[Tensor, Tensor]:
        """Return keys and values of cross-attention."""
        k, v = self.split_heads(self.kv(memory_BSD)).chunk(2, 1)
        return k, v

    def attend(self, q_BHTK: Tensor, k_BGSK: Tensor, v_BGSK: Tensor, mask: Tensor | None) -> Tensor:
        """Return the projected output, [B, T, D]; queries attend where the mask is True."""
        k_BHSK = k_BGSK.repeat_interleave(self.num_repeats, 1)
        v_BHSK = v_BGSK.repeat_interleave(self.num_repeats, 1)
        attended = functional.scaled_dot_product_attention(q_BHTK, k_BHSK, v_BHSK, mask)
        return self.out(attended.transpose(1, 2).flatten(2))


class FeedForward(nn.Module):
    """Two linear layers with an activation function between them."""

    def __init__(self, config: NmtConfig) -> None:
        super().__init__()
        width_ratio = 2 if config.activation == "swiglu" else 1
        self.activation = ACTIVATIONS[config.activation]
        self.up = nn.Linear(config.dim, width_ratio * config.ffn_dim)
        self.down = nn.Linear(config.ffn_dim, config.dim)

    def forward(self, x: Tensor) -> Tensor:
        """Transform each position."""
        return self.down(self.activation(self.up(x)))


class Residual(nn.Module):
    """A residual connection, with its norm before or after the sublayer."""

    def __init__(self, config: NmtConfig) -> None:
        super().__init__()
        self.norm = NORMS[config.norm](config.dim)
        self.is_pre_norm = config.norm_position == "pre"

    def forward(self, x: Tensor, sublayer: Any) -> Tensor:
        """Add the output of the sublayer."""
        if self.is_pre_norm:
            return x + sublayer(self.norm(x))
        return self.norm(x + sublayer(x))


class Layer(nn.Module):
    """Self-attention, in the decoder cross-attention, then feed-forward."""

    def __init__(self, config: NmtConfig, *, is_decoder: bool) -> None:
        super().__init__()
        self.self_attention = Attention(config, is_cross=False)
        self.attention_residual = Residual(config)
        if is_decoder:
            self.cross_attention = Attention(config, is_cross=True)
            self.cross_attention_residual = Residual(config)
        self.feed_forward = FeedForward(config)
        self.ffn_residual = Residual(config)

    def forward(
        self,
        x_BTD: Tensor,
        mask: Tensor | None,
        angle_TX: Tensor | None,
        memory_BSD: Any = None,
        memory_mask: Tensor | None = None,
        cache: Any = None,
        index: int = 0,
    ) -> Tensor:
        """Run the layer on all source tokens, or on new target tokens; the cache has the earlier
        ones."""

        def attend(x: Tensor) -> Tensor:
            q, k, v = self.self_attention.project(x, angle_TX)
            if cache is not None:
                k, v = cache.self_attention_cache.update(k, v, index)
            return self.self_attention.attend(q, k, v, mask)

        def attend_to_source(x: Tensor) -> Tensor:
            attention = self.cross_attention
            q = attention.split_heads(attention.q(x))
            if cache is not None and cache.is_updated.get(index):
                cached = cache.cross_attention_cache.layers[index]
                return attention.attend(q, cached.keys, cached.values, memory_mask)
            k, v = attention.project_kv(memory_BSD)
            if cache is not None:
                k, v = cache.cross_attention_cache.update(k, v, index)
                cache.is_updated[index] = True
            return attention.attend(q, k, v, memory_mask)

        x_BTD = self.attention_residual(x_BTD, attend)
        if memory_BSD is not None:
            x_BTD = self.cross_attention_residual(x_BTD, attend_to_source)
        return self.ffn_residual(x_BTD, self.feed_forward)


class Layers(nn.ModuleList):
    """The layers of a stack."""

    main_input_name = "input_ids"  # which `generate` reads from an encoder


class NmtForSeq2SeqLM(PreTrainedModel, GenerationMixin):
    """An encoder-decoder Transformer with the variants of nmt."""

    config_class = NmtConfig
    _supports_sdpa = True

    def __init__(self, config: NmtConfig) -> None:
        super().__init__(config)
        tables = ("shared",) if config.tie_embeddings else ("source", "target", "output")
        table = torch.empty(config.vocab_size, config.dim)
        self.embeddings = nn.ParameterDict({name: table.clone() for name in tables})
        self.output_bias_V = None
        if config.output_bias:
            self.output_bias_V = nn.Parameter(torch.zeros(config.vocab_size))
        self.encoder = Layers()
        for _ in range(0, config.encoder_layers, config.layer_sharing):
            self.encoder.append(Layer(config, is_decoder=False))
        self.decoder = Layers()
        for _ in range(0, config.decoder_layers, config.layer_sharing):
            self.decoder.append(Layer(config, is_decoder=True))
        final = NORMS[config.norm] if config.norm_position == "pre" else nn.Identity
        self.encoder_norm = final(config.dim)
        self.decoder_norm = final(config.dim)
        self.post_init()

    def get_encoder(self, modality: str | None = None) -> NmtForSeq2SeqLM:
        """Return the model itself, which encodes if there are no `decoder_input_ids`."""
        return self

    def prepare_inputs_for_generation(
        self,
        input_ids: Tensor,
        cache: Any = None,
        past_key_values: Any = None,
        attention_mask: Any = None,
        encoder_outputs: Any = None,
        **_: Any,
    ) -> dict[str, Any]:
        """Return the arguments of `forward` in a search; releases of Transformers name the cache
        differently."""
        cache = past_key_values if cache is None else cache
        num_cached = 0 if cache is None else cache.get_seq_length()
        return {
            "attention_mask": attention_mask,
            "decoder_input_ids": input_ids[:, num_cached:],
            "encoder_outputs": encoder_outputs,
            "cache": cache,
        }

    def forward(
        self,
        input_ids: Any = None,
        attention_mask: Any = None,
        decoder_input_ids: Any = None,
        encoder_outputs: Any = None,
        cache: Any = None,
        **_: Any,
    ) -> BaseModelOutput | Seq2SeqLMOutput:
        """Return the logits [B, T, V] of new target tokens, or the encoder output without any."""
        if encoder_outputs is None:
            encoder_outputs = self.encode(input_ids, attention_mask)
        if decoder_input_ids is None:
            return encoder_outputs
        memory_BSD = encoder_outputs[0]
        memory_mask = padding_mask(attention_mask)
        num_cached = 0 if cache is None else cache.get_seq_length()
        x_BTD, angle_TX = self.embed("target", decoder_input_ids, num_cached)
        length = num_cached + x_BTD.shape[1]
        is_past = torch.ones(length, length, dtype=torch.bool, device=x_BTD.device).tril()
        mask = is_past[num_cached:]
        for i in range(self.config.decoder_layers):
            layer = self.decoder[i // self.config.layer_sharing]
            x_BTD = layer(x_BTD, mask, angle_TX, memory_BSD, memory_mask, cache, i)
        hidden_BTD = self.decoder_norm(x_BTD)
        logits_BTV = functional.linear(hidden_BTD, self.table("output"), self.output_bias_V)
        return Seq2SeqLMOutput(logits=logits_BTV, encoder_last_hidden_state=memory_BSD)

    def encode(self, input_ids: Tensor, attention_mask: Tensor | None) -> BaseModelOutput:
        """Return the output of the encoder, [B, S, D]."""
        x_BSD, angle_SX = self.embed("source", input_ids, 0)
        mask = padding_mask(attention_mask)
        for i in range(self.config.encoder_layers):
            layer = self.encoder[i // self.config.layer_sharing]
            x_BSD = layer(x_BSD, mask, angle_SX)
        return BaseModelOutput(last_hidden_state=self.encoder_norm(x_BSD))

    def table(self, role: str) -> Tensor:
        """Return the embedding matrix of the source or target, or that of the output layer."""
        return self.embeddings["shared" if self.config.tie_embeddings else role]

    def embed(self, role: str, ids_BT: Tensor, start: int) -> tuple[Tensor, Tensor | None]:
        """Return scaled embeddings with their positions, or the angles by which attention
        rotates."""
        config = self.config
        x_BTD = functional.embedding(ids_BT, self.table(role)) * math.sqrt(config.dim)
        length = ids_BT.shape[1]
        if config.position_encoding == "rotary":
            head_dim = config.dim // config.heads
            return x_BTD, angles(start, length, head_dim, config.rotary_base, x_BTD.device)
        angle_TX = angles(start, length, config.dim, 10_000.0, x_BTD.device)
        axis = 1 if config.position_encoding == "sinusoidal_concatenated" else 2
        sinusoid_TD = torch.stack((angle_TX.sin(), angle_TX.cos()), axis).flatten(1)
        return x_BTD + sinusoid_TD.type_as(x_BTD), None
