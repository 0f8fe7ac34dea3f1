"""The parts of a translation model of Firefox: their names in nmt and in Marian."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from nmt.core.config import ModelConfig

EMBEDDINGS = "Wemb"
OUTPUT_BIAS = "decoder_ff_logit_out_b"
MULTIPLIER = "_QuantMultA"
"""Suffix of a matrix's name for the multiplier of its input."""
OUTPUT_MULTIPLIER = f"none{MULTIPLIER}"
"""Multiplier of the input of the output layer, if source and target share the embeddings."""
MAX_PAIR = 128
"""Largest sum of two adjacent weights before they are rounded. On processors without VNNI
instructions, Firefox adds the products of two weights and activations from 0 to 254 in 16 bits:
254 * 129 is the largest product that does not saturate."""


_FEED_FORWARD = {"feed_forward.up": ["ffn_W1"], "feed_forward.down": ["ffn_W2"]}
MATRICES = {
    "encoder": {
        "self_attention.qkv": ["self_Wq", "self_Wk", "self_Wv"],
        "self_attention.out": ["self_Wo"],
    }
    | _FEED_FORWARD,
    "decoder": {
        "ssru.candidate": ["rnn_W"],
        "ssru.gate": ["rnn_Wf"],
        "cross_attention.q": ["context_Wq"],
        "cross_attention.kv": ["context_Wk", "context_Wv"],
        "cross_attention.out": ["context_Wo"],
    }
    | _FEED_FORWARD,
}
"""Matrices of a layer in nmt, and those of Marian that they concatenate."""
WITHOUT_BIAS = "ssru.candidate"
NORMS = {
    "encoder": {
        "attention_residual.norm": "self_Wo_ln",
        "ffn_residual.norm": "ffn_ffn_ln",
    },
    "decoder": {
        "attention_residual.norm": "rnn_ffn_ln",
        "cross_attention_residual.norm": "context_Wo_ln",
        "ffn_residual.norm": "ffn_ffn_ln",
    },
}
"""Norms of a layer in nmt and in Marian, without the suffixes of gain and bias."""


@dataclass(frozen=True)
class Matrix:
    """A matrix of nmt, which may concatenate several of Marian, with its bias."""

    name: str
    weights: list[str]
    biases: list[str]
    """As many as weights, or none."""


def matrices(config: ModelConfig) -> Iterator[Matrix]:
    """Yield all matrices of encoder and decoder."""
    for name, marian, stack in _layers(config):
        for part, letters in MATRICES[stack].items():
            weights = [f"{marian}_{each}" for each in letters]
            biases = []
            if part != WITHOUT_BIAS:
                biases = [weight.replace("_W", "_b") for weight in weights]
            yield Matrix(f"{name}.{part}", weights, biases)


def norms(config: ModelConfig) -> Iterator[tuple[str, str]]:
    """Yield the names of all norms in nmt and in Marian, without the suffixes of gain and bias."""
    for name, marian, stack in _layers(config):
        for part, marian_part in NORMS[stack].items():
            yield f"{name}.{part}", f"{marian}_{marian_part}"


def _layers(config: ModelConfig) -> Iterator[tuple[str, str, str]]:
    """Yield the name of each layer in nmt and in Marian, and that of its stack."""
    numbers = {"encoder": config.encoder_layers, "decoder": config.decoder_layers}
    for stack, num_layers in numbers.items():
        for i in range(num_layers):
            yield f"{stack}.{i}", f"{stack}_l{i + 1}", stack
