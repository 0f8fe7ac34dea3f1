"""Export a model and verify that it reproduces the translations.

nmt and the other engine translate the same sentences with greedy search, on the CPU, in float32 and
with the same length limits, so every translation should be identical. Rounding may decide between
tokens of nearly equal probability.
"""

from __future__ import annotations

import operator
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from safetensors import SafetensorError

from nmt.core.console import log
from nmt.core.errors import NMTError, UsageError
from nmt.core.paths import new_directory
from nmt.core.registry import parse, resolve
from nmt.evaluate.metrics import bleu
from nmt.export import EXPORTS, LOADERS, REFERENCES, Translate
from nmt.export.common import run_files
from nmt.export.sentences import default_sentences, file_sentences
from nmt.models import discovery
from nmt.runs import pretrained
from nmt.runs.checkpoint import META, WEIGHTS
from nmt.runs.model_files import LoadedModel
from nmt.text.tokenizer import Tokenizer
from nmt.translation.translator import Translator


@dataclass(frozen=True)
class EngineResult:
    """The translations of one engine, their duration, and the size of the model on disk."""

    translations: list[str]
    seconds: float
    num_bytes: int


@dataclass(frozen=True)
class Verification:
    """The translations of the same sentences by nmt and by the exported model."""

    directory: Path
    """Directory of the export."""
    source_name: str
    """File or corpus that the sentences come from."""
    sources: list[str]
    nmt: EngineResult
    exported: EngineResult
    tokenizer: Tokenizer

    @property
    def num_identical(self) -> int:
        """Number of identical translations."""
        return sum(map(operator.eq, self.nmt.translations, self.exported.translations))

    @property
    def agreement(self) -> float:
        """Share of identical translations."""
        return self.num_identical / len(self.sources)

    @property
    def bleu(self) -> float:
        """BLEU of the exported model's translations against those of nmt."""
        return bleu(self.exported.translations, [self.nmt.translations]).value

    def tokens_per_second(self, result: EngineResult) -> float:
        """Return target tokens per second, without end tokens."""
        ids = self.tokenizer.encode_batch(result.translations, target=True)
        return sum(map(len, ids)) / result.seconds

    def first_difference(self) -> str:
        """Describe the first sentence with different translations; empty: there is none."""
        translations = zip(self.nmt.translations, self.exported.translations, strict=True)
        for source, (a, b) in zip(self.sources, translations, strict=True):
            if a != b:
                return f"'{source}' is '{a}' in nmt, but '{b}' in the exported model"
        return ""

    def check(self, to: str, min_agreement: float) -> None:
        """Raise an NMTError if too few translations are identical."""
        if self.agreement < min_agreement:
            raise NMTError(
                f"only {self.num_identical} of {len(self.sources)} translations with {to} are"
                f" identical to those of nmt, but --min-agreement requires {min_agreement:.1%}; the"
                f" export was discarded: {self.first_difference()}",
                "lower --min-agreement if the differences are acceptable",
            )


def export_and_verify(
    path: Path,
    to: str,
    directory: Path | None = None,
    verify_with: Path | None = None,
    min_agreement: float = 0.99,
) -> Verification:
    """Export a model and verify it; the directory is created only if the verification succeeds.

    Args:
        path: a run or one of its checkpoints.
        to: spec string of a format in `EXPORTS`.
        directory: the directory to create, which must not exist; None: a directory in the run,
            named after the format.
        verify_with: file of source sentences; None: the first `MAX_LINES` lines of the model's test
            or validation set if it is on disk, else of the phrasebook.
        min_agreement: minimum share of identical translations; otherwise the export is discarded.

    Raises:
        ConfigError: unknown format or option.
        UsageError: `min_agreement` is out of range, the directory exists, or a package is not
            installed.
        CheckpointError: there is no model.
        DataError: the file cannot be read or is empty.
        NMTError: the agreement is too low, or the export cannot be written.
    """
    write = resolve("format", EXPORTS, to)
    name = parse(to)[0]
    if not 0 <= min_agreement <= 1:
        raise UsageError(
            f"--min-agreement must be between 0 and 1, got {min_agreement}", "the default is 0.99"
        )
    directory = directory or pretrained.output_dir(discovery.resolve_model(path)[0]) / name
    if directory.exists():
        raise UsageError(
            f"{directory} already exists", "choose another directory with --output, or delete it"
        )
    loaded = discovery.load(path)
    source_name, sources = (
        file_sentences(verify_with, loaded) if verify_with else default_sentences(loaded)
    )
    with new_directory(directory, replace=False) as work:
        with _write_errors(directory):
            write(loaded, work)
        if name in REFERENCES:
            nmt_result = _measure(REFERENCES[name](work), sources, _model_files(loaded))
        else:
            nmt_result = translate_with_nmt(loaded, sources)
        exported_result = _measure(LOADERS[name](work), sources, work.rglob("*"))
        verification = Verification(
            directory, source_name, sources, nmt_result, exported_result, loaded.tokenizer
        )
        verification.check(to, min_agreement)
    if not any(map(str.strip, nmt_result.translations)):
        log(
            "warning: all translations are empty, so the verification shows little; train the model"
            " for longer"
        )
    return verification


@contextmanager
def _write_errors(directory: Path) -> Iterator[None]:
    """Raise an NMTError for an export that cannot be written, such as to a full disk."""
    try:
        yield
    except (OSError, SafetensorError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise NMTError(f"cannot write {directory}: {reason}", "check the free disk space") from None


def translate_with_nmt(loaded: LoadedModel, sources: list[str]) -> EngineResult:
    """Translate with nmt, as the exported model should."""
    # A run may have a better checkpoint by now.
    translator = Translator.load(loaded.checkpoint, "cpu", "fp32")
    # Exports get the text itself.
    data = replace(translator.config.data, placeholders=False)
    translator.config = replace(translator.config, data=data)
    return _measure(
        lambda sentences: translator.translate(sentences, "greedy"), sources, _model_files(loaded)
    )


def _model_files(loaded: LoadedModel) -> list[Path]:
    """Return the files of a model that are needed to translate."""
    return [*run_files(loaded), loaded.checkpoint / WEIGHTS, loaded.checkpoint / META]


def _measure(translate: Translate, sources: list[str], files: Iterable[Path]) -> EngineResult:
    translate(sources[:4])  # warm-up
    start = time.perf_counter()
    translations = translate(sources)
    seconds = time.perf_counter() - start
    num_bytes = sum(file.stat().st_size for file in files if file.is_file())
    return EngineResult(translations, seconds, num_bytes)
