"""Building and checking a network from its config."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress

import torch
from torch import Tensor

from nmt.core.config import ModelConfig
from nmt.core.errors import ConfigError
from nmt.core.plugins import unknown_component, wrong_result
from nmt.core.registry import parse, resolve
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
    if MODELS[config.arch].has_positions:
        stack = StackSpec(config.dim, config.heads, 1)
        # The initial weights of a model depend on the random state.
        with torch.random.fork_rng(devices=()), torch.no_grad():
            for start in (0, 2):  # in training, and in a search
                _check_attention_score(config.attention_score, stack, start)
                _check_position_encoding(config.position_encoding, stack, start)


def _check_attention_score(name: str, stack: StackSpec, start: int) -> None:
    """Check the shape of what an attention score of a plug-in returns for three keys, and queries
    from position `start` on."""
    if not ATTENTION_SCORES.is_of_plugin(name):
        return
    make_score = ATTENTION_SCORES.checked(name, ATTENTION_SCORES[name])
    score = make_score(stack.heads, stack.head_dim)
    q_BHQK, k_BHSK, scores_BHQS = _attention_tensors(stack, start)
    _check_shape(f"the attention score '{name}'", score(q_BHQK, k_BHSK), scores_BHQS)


def _check_position_encoding(spec: str, stack: StackSpec, start: int) -> None:
    """Check the shapes of what a position encoding of a plug-in returns, likewise."""
    name = parse(spec)[0]
    if not POSITION_ENCODINGS.is_of_plugin(name):
        return
    encoding = resolve("position encoding", POSITION_ENCODINGS, spec)(stack)
    q_BHQK, k_BHSK, scores_BHQS = _attention_tensors(stack, start)
    x_BTD = torch.zeros(1, 3 - start, stack.dim)
    hooks: list[tuple[str, Tensor | None, Tensor]] = [
        ("add_positions", encoding.add_positions(x_BTD, 0, start), x_BTD),
        ("rotate", encoding.rotate(q_BHQK.transpose(1, 2), start), q_BHQK.transpose(1, 2)),
        ("attention_bias", encoding.attention_bias(q_BHQK, k_BHSK, 0, start), scores_BHQS),
        ("value_bias", encoding.value_bias(scores_BHQS, 0, start), q_BHQK),
    ]
    for hook, result, like in hooks:
        if getattr(type(encoding), hook) is not getattr(PositionEncoding, hook):
            _check_shape(f"{hook} of the position encoding '{name}'", result, like)


def _attention_tensors(stack: StackSpec, start: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return three keys, the queries from position `start` on, and their scores."""
    k_BHSK = torch.zeros(1, stack.heads, 3, stack.head_dim)
    q_BHQK = k_BHSK[:, :, start:]
    return q_BHQK, k_BHSK, q_BHQK @ k_BHSK.transpose(-1, -2)


def _check_shape(component: str, result: object, like: Tensor) -> None:
    """Check that a component has returned a tensor of the shape of another one, which may repeat
    the values of an axis."""
    if isinstance(result, Tensor):
        with suppress(RuntimeError):
            if torch.broadcast_shapes(result.shape, like.shape) == like.shape:
                return
    raise wrong_result(component, result, f"a tensor of shape {list(like.shape)}")


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
