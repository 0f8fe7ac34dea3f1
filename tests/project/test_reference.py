"""The Transformer compared with `torch.nn.TransformerEncoder` and `TransformerDecoder` with the
same weights.

Everything runs in float64, so that the tolerance is tight. The tests also document what the model
computes.
"""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch
from test_model import PAIRS, TINY, VOCABULARY
from torch import Tensor, nn

from nmt.core.config import ModelConfig
from nmt.data.batching import collate
from nmt.model.build import build_model
from nmt.model.transformer import Transformer

ENCODER_LAYER = {  # PyTorch's name: ours; a fused matrix stacks W_q, W_k and W_v
    "self_attn.in_proj_": ["self_attention.qkv."],
    "self_attn.out_proj.": ["self_attention.out."],
    "norm1.": ["attention_residual.norm."],
    "linear1.": ["feed_forward.up."],
    "linear2.": ["feed_forward.down."],
    "norm2.": ["ffn_residual.norm."],
}
DECODER_LAYER = ENCODER_LAYER | {
    "multihead_attn.in_proj_": ["cross_attention.q.", "cross_attention.kv."],
    "multihead_attn.out_proj.": ["cross_attention.out."],
    "norm2.": ["cross_attention_residual.norm."],
    "norm3.": ["ffn_residual.norm."],
}


def copy_weights(theirs: nn.Module, ours: nn.Module, names: dict[str, list[str]]) -> None:
    """Copy the weights and biases of `ours` to `theirs`."""
    state = ours.state_dict()
    theirs.load_state_dict(
        {
            their_name + kind: torch.cat([state[our_name + kind] for our_name in our_names])
            for their_name, our_names in names.items()
            for kind in ("weight", "bias")
        }
    )


def torch_stacks(model: Transformer) -> tuple[nn.TransformerEncoder, nn.TransformerDecoder]:
    """Return PyTorch's encoder and decoder with the weights of `model`."""
    config = model.config
    pre = config.norm_position == "pre"
    # d_model, nhead, dim_feedforward, dropout, activation
    layer = (config.dim, config.heads, config.ffn_dim, 0.0, config.activation)
    encoder = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(*layer, batch_first=True, norm_first=pre),
        config.encoder_layers,
        norm=nn.LayerNorm(config.dim) if pre else None,
        enable_nested_tensor=False,
    ).double()
    decoder = nn.TransformerDecoder(
        nn.TransformerDecoderLayer(*layer, batch_first=True, norm_first=pre),
        config.decoder_layers,
        norm=nn.LayerNorm(config.dim) if pre else None,
    ).double()
    for theirs, ours in zip(encoder.layers, model.encoder, strict=True):
        copy_weights(theirs, ours, ENCODER_LAYER)
    for theirs, ours in zip(decoder.layers, model.decoder, strict=True):
        copy_weights(theirs, ours, DECODER_LAYER)
    if encoder.norm is not None and decoder.norm is not None:
        encoder.norm.load_state_dict(model.encoder_norm.state_dict())
        decoder.norm.load_state_dict(model.decoder_norm.state_dict())
    return encoder, decoder


def sinusoids(length: int, dim: int) -> Tensor:
    """PE(p, 2i) = sin(p / 10000^(2i/d)), PE(p, 2i+1) = cos(p / 10000^(2i/d)); Vaswani et al. 2017,
    section 3.5."""
    table_TD = torch.empty(length, dim, dtype=torch.float64)
    for p in range(length):
        for i in range(dim // 2):
            angle = p / 10_000 ** (2 * i / dim)
            table_TD[p, 2 * i], table_TD[p, 2 * i + 1] = math.sin(angle), math.cos(angle)
    return table_TD.float().double()  # the model stores its table in float32


def random_model(config: ModelConfig) -> Transformer:
    """Return a model in float64 in which no bias is zero and no norm is the identity."""
    torch.manual_seed(0)
    model = build_model(config, VOCABULARY).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.2 * torch.randn_like(parameter)
    return model


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("norm", ["post", "pre"])
def test_transformer_equals_torch_nn(norm: str, activation: str, tied: bool) -> None:
    config = dataclasses.replace(
        TINY, norm_position=norm, activation=activation, tie_embeddings=tied, decoder_layers=3
    )
    model = random_model(config)
    encoder, decoder = torch_stacks(model)
    source_VD, target_VD, output_VD = (
        model.embeddings["shared" if tied else name] for name in ("source", "target", "output")
    )

    def embed(ids_BT: Tensor, table_VD: Tensor) -> Tensor:
        return math.sqrt(config.dim) * table_VD[ids_BT] + sinusoids(ids_BT.shape[1], config.dim)

    batch = collate(PAIRS)
    tokens = batch.tgt_in_BT.shape[1]
    padding_BS = ~batch.src_mask_BS  # in PyTorch's masks, True = masked
    causal_TT = torch.ones(tokens, tokens, dtype=torch.bool).triu(1)
    memory_BSD = encoder(embed(batch.src_BS, source_VD), src_key_padding_mask=padding_BS)
    hidden_BTD = decoder(
        embed(batch.tgt_in_BT, target_VD),
        memory_BSD,
        tgt_mask=causal_TT,
        memory_key_padding_mask=padding_BS,
    )
    logits_NV = (hidden_BTD @ output_VD.t()).flatten(0, 1)[batch.target_index_N]

    actual_BSD = model.encode(batch.src_BS, batch.src_mask_BS)
    actual_NV = model.logits(
        model(batch.src_BS, batch.src_mask_BS, batch.tgt_in_BT, batch.target_index_N)
    )
    torch.testing.assert_close(actual_BSD, memory_BSD, atol=1e-10, rtol=1e-10)
    torch.testing.assert_close(actual_NV, logits_NV, atol=1e-10, rtol=1e-10)
