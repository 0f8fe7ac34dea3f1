"""Networks. A model offers `encode`, `start`, `step`, `project` and `forward`; it knows nothing of text."""

from __future__ import annotations

from nmt.config import ModelConfig
from nmt.errors import ConfigError, suggest
from nmt.model.positions import POSITIONS
from nmt.model.transformer import Transformer

MODELS = {"transformer": Transformer}


def build(config: ModelConfig, vocabulary: int) -> Transformer:
    """Make the network that `config` describes, with fresh weights, for V = `vocabulary` pieces."""
    check(config)
    return MODELS[config.arch](config, vocabulary)


def check(config: ModelConfig) -> None:
    """Raise a ConfigError for an unknown architecture or positional encoding."""
    for path, name, table in (("arch", config.arch, MODELS), ("positions", config.positions, POSITIONS)):
        if name not in table:
            raise ConfigError(f"model.{path}: unknown value '{name}'", suggest(name, table))


def count_parameters(model: Transformer) -> int:
    """Count trained numbers, a shared matrix once."""
    return sum(p.numel() for p in model.parameters())
