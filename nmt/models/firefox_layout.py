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
        marian = f"encoder_l{i + 1}"
        yield from _attention(f"encoder.{i}.self_attention", {"qkv": "qkv"}, f"{marian}_self")
        yield from _feed_forward(f"encoder.{i}.feed_forward", f"{marian}_ffn")
    for i in range(config.decoder_layers):
        marian = f"decoder_l{i + 1}"
        yield Matrix(f"decoder.{i}.ssru.candidate", [f"{marian}_rnn_W"], [])
        yield Matrix(f"decoder.{i}.ssru.gate", [f"{marian}_rnn_Wf"], [f"{marian}_rnn_bf"])
        parts = {"q": "q", "kv": "kv"}
        yield from _attention(f"decoder.{i}.cross_attention", parts, f"{marian}_context")
        yield from _feed_forward(f"decoder.{i}.feed_forward", f"{marian}_ffn")


def _attention(name: str, parts: dict[str, str], marian: str) -> Iterator[Matrix]:
    for part, letters in (parts | {"out": "o"}).items():
        weights = [f"{marian}_W{letter}" for letter in letters]
        biases = [f"{marian}_b{letter}" for letter in letters]
        yield Matrix(f"{name}.{part}", weights, biases)


def _feed_forward(name: str, marian: str) -> Iterator[Matrix]:
    for part, number in (("up", 1), ("down", 2)):
        yield Matrix(f"{name}.{part}", [f"{marian}_W{number}"], [f"{marian}_b{number}"])


def norms(config: ModelConfig) -> Iterator[tuple[str, str]]:
    """Yield the names of all norms in nmt and in Marian, without the suffixes of gain and bias."""
    for i in range(config.encoder_layers):
        yield f"encoder.{i}.attention_residual.norm", f"encoder_l{i + 1}_self_Wo_ln"
        yield f"encoder.{i}.ffn_residual.norm", f"encoder_l{i + 1}_ffn_ffn_ln"
    for i in range(config.decoder_layers):
        yield f"decoder.{i}.attention_residual.norm", f"decoder_l{i + 1}_rnn_ffn_ln"
        yield f"decoder.{i}.cross_attention_residual.norm", f"decoder_l{i + 1}_context_Wo_ln"
        yield f"decoder.{i}.ffn_residual.norm", f"decoder_l{i + 1}_ffn_ffn_ln"
