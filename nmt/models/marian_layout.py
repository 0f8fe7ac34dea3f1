"""The parts of a Marian model: their names in nmt and in Marian."""

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


_SELF_ATTENTION = {
    "self_attention.qkv": ["self_Wq", "self_Wk", "self_Wv"],
    "self_attention.out": ["self_Wo"],
}
_SSRU = {"ssru.candidate": ["rnn_W"], "ssru.gate": ["rnn_Wf"]}
_CROSS_ATTENTION = {
    "cross_attention.q": ["context_Wq"],
    "cross_attention.kv": ["context_Wk", "context_Wv"],
    "cross_attention.out": ["context_Wo"],
}
_FEED_FORWARD = {"feed_forward.up": ["ffn_W1"], "feed_forward.down": ["ffn_W2"]}
MATRICES = {
    "encoder": _SELF_ATTENTION | _FEED_FORWARD,
    "decoder": _SELF_ATTENTION | _CROSS_ATTENTION | _FEED_FORWARD,
    "ssru": _SSRU | _CROSS_ATTENTION | _FEED_FORWARD,
}
"""Matrices of a layer in nmt, and those of Marian that they concatenate. `ssru` is a layer of a
decoder without self-attention."""
WITHOUT_BIAS = "ssru.candidate"
_SELF_NORM = {"attention_residual.norm": "self_Wo_ln"}
_SSRU_NORM = {"attention_residual.norm": "rnn_ffn_ln"}
_CROSS_NORM = {"cross_attention_residual.norm": "context_Wo_ln"}
_FFN_NORM = {"ffn_residual.norm": "ffn_ffn_ln"}
NORMS = {
    "encoder": _SELF_NORM | _FFN_NORM,
    "decoder": _SELF_NORM | _CROSS_NORM | _FFN_NORM,
    "ssru": _SSRU_NORM | _CROSS_NORM | _FFN_NORM,
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
    for name, marian, kind in _layers(config):
        for part, letters in MATRICES[kind].items():
            weights = [f"{marian}_{each}" for each in letters]
            biases = []
            if part != WITHOUT_BIAS:
                biases = [weight.replace("_W", "_b") for weight in weights]
            yield Matrix(f"{name}.{part}", weights, biases)


def norms(config: ModelConfig) -> Iterator[tuple[str, str]]:
    """Yield the names of all norms in nmt and in Marian, without the suffixes of gain and bias."""
    for name, marian, kind in _layers(config):
        for part, marian_part in NORMS[kind].items():
            yield f"{name}.{part}", f"{marian}_{marian_part}"


def _layers(config: ModelConfig) -> Iterator[tuple[str, str, str]]:
    """Yield the name of each layer in nmt and in Marian, and its kind in the tables."""
    for i in range(config.encoder_layers):
        yield f"encoder.{i}", f"encoder_l{i + 1}", "encoder"
    kind = "ssru" if config.decoder == "ssru" else "decoder"
    for i in range(config.decoder_layers):
        yield f"decoder.{i}", f"decoder_l{i + 1}", kind
