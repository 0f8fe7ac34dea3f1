"""Source sentences to verify or calibrate an export with."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

from nmt.core.config import DataConfig
from nmt.core.errors import DataError
from nmt.data.pairs import read_lines
from nmt.data.sources import get_corpus
from nmt.runs.model_files import LoadedModel
from nmt.text.normalization import normalize, normalize_source
from nmt.translation.segments import Line, Segmenter

MAX_LINES = 100
"""Number of corpus lines to translate if the user names no file."""


def default_sentences(loaded: LoadedModel) -> tuple[str, list[str]]:
    """Return name and sentences of the model's test or validation set if it is on disk, else of the
    phrasebook: the first lines."""
    data = loaded.config.data
    candidates = [
        (data.test or data.train[0], "test"),
        (data.valid or data.train[0], "valid"),
        ("phrasebook", "test"),
    ]
    for spec, split in candidates:
        name, lines = _first_lines(spec, split, data)
        if sentences := _sentences(lines, loaded):
            return name, sentences
    raise DataError(
        "the model's test set is not on disk", "name a file of source sentences with --verify-with"
    )


def _first_lines(spec: str, split: str, data: DataConfig) -> tuple[str, list[str]]:
    corpus = get_corpus(spec)
    if not corpus.is_installed:
        return "", []
    try:
        opened = corpus.open(split, data.src, data.tgt)
        return opened.name, [source for source, _ in islice(opened.pairs(), MAX_LINES)]
    except DataError:  # the user's files were moved, or there is no such split or language
        return "", []


def file_sentences(file: Path, loaded: LoadedModel) -> tuple[str, list[str]]:
    """Return name and sentences of a file."""
    sentences = _sentences(list(read_lines(file)), loaded)
    if not sentences:
        raise DataError(f"{file} has no sentences", "give a file in the model's source language")
    return file.name, sentences


def _sentences(lines: list[str], loaded: LoadedModel) -> list[str]:
    """Return the lines as the model reads them, split where they exceed the limits of the model, as
    `nmt translate` splits them."""
    limits = loaded.max_source_length, loaded.max_sentences_per_line
    segmenter = Segmenter(loaded.tokenizer, loaded.config, *limits)
    texts = [text for line in lines if (text := normalize(line))]
    segments = (text[slice(*span)] for text in texts for span in segmenter.spans(Line(text)))
    return [
        normalize_source(text, lowercase_all_caps=loaded.config.lowercase_all_caps)
        for text in segments
    ]
