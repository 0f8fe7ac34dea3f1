"""Building and checking a network from its config."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from nmt.core.config import ModelConfig
from nmt.core.errors import ConfigError
from nmt.core.plugins import unknown_component
from nmt.core.registry import resolve
from nmt.core.runtime import out_of_memory_as
from nmt.model.attention import ATTENTION_SCORES
from nmt.model.layers import ACTIVATIONS, NORMS
from nmt.model.positions import POSITION_ENCODINGS, PositionEncoding, StackSpec
from nmt.model.recurrent import Recurrent
from nmt.model.seq2seq import Seq2Seq
from nmt.model.transformer import Transformer

DECODERS = dict.fromkeys(("attention", "ssru"))
MODELS: dict[str, type[Seq2Seq]] = {"transformer": Transformer, "rnn": Recurrent}


def build_model(config: ModelConfig, vocab_size: int) -> Seq2Seq:
    """Build the network that `config` describes, with freshly initialized weights.

    Raises:
        ConfigError: an option is unknown, options are incompatible, or the model does not fit into
            memory.
    """
    hint = "decrease model.dim, model.ffn_dim or the number of layers"
    with out_of_memory_as(ConfigError("the model does not fit into memory", hint)):
        check_model(config)
        return MODELS[config.arch](config, vocab_size)


def check_model(config: ModelConfig) -> None:
    """Raise a ConfigError if an option is unknown or options are incompatible."""
    tables: dict[str, Mapping[str, object]] = {
        "arch": MODELS,
        "decoder": DECODERS,
        "norm": NORMS,
        "activation": ACTIVATIONS,
        "attention_score": ATTENTION_SCORES,
    }
    for option, table in tables.items():
        name = getattr(config, option)
        if name not in table:
            raise unknown_component(f"model.{option}: unknown value '{name}'", name, table)
    if config.kv_heads and config.heads % config.kv_heads:
        raise ConfigError(
            f"model.heads ({config.heads}) must be a multiple of model.kv_heads ({config.kv_heads})"
        )
    if _position_encoding(config).rotates and config.attention_score == "additive":
        raise ConfigError(
            "model.position_encoding=rotary requires dot-product attention",
            "set model.attention_score=dot, or choose another position encoding",
        )


def check_shapes(config: ModelConfig, vocab_size: int, shapes: Mapping[str, Sequence[int]]) -> None:
    """Check the shapes of weights before a network for them is built, whose memory only its config
    limits.

    Raises:
        ConfigError: an option is unknown, or options are incompatible.
        ValueError: a weight is missing or unknown, or has another shape.
    """
    check_model(config)
    with torch.device("meta"):  # allocates no memory
        expected = MODELS[config.arch](config, vocab_size).state_dict()
    for name in sorted(expected.keys() ^ shapes.keys()):
        raise ValueError(f"{name} is {'missing' if name in expected else 'unknown'}")
    for name, weight in expected.items():
        actual, required = tuple(shapes[name]), tuple(weight.shape)
        if actual != required:
            raise ValueError(f"{name} has the shape {actual}, not {required}")


def max_positions(config: ModelConfig) -> int | None:
    """Return the maximum length of source and target in tokens, including the end token; None:
    unlimited."""
    if not MODELS[config.arch].has_positions:
        return None
    return _position_encoding(config).max_positions


def _position_encoding(config: ModelConfig) -> PositionEncoding:
    # Without positions, only the options are checked, with a width that every encoding accepts.
    dim = config.dim if MODELS[config.arch].has_positions else 2 * config.heads
    try:
        with torch.device("meta"):  # the constructor checks the options
            encoding = resolve("position encoding", POSITION_ENCODINGS, config.position_encoding)
            return encoding(StackSpec(dim, config.heads, 1))
    except ConfigError as error:
        raise ConfigError(f"model.position_encoding: {error.message}", error.hint) from None


def count_parameters(model: Seq2Seq) -> int:
    """Count trainable parameters; shared ones count once."""
    return sum(p.numel() for p in model.parameters())
