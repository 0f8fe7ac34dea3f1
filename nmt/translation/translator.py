"""`Translator` translates and scores lines of text. Validation, evaluation and the command line all
use it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import copy
from dataclasses import replace
from functools import cached_property, partial
from itertools import chain, repeat
from pathlib import Path
from typing import TYPE_CHECKING

from nmt.core import runtime
from nmt.core.config import Config
from nmt.core.errors import DataError, UsageError, check_choice
from nmt.data.placeholders import PLACEHOLDERS
from nmt.engines import Engine, Source, TokenScores
from nmt.engines.load import load_engine
from nmt.models.discovery import find_export, find_models
from nmt.runs.model_files import load_settings
from nmt.search import Hypothesis, Search, parse_search
from nmt.text.tokenizer import Tokenizer
from nmt.text.whitespace import with_surrounding_whitespace
from nmt.translation.chunking import chunked, regroup
from nmt.translation.result import Translation, join, of_segment
from nmt.translation.segments import Line, Segment, Segmenter
from nmt.translation.stand_ins import Substitution, substitute

if TYPE_CHECKING:
    from nmt.translation.confidence import Calibration

__all__ = ["Line", "Translation", "Translator"]
ENGINES = ("nmt", "ctranslate2")


class Translator:
    """Translates lines with an engine and its tokenizer. Threads may share a translator."""

    def __init__(
        self,
        engine: Engine,
        tokenizer: Tokenizer,
        config: Config,
        max_source_length: int,
        max_sentences_per_line: int,
        *,
        checkpoint: Path = Path(),
        run: Path = Path(),
        find_calibration: Callable[[], Calibration | None] = lambda: None,
    ) -> None:
        """Create a translator that splits lines of more tokens or sentences than these limits, or
        than positions."""
        if engine.max_positions is not None:
            # One position is for the end token.
            max_source_length = min(max_source_length, engine.max_positions - 1)
        self.engine = engine
        self.tokenizer = tokenizer
        self.config = config
        self.segmenter = Segmenter(tokenizer, config, max_source_length, max_sentences_per_line)
        self.checkpoint = checkpoint
        self.run = run
        self.term_counts = Counter[tuple[str, bool]]()
        """Empty, because only a guard has a glossary."""
        self._find_calibration = find_calibration

    @cached_property
    def calibration(self) -> Calibration | None:
        """The calibration of confidences; None if there is none, and for an ensemble."""
        return self._find_calibration()

    def with_engine(self, engine: Engine) -> Translator:
        """Return a translator of the same model with another engine."""
        translator = copy(self)
        translator.engine = engine
        translator._find_calibration = lambda: self.calibration  # which is loaded once
        return translator

    @classmethod
    def load(
        cls,
        path: Path | str | Sequence[Path | str],
        device: str = "auto",
        precision: str = "auto",
        engine: str = "nmt",
    ) -> Translator:
        """Load a model or an ensemble.

        Args:
            path: run directory (its best checkpoint is used), checkpoint directory, name of a
                pretrained model, or name of a published model, `OWNER/NAME` or `firefox:en-de`,
                which is imported on first use. Several paths form an ensemble.
            device: auto, cpu, cuda or cuda:N.
            precision: precision of the search: auto, fp32, bf16, fp16 or int8. Scoring uses
                float32, except with the ctranslate2 engine.
            engine: nmt (the native engine, or PyTorch where it cannot run) or ctranslate2 (for a
                directory that `nmt export` wrote).

        Raises:
            CheckpointError: see `nmt.models.discovery.find_model`; or the models have different
                tokenizers or directions.
            UsageError: the device or engine does not exist or does not support the precision.
        """
        device = runtime.resolve_device(device)
        check_choice("engine", engine, ENGINES)
        paths = [Path(path)] if isinstance(path, Path | str) else list(map(Path, path))
        if engine == "ctranslate2":
            return cls._load_export(paths, device, precision)
        runtime.check_precision(precision, device, inference=True)  # before any model is loaded
        models = find_models(paths)
        first = models[0]

        def find_calibration() -> Calibration | None:
            from nmt.translation import confidence  # few translations need it

            return confidence.find(first) if len(models) == 1 else None

        return cls(
            load_engine(models, device, precision, first.tokenizer.decode),
            first.tokenizer,
            first.config,
            min(model.max_source_length for model in models),
            min(model.max_sentences_per_line for model in models),
            checkpoint=first.checkpoint,
            run=first.run,
            find_calibration=find_calibration,
        )

    @classmethod
    def _load_export(cls, paths: Sequence[Path], device: str, precision: str) -> Translator:
        if len(paths) != 1:
            raise UsageError(
                "the ctranslate2 engine does not support ensembles", "leave out --engine"
            )
        from nmt.engines.ctranslate2 import CTranslate2Engine
        from nmt.translation import confidence

        directory = find_export(paths[0])
        config, tokenizer, *limits = load_settings(directory)
        return cls(
            CTranslate2Engine(directory, tokenizer, device, precision),
            tokenizer,
            config,
            *limits,
            checkpoint=directory,
            run=directory,
            find_calibration=partial(confidence.find_exported, directory),
        )

    def translate(self, lines: Iterable[str | Line], search: str | None = None) -> list[str]:
        """Return the best translation of each line, in the order of the lines.

        Whitespace around a line is preserved, so a blank line stays blank. A line with more
        tokens or sentences than nearly all training lines is split at sentence, clause or word
        boundaries, and the translations of its segments are joined.

        Args:
            lines: source text, one or more sentences per line.
            search: spec string of a search, such as `beam(beam_size=4)`; None uses the search of
                the model's config.

        Raises:
            ConfigError: unknown search or option.
            UsageError: a line has constraints and the search is not `constrained`.
        """
        return [n_best[0].text for n_best in self.stream(chunked(check_lines(lines)), search)]

    def n_best(
        self, lines: Iterable[str | Line], search: str | None = None
    ) -> Iterator[list[Translation]]:
        """Yield the n-best list of each line, with tokens, log-probabilities and alignment.

        Log-probabilities are computed in float32, regardless of the precision of the search; the
        ctranslate2 engine uses the precision of the search.

        Args:
            lines: see `translate`.
            search: spec string of a search, such as `beam(beam_size=4, top_beams=4)`.

        Raises:
            ConfigError: see `translate`.
            UsageError: see `translate`.
        """
        return self.stream(chunked(check_lines(lines)), search, details=True)

    def stream(
        self,
        chunks: Iterable[Sequence[str | Line]],
        search: str | None = None,
        *,
        details: bool = False,
        on_progress: Callable[[int], object] = lambda lines: None,
    ) -> Iterator[list[Translation]]:
        """Yield the n-best list of each line of a stream of chunks.

        Args:
            chunks: lists of lines; batches are formed within a list.
            search: see `translate`.
            details: whether to add tokens, float32 log-probabilities and alignment, as `n_best`
                does.
            on_progress: called with the number of lines translated since the previous call.
        """
        algorithm = parse_search(self.config.search if search is None else search)
        return chain.from_iterable(
            self._translate(chunk, algorithm, details, on_progress) for chunk in chunks
        )

    def score(self, pairs: Iterable[tuple[str, str]]) -> Iterator[Translation]:
        """Yield the given translations with the model's scores, in order; `score` is the
        log-probability.

        Lines are not split, even if `translate` would split them.

        Raises:
            DataError: a line has more tokens than the model has positions.
        """
        first_line = 1
        for chunk in chunked(pairs):
            sources = self.segmenter.encode([source for source, _ in chunk])
            targets = self.tokenizer.encode_batch([target for _, target in chunk], target=True)
            self._check_lengths(sources, targets, first_line)
            first_line += len(chunk)
            segments = [Segment(Source(ids)) for ids in sources]
            hypotheses = [Hypothesis(ids, 0.0, 0.0) for ids in targets]
            texts = [target for _, target in chunk]
            scored = list(zip(segments, hypotheses, strict=True))
            yield from self._describe(scored, texts, details=True)

    def _check_lengths(
        self, sources: list[list[int]], targets: list[list[int]], first_line: int
    ) -> None:
        max_positions = self.engine.max_positions or math.inf
        for number, pair in enumerate(zip(sources, targets, strict=True), first_line):
            length = max(map(len, pair)) + 1
            if length > max_positions:
                raise DataError(
                    f"line {number} has {length} tokens, including the end token, and the model has"
                    f" {max_positions} positions",
                    "remove the line, or train with a position encoding that has no maximum",
                )

    def _translate(
        self,
        chunk: Sequence[str | Line],
        algorithm: Search,
        details: bool,
        on_progress: Callable[[int], object],
    ) -> Iterator[list[Translation]]:
        originals = as_lines(chunk)
        if any(line.constraints for line in originals):
            _check_constrained(algorithm)
        substitutions = [self._placeholders(line) for line in originals]
        lines = [
            each.line if each else line for line, each in zip(originals, substitutions, strict=True)
        ]
        segments = self.segmenter.split(lines)
        n_bests = self._search(segments, algorithm, details, on_progress)
        n_bests_of_lines = regroup(n_bests, map(len, segments))
        for line, line_segments, substitution in zip(lines, segments, substitutions, strict=True):
            n_best: list[Translation] = []
            for joined in join(next(n_bests_of_lines), line_segments):
                text = with_surrounding_whitespace(joined.text, line.text)
                translation = replace(joined, text=text)
                if substitution:
                    translation = substitution.restore(translation)
                n_best.append(translation)
            yield n_best

    def _placeholders(self, line: Line) -> Substitution | None:
        """Replace the protected spans of a line by placeholders, if the model has learned to copy
        them."""
        if not self.config.data.placeholders:
            return None
        line = (
            line if line.fixed else replace(line, fixed=self.segmenter.protected_spans(line.text))
        )
        return substitute(line, [each for each in PLACEHOLDERS if each not in line.text])

    def _search(
        self,
        segments: list[list[Segment]],
        algorithm: Search,
        details: bool,
        on_progress: Callable[[int], object],
    ) -> list[list[Translation]]:
        """Return the n-best list of each segment of the lines."""
        num_lines = len(segments)
        searched = list(chain.from_iterable(segments))
        num_done = 0

        def report(num_segments: int) -> None:  # as a number of lines
            nonlocal num_done
            lines_before = num_done * num_lines // len(searched)
            num_done += num_segments
            on_progress(num_done * num_lines // len(searched) - lines_before)

        sources = [segment.source for segment in searched]
        n_bests = self.engine.search(sources, algorithm, report)
        if not searched:
            on_progress(num_lines)
        pairs: list[tuple[Segment, Hypothesis]] = []
        for segment, n_best in zip(searched, n_bests, strict=True):
            pairs += ((segment, hypothesis) for hypothesis in n_best)
        texts = self.tokenizer.decode_batch([hypothesis.ids for _, hypothesis in pairs])
        translations = self._describe(pairs, texts, details=details)
        return list(regroup(translations, map(len, n_bests)))

    def _describe(
        self, pairs: Sequence[tuple[Segment, Hypothesis]], texts: Iterable[str], *, details: bool
    ) -> Iterator[Translation]:
        """Yield the translations of segments, with scores, tokens and alignment if requested."""
        scores: Iterable[TokenScores | None] = repeat(None)
        calibration = None
        if details:
            sources = [segment.source.ids for segment, _ in pairs]
            targets = [hypothesis.ids for _, hypothesis in pairs]
            scores = self.engine.score(sources, targets)
            calibration = self.calibration
        for pair, text, token_scores in zip(pairs, texts, scores, strict=False):
            yield of_segment(*pair, text, token_scores, self.tokenizer, calibration)


def _check_constrained(algorithm: Search) -> None:
    from nmt.search.constrained import Constrained

    if not isinstance(algorithm, Constrained):
        raise UsageError("constraints need the constrained search", "constrained(beam_size=8)")


def as_lines(chunk: Iterable[str | Line]) -> list[Line]:
    """Return a chunk as lines. Raises a UsageError for a single line; see `check_lines`."""
    return [Line(line) if isinstance(line, str) else line for line in check_lines(chunk)]


def check_lines(lines: Iterable[str | Line]) -> Iterable[str | Line]:
    """Raise a UsageError for a single line, whose characters would be translated as lines."""
    if isinstance(lines, str | Line):
        raise UsageError("lines must be a list of strings", "translate([...])")
    return lines
