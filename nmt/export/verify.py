"""Writing a model for another engine, and the proof that it is the same model there.

Sentences are translated by nmt and by the engine, both greedily, on the CPU, in float32 and within the same length, so
that every translation should be identical; only where two tokens are as good as equally probable may rounding decide.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from safetensors import SafetensorError

from nmt.config import DataConfig
from nmt.data.normalization import normalize, normalize_case
from nmt.data.pairs import read_lines
from nmt.data.segmentation import count_sentences, split_to_fit
from nmt.data.sources import get_corpus
from nmt.data.tokenizer import Tokenizer
from nmt.errors import DataError, NMTError, UsageError
from nmt.evaluate.metrics import bleu
from nmt.export import ENGINES, EXPORTS
from nmt.export.common import RUN_FILES
from nmt.inference.translator import Translator
from nmt.paths import new_directory
from nmt.registry import parse, resolve
from nmt.runs import discovery, pretrained
from nmt.runs.checkpoint import META, WEIGHTS
from nmt.runs.discovery import LoadedModel

LINES = 100
"""Lines of a corpus that are translated where the user names no text."""


@dataclass(frozen=True)
class Side:
    """What one of the two engines did."""

    translations: list[str]
    seconds: float
    size: int
    """Bytes on disk."""


@dataclass(frozen=True)
class Verification:
    """The same sentences translated by nmt and by another engine."""

    folder: Path
    """Where the model was written to."""
    probe: str
    """Where the sentences come from."""
    sources: list[str]
    ours: Side
    theirs: Side
    tokenizer: Tokenizer

    @property
    def identical(self) -> int:
        """Sentences with the same translation."""
        return sum(a == b for a, b in zip(self.ours.translations, self.theirs.translations, strict=True))

    @property
    def share(self) -> float:
        """Share of sentences with the same translation."""
        return self.identical / len(self.sources)

    @property
    def bleu(self) -> float:
        """BLEU of the engine's translations against nmt's."""
        return bleu(self.theirs.translations, [self.ours.translations]).value

    def speed(self, side: Side) -> float:
        """Target tokens per second, end tokens not counted."""
        return sum(map(len, self.tokenizer.encode_batch(side.translations))) / side.seconds

    def first_difference(self) -> str:
        """Return the first sentence that is translated differently, with both translations; empty: there is none."""
        for source, a, b in zip(self.sources, self.ours.translations, self.theirs.translations, strict=True):
            if a != b:
                return f"'{source}' is '{a}' in nmt, and '{b}' there"
        return ""


def export(
    path: Path, to: str, folder: Path | None = None, probe: Path | None = None, least: float = 0.99
) -> Verification:
    """Write a model for another engine and prove it; the folder appears only if the proof succeeds.

    Args:
        path: a run or one of its checkpoints.
        to: spec string of a format out of `EXPORTS`.
        folder: where to; must not stand yet. None: the run's folder that is named after the format.
        probe: text with source sentences; None takes what `_own_probe` finds.
        least: share of identical translations below which the export is refused.

    Raises:
        ConfigError: unknown format or option.
        UsageError: `least` is no share, the folder stands already, or a package is not installed.
        CheckpointError: there is no model.
        DataError: the probe cannot be read or holds no text.
        NMTError: the translations differ too much.
    """
    write = resolve("format", EXPORTS, to)
    if not 0 <= least <= 1:
        raise UsageError(f"--min-agreement must be between 0 and 1, got {least}", "0.99 is the default")
    folder = folder or pretrained.output_dir(discovery.resolve_model(path)[0]) / parse(to)[0]
    if folder.exists():
        raise UsageError(f"{folder} stands already", "name another folder with --output, or remove it")
    loaded = discovery.load(path)
    name, sources = _file_probe(probe, loaded) if probe else _own_probe(loaded)
    with new_directory(folder) as work:
        _write(lambda: write(loaded, work), folder)
        ours, theirs = _nmt(path, loaded, sources), _timed(ENGINES[parse(to)[0]](work), sources, _size(work))
        proof = Verification(folder, name, sources, ours, theirs, loaded.tokenizer)
        if proof.share < least:
            raise NMTError(
                f"{to} translates {proof.identical} of {len(sources)} sentences as nmt does, not {least:.1%}",
                f"nothing was kept; {proof.first_difference()}",
            )
    return proof


def _write(write: Callable[[], object], folder: Path) -> None:
    """Write an export; the libraries that do it have their own ways to say that the disk is full."""
    try:
        write()
    except (OSError, SafetensorError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise NMTError(f"cannot write {folder}: {reason}", "is there room on that disk?") from None


def _nmt(path: Path, loaded: LoadedModel, sources: list[str]) -> Side:
    translator = Translator.load(path, "cpu", "fp32")
    files = (*(loaded.run / file for file in RUN_FILES), loaded.checkpoint / WEIGHTS, loaded.checkpoint / META)

    def translate(sentences: Sequence[str]) -> list[str]:
        return translator.translate(sentences, "greedy")

    return _timed(translate, sources, sum(file.stat().st_size for file in files))


def _timed(translate: Callable[[Sequence[str]], list[str]], sources: list[str], size: int) -> Side:
    translate(sources[:4])  # what is made at the first use is no part of the speed
    start = time.perf_counter()
    translations = translate(sources)
    return Side(translations, time.perf_counter() - start, size)


def _size(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def _own_probe(loaded: LoadedModel) -> tuple[str, list[str]]:
    """Return the beginning of the model's test or validation text, where it is on disk, else of the phrasebook."""
    data = loaded.config.data
    tried = [(data.test or data.train[0], "test"), (data.valid or data.train[0], "valid"), ("phrasebook", "test")]
    for spec, split in tried:
        name, lines = _beginning(spec, split, data)
        if sentences := _sentences(lines, loaded):
            return name, sentences
    raise DataError("the model's test text is not on disk", "name a text in its source language with --verify-with")


def _beginning(spec: str, split: str, data: DataConfig) -> tuple[str, list[str]]:
    corpus = get_corpus(spec)
    if not corpus.is_installed:
        return "", []
    try:
        text = corpus.open(split, data.src, data.tgt)
        return text.name, [source for source, _ in islice(text.pairs(), LINES)]
    except DataError:  # the user's files were moved, or it has no such split or language
        return "", []


def _file_probe(file: Path, loaded: LoadedModel) -> tuple[str, list[str]]:
    sentences = _sentences(list(read_lines(file)), loaded)
    if not sentences:
        raise DataError(f"{file} holds no text", "give a text in the model's source language")
    return file.name, sentences


def _sentences(lines: list[str], loaded: LoadedModel) -> list[str]:
    """Return what the lines hold as the model reads it, and cut where it is longer than the model was trained for."""

    def read(text: str) -> str:
        return normalize_case(text, lowercase_all_caps=loaded.config.lowercase_all_caps)

    def fits(text: str) -> bool:
        few = count_sentences(text, loaded.config.data.src) <= loaded.max_sentences
        return few and len(loaded.tokenizer.encode(read(text))) <= loaded.max_source

    texts = [text for line in lines if (text := normalize(line))]
    return [read(text[slice(*span)]) for text in texts for span in split_to_fit(text, loaded.config.data.src, fits)]
