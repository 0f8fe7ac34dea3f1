"""Options that each architecture uses, without PyTorch, which `nmt info` does not import."""

from __future__ import annotations

import dataclasses

from nmt.core.config import ModelConfig

MODEL_OPTIONS: dict[str, tuple[str, ...]] = {
    "transformer": tuple(field.name for field in dataclasses.fields(ModelConfig)),
    "rnn": (
        "arch",
        "dim",
        "encoder_layers",
        "decoder_layers",
        "dropout",
        "tie_embeddings",
        "output_bias",
        "source_eos",
    ),
}
"""Names of the fields of `ModelConfig` that matter to an architecture."""


def unused_options(config: ModelConfig) -> list[str]:
    """Return the options that differ from their defaults, and that the architecture does not
    use."""
    unused = []
    for name, value in vars(config).items():
        if name not in MODEL_OPTIONS[config.arch] and value != getattr(ModelConfig, name):
            unused.append(f"model.{name}")
    return unused
