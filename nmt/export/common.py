"""Shared parts of all exports: checks, the files next to a model, and engines for verification."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import cast

import numpy as np

from nmt.core.config import ModelConfig
from nmt.core.errors import UsageError
from nmt.core.registry import parse
from nmt.engines import Source, max_target_length
from nmt.engines.ctranslate2 import LENGTH_MULTIPLE
from nmt.model.transformer import Transformer
from nmt.runs.model_files import LoadedModel
from nmt.search import SearchRequest, StepModel, parse_search
from nmt.search.shortlist import Shortlist
from nmt.text.tokenizer import BOS, EOS, Tokenizer, encoder_input
from nmt.text.tokenizers import tokenizer_file
from nmt.translation.chunking import chunked

Translate = Callable[[Sequence[str]], list[str]]
"""Translates normalized sentences of at most the model's maximum length. All engines use greedy
search on the CPU in float32 with the length limits of `nmt translate`, so their translations of the
same model should be identical."""

CHECKED_OPTIONS = (
    "arch",
    "decoder",
    "norm",
    "activation",
    "position_encoding",
    "attention_score",
    "attention_window",
    "kv_heads",
    "norm_epsilon",
    "source_eos",
    "target_bos",
)
BATCH_SIZE = 64
"""Number of sentences that an engine translates together."""


def require_transformer(
    loaded: LoadedModel, engine: str, supported: Mapping[str, Collection[object]]
) -> Transformer:
    """Return the model if the engine supports it.

    Args:
        loaded: the model.
        engine: name of the engine, for the error message.
        supported: values that the engine supports for options of `ModelConfig`; an empty collection
            means all. Of the other options that are checked here, it supports only the defaults,
            which are those of Vaswani et al. 2017. Every export supports all values of the
            remaining options.

    Raises:
        UsageError: the engine does not support the model.
    """
    config = loaded.config.model
    if name := unsupported_option(config, supported):
        raise UsageError(
            f"{engine} does not support model.{name}={getattr(config, name)}",
            "--to safetensors supports every model",
        )
    return cast(Transformer, loaded.model)


def unsupported_option(config: ModelConfig, supported: Mapping[str, Collection[object]]) -> str:
    """Return the first option with a value that an engine does not support; empty: there is none.
    `supported` is that of `require_transformer`."""
    for name in CHECKED_OPTIONS:
        value = getattr(config, name)
        values = supported.get(name, (getattr(ModelConfig, name),))
        if name == "kv_heads":
            values = (*values, config.heads) if values else ()
        kind = parse(value)[0] if isinstance(value, str) else value
        if values and kind not in values:
            return name
    return ""


def copy_run_files(loaded: LoadedModel, directory: Path) -> None:
    """Copy config, tokenizer and data statistics of the run to the directory of an export."""
    for file in run_files(loaded):
        shutil.copyfile(file, directory / file.name)


def run_files(loaded: LoadedModel) -> list[Path]:
    """Return the files of a run, other than its weights, that an engine may need."""
    return [loaded.run / "config.yaml", tokenizer_file(loaded.run), loaded.run / "data.json"]


def num_positions(loaded: LoadedModel) -> int:
    """Return the number of positions to export: enough for the longest translation of every
    engine."""
    return max(1024, max_target_length(loaded.max_source_length) + 2 + LENGTH_MULTIPLE)


def translate_in_batches(
    sentences: Sequence[str], translate: Callable[[list[str]], list[str]]
) -> list[str]:
    """Translate in batches of sentences of similar length; return the translations in the order of
    the sentences."""
    order = sorted(range(len(sentences)), key=lambda i: len(sentences[i]))
    translations: dict[int, str] = {}
    for batch in chunked(order, BATCH_SIZE):
        texts = translate([sentences[i] for i in batch])
        translations.update(zip(batch, texts, strict=True))
    return [translations[i] for i in range(len(sentences))]


def greedy_translator(
    model: StepModel,
    tokenizer: Tokenizer,
    max_positions: int | None = None,
    *,
    source_eos: bool = True,
    shortlist: Shortlist | None = None,
    output_limit: Callable[[Source], int] = lambda source: source.max_output_length,
) -> Translate:
    """Return a function that translates with a model and the greedy search of nmt.

    Args:
        model: the model.
        tokenizer: its tokenizer.
        max_positions: maximum number of tokens of a translation, including the start token; None:
            unlimited.
        source_eos: whether sources have an end token.
        shortlist: the shortlist of the model, if it has one.
        output_limit: returns the maximum number of tokens of a translation, without the end token,
            given the source.
    """
    greedy = parse_search("greedy")

    def translate(batch: list[str]) -> list[str]:
        sources = [tokenizer.encode(text) for text in batch]
        max_length_B = np.array([output_limit(Source(ids)) for ids in sources])
        if max_positions:
            max_length_B = max_length_B.clip(max=max_positions - 1)
        inputs = [encoder_input(ids, source_eos) for ids in sources]
        request = SearchRequest(inputs, max_length_B, BOS, EOS, shortlist=shortlist)
        hypotheses = greedy(model, request)
        return [tokenizer.decode(n_best[0].ids) for n_best in hypotheses]

    return lambda sentences: translate_in_batches(sentences, translate)
