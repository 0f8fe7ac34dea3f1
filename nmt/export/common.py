"""What exports have in common: the files beside a model, and the shape of an engine that translates with one."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import cast

import numpy as np

from nmt.config import ModelConfig
from nmt.data.tokenizer import BOS, EOS, Tokenizer
from nmt.errors import UsageError
from nmt.model.transformer import Transformer
from nmt.runs.discovery import LoadedModel
from nmt.search import SearchRequest, StepModel, search

Engine = Callable[[Sequence[str]], list[str]]
"""Translates normalized sentences that the model is long enough for: greedily, on the CPU, in float32, within the
length that `nmt translate` allows. So the same model says the same in every engine."""

BATCH = 64
"""Sentences that an engine translates together."""
RUN_FILES = ("config.yaml", "spm.model", "data.json")
"""What a run holds besides its weights, and an engine may need."""


def transformer(loaded: LoadedModel, engine: str, but: Sequence[str] = ()) -> Transformer:
    """Return the model, if it is a Transformer as the paper has it; another engine may know no other.

    Args:
        loaded: the model.
        engine: what it is for, for the message.
        but: options of `ModelConfig` that may have any value.

    Raises:
        UsageError: it is another one.
    """
    config = loaded.config.model
    for name in ("arch", "norm", "activation", "position_encoding", "attention_score", "attention_window", "kv_heads"):
        value = getattr(config, name)
        usual = (
            getattr(ModelConfig, name),
            f"{getattr(ModelConfig, name)}()",
            config.heads if name == "kv_heads" else None,
        )
        if name not in but and value not in usual:
            raise UsageError(
                f"{engine} has no model with {name} {value}", "--to safetensors writes any, for nmt translate"
            )
    return cast(Transformer, loaded.model)


def copy_run_files(loaded: LoadedModel, folder: Path) -> None:
    """Put the run's configuration, tokenizer and facts of its data beside a model."""
    for name in RUN_FILES:
        shutil.copyfile(loaded.run / name, folder / name)


def missing(name: str, package: str) -> UsageError:
    """Return the error for a package that is not installed."""
    return UsageError(f"{name} is not installed", f"pip install {package}")


def most_tokens(source: int) -> int:
    """Return the most tokens of a translation, the end not counted, as `nmt.translate` allows them for `source`."""
    return 2 * (source + 1) + 10


def positions(loaded: LoadedModel) -> int:
    """Return how many positions a model is written out with: for the longest translation and some more."""
    return max(1024, most_tokens(loaded.max_source) + 2)


def in_batches(sentences: Sequence[str], translate: Callable[[list[str]], list[str]]) -> list[str]:
    """Translate sentences of similar length together and return the translations in the order of the sentences."""
    order = sorted(range(len(sentences)), key=lambda i: len(sentences[i]))
    found = [""] * len(sentences)
    for start in range(0, len(order), BATCH):
        numbers = order[start : start + BATCH]
        for i, text in zip(numbers, translate([sentences[i] for i in numbers]), strict=True):
            found[i] = text
    return found


def searching(model: StepModel, tokenizer: Tokenizer, positions: int | None = None) -> Engine:
    """Return an engine that is nmt's own greedy search over any model that can be searched.

    Args:
        model: the model.
        tokenizer: its tokenizer.
        positions: how many tokens it can write, the start counted; None: as many as one likes.
    """
    find = search("greedy")

    def translate(batch: list[str]) -> list[str]:
        sources = [tokenizer.encode(text) for text in batch]
        max_length_B = np.array([most_tokens(len(ids)) for ids in sources]).clip(max=(positions or 2**31) - 1)
        found = find(model, SearchRequest([[*ids, EOS] for ids in sources], max_length_B, BOS, EOS))
        return [tokenizer.decode(hypotheses[0].ids) for hypotheses in found]

    return lambda sentences: in_batches(sentences, translate)
