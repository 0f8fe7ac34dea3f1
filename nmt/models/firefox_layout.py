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


@dataclass(frozen=True)
class Matrix:
    """A matrix of nmt, which may concatenate several of Marian, with its bias."""

    name: str
    weights: list[str]
    biases: list[str]
    """As many as weights, or none."""


def matrices(config: ModelConfig) -> Iterator[Matrix]:
    """Yield all matrices of encoder and decoder."""
    for i in range(config.encoder_layers):
        layer = f"encoder.{i}"
        marian = f"encoder_l{i + 1}"
        parts = {"qkv": "qkv"}
        yield from _attention(f"{layer}.self_attention", parts, f"{marian}_self")
        yield from _feed_forward(f"{layer}.feed_forward", f"{marian}_ffn")
    for i in range(config.decoder_layers):
        layer = f"decoder.{i}"
        marian = f"decoder_l{i + 1}"
        candidate = f"{marian}_rnn_W"
        yield Matrix(f"{layer}.ssru.candidate", [candidate], [])
        gate = f"{marian}_rnn_Wf"
        gate_bias = f"{marian}_rnn_bf"
        yield Matrix(f"{layer}.ssru.gate", [gate], [gate_bias])
        parts = {"q": "q", "kv": "kv"}
        yield from _attention(f"{layer}.cross_attention", parts, f"{marian}_context")
        yield from _feed_forward(f"{layer}.feed_forward", f"{marian}_ffn")


def _attention(name: str, parts: dict[str, str], marian: str) -> Iterator[Matrix]:
    all_parts = parts | {"out": "o"}
    for part, letters in all_parts.items():
        weights = []
        biases = []
        for letter in letters:
            weights.append(f"{marian}_W{letter}")
            biases.append(f"{marian}_b{letter}")
        yield Matrix(f"{name}.{part}", weights, biases)


def _feed_forward(name: str, marian: str) -> Iterator[Matrix]:
    for part, number in (("up", 1), ("down", 2)):
        weight = f"{marian}_W{number}"
        bias = f"{marian}_b{number}"
        yield Matrix(f"{name}.{part}", [weight], [bias])


def norms(config: ModelConfig) -> Iterator[tuple[str, str]]:
    """Yield the names of all norms in nmt and in Marian, without the suffixes of gain and bias."""
    for i in range(config.encoder_layers):
        layer = f"encoder.{i}"
        marian = f"encoder_l{i + 1}"
        yield f"{layer}.attention_residual.norm", f"{marian}_self_Wo_ln"
        yield f"{layer}.ffn_residual.norm", f"{marian}_ffn_ffn_ln"
    for i in range(config.decoder_layers):
        layer = f"decoder.{i}"
        marian = f"decoder_l{i + 1}"
        yield f"{layer}.attention_residual.norm", f"{marian}_rnn_ffn_ln"
        yield f"{layer}.cross_attention_residual.norm", f"{marian}_context_Wo_ln"
        yield f"{layer}.ffn_residual.norm", f"{marian}_ffn_ffn_ln"
