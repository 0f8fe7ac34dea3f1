"""Networks. A model offers `encode`, `start`, `step`, `project` and `forward`; it knows nothing of text."""

from __future__ import annotations

import torch

from nmt.config import ModelConfig
from nmt.errors import ConfigError, suggest
from nmt.model.attention import ATTENTION_SCORES
from nmt.model.layers import ACTIVATIONS, NORMS
from nmt.model.positions import POSITIONS, Positions, Stack
from nmt.model.recurrent import Recurrent
from nmt.model.seq2seq import Seq2Seq
from nmt.model.transformer import Transformer
from nmt.registry import resolve
from nmt.runtime import is_out_of_memory

MODELS: dict[str, type[Seq2Seq]] = {"transformer": Transformer, "rnn": Recurrent}


def build_model(config: ModelConfig, vocabulary: int) -> Seq2Seq:
    """Make the network that `config` describes, with fresh weights, for V = `vocabulary` pieces.

    Raises:
        ConfigError: parts that there are not or that do not fit each other, or more than the memory holds.
    """
    try:
        check_model(config)
        return MODELS[config.arch](config, vocabulary)
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        raise ConfigError(
            "the model does not fit into memory", "set model.dim, model.ffn_dim or the layers lower"
        ) from None


def check_model(config: ModelConfig) -> None:
    """Raise a ConfigError for parts that there are not, or that do not fit each other."""
    for path, name, table in (
        ("arch", config.arch, MODELS),
        ("norm", config.norm, NORMS),
        ("activation", config.activation, ACTIVATIONS),
        ("attention_score", config.attention_score, ATTENTION_SCORES),
    ):
        if name not in table:
            raise ConfigError(f"model.{path}: unknown value '{name}'", suggest(name, table))
    if config.kv_heads and config.heads % config.kv_heads:
        raise ConfigError(f"model.heads ({config.heads}) must be a multiple of model.kv_heads ({config.kv_heads})")
    if _positions(config).rotates and config.attention_score == "additive":
        raise ConfigError("rotary positions turn a dot product", "take another encoding, or model.attention_score=dot")


def max_positions(config: ModelConfig) -> int | None:
    """Return the tokens, the end token counted, up to which a side may be long; None: there is no limit."""
    return _positions(config).most if config.arch == "transformer" else None


def _positions(config: ModelConfig) -> Positions:
    try:
        with torch.device("meta"):  # an encoding checks its options as it is made
            return resolve("positions", POSITIONS, config.position_encoding)(Stack(config.dim, config.heads, 1))
    except ConfigError as error:
        raise ConfigError(f"model.position_encoding: {error.message}", error.hint) from None


def count_parameters(model: Seq2Seq) -> int:
    """Count trained numbers, a shared matrix once."""
    return sum(p.numel() for p in model.parameters())
