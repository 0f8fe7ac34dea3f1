"""Lines in, lines out: everything that keeps order, count and content of text.

What validation, evaluation and a user's translation have in common is this path; there is no other.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

from nmt import runtime
from nmt.config import Config
from nmt.data.normalization import normalize, normalize_case
from nmt.data.segment import count_sentences, segments
from nmt.data.tokenizer import Tokenizer
from nmt.errors import CheckpointError, DataError, UsageError, suggest
from nmt.inference import Engine, Source, TokenScores
from nmt.inference.alignment import align
from nmt.inference.chunking import chunked
from nmt.inference.ctranslate2 import MODEL, CTranslate2Engine
from nmt.inference.load import load_engine
from nmt.inference.whitespace import gap, outer_space
from nmt.runs import discovery, pretrained
from nmt.search import Constrained, Hypothesis, Search, search

END = "</s>"
ENGINES = ("native", "ctranslate2")


@dataclass(frozen=True)
class Line:
    """A line to translate, and what its translation must keep to."""

    text: str
    prefix: str = ""
    """What the translation must begin with, in whole words."""
    constraints: tuple[str, ...] = ()
    """What must appear in it; needs the search `constrained`."""

    def __post_init__(self) -> None:
        """Raise a UsageError for a text in the place of a tuple of them, whose letters would be taken for constraints."""
        if isinstance(self.constraints, str):
            raise UsageError("constraints is a tuple of texts, not a text", f"constraints=({self.constraints!r},)")


@dataclass(frozen=True)
class Translation:
    """One translation of one line. What follows `log_prob` is there where it was asked for."""

    text: str
    score: float
    """What the search ranks by, such as the normalized log-probability; over the pieces of a long line, their sum."""
    log_prob: float
    """Σ log p(token), the end of each piece included, in nats."""
    tokens: tuple[str, ...] = ()
    """Pieces of the tokenizer, and `</s>` where a translation ends."""
    token_log_probs: tuple[float, ...] = ()
    alignment: tuple[tuple[int, int], ...] = ()
    """(source word, target word), counted from 0 where white space parts them: each target word with the source word
    that the model attended to most. It is a hint, not a dictionary."""


class Translator:
    """A model, its tokenizer and an engine, ready to translate. Threads may share it."""

    def __init__(
        self, engine: Engine, tokenizer: Tokenizer, config: Config, max_source: int, max_sentences: int
    ) -> None:
        """Put the parts together; lines of more than `max_source` tokens or `max_sentences` sentences are cut."""
        self.engine, self.tokenizer, self.config = engine, tokenizer, config
        self.max_source, self.max_sentences = max_source, max_sentences
        self.origin = self.run = Path()

    @classmethod
    def load(
        cls,
        path: Path | str | Sequence[Path | str],
        device: str = "auto",
        precision: str = "auto",
        engine: str = "native",
    ) -> Translator:
        """Load a run or a checkpoint, or several that translate together.

        Args:
            path: a run's folder (its best checkpoint is taken) or a checkpoint's; several make an ensemble.
            device: auto, cpu or cuda.
            precision: of the search: auto, fp32, bf16, fp16 or int8. Scores are computed in float32.
            engine: native, or ctranslate2 for a folder that `nmt export` made.

        Raises:
            CheckpointError: see `nmt.runs.discovery.find_model`; or the models have different tokenizers or directions.
            UsageError: no such device or engine, or a precision that it has not.
        """
        device = runtime.resolve_device(device)
        if engine not in ENGINES:
            raise UsageError(f"unknown engine '{engine}'", suggest(engine, ENGINES))
        paths = [path] if isinstance(path, Path | str) else list(path)
        if engine == "ctranslate2":
            return cls._load_exported([Path(each) for each in paths], device, precision)
        runtime.check_precision(precision, device, inference=True)  # a mistake shows before anything is loaded
        if not paths:
            raise UsageError("there is no model to load", "name a run, such as runs/multi30k")
        models = [discovery.find_model(Path(each)) for each in paths]
        first = models[0]
        for name, other in zip(paths[1:], models[1:], strict=True):
            if other.tokenizer.checksum != first.tokenizer.checksum:
                raise CheckpointError(
                    f"{name} and {paths[0]} have different tokenizers", "models that translate together share one"
                )
            if (other.config.data.src, other.config.data.tgt) != (first.config.data.src, first.config.data.tgt):
                raise CheckpointError(
                    f"{name} and {paths[0]} translate in different directions", "name models of one direction"
                )
        translator = cls(
            load_engine(models, device, precision, first.tokenizer.decode), first.tokenizer, first.config,
            min(each.max_source for each in models), min(each.max_sentences for each in models),
        )  # fmt: skip
        translator.origin, translator.run = first.checkpoint, first.run
        return translator

    @classmethod
    def _load_exported(cls, paths: Sequence[Path], device: str, precision: str) -> Translator:
        if len(paths) > 1:
            raise UsageError("the engine ctranslate2 takes one model", "leave out --engine to use several")
        path = pretrained.output_dir(pretrained.find(paths[0]) or paths[0])
        folder = path if (path / MODEL).exists() or not path.is_dir() else path / "ctranslate2"
        if not (folder / MODEL).exists():
            raise CheckpointError(f"there is no CTranslate2 model in {path}", "nmt export RUN --to ctranslate2")
        config, tokenizer, *most = discovery.load_settings(folder)
        engine = CTranslate2Engine(folder, tokenizer, device, precision)
        translator = cls(engine, tokenizer, config, *most)
        translator.origin = translator.run = folder
        return translator

    def translate(self, lines: Iterable[str | Line], spec: str | None = None) -> list[str]:
        """Return each line's best translation, in the order of the lines: what the command prints.

        As many come out as go in. White space at the ends of a line survives, so a blank line stays blank; a line
        longer than the model was trained for is cut at sentence or clause boundaries, translated in pieces and joined.

        Args:
            lines: source text, one sentence (or more) a line.
            spec: search, such as `beam(beam_size=4)`; None takes the one in the model's config.

        Raises:
            ConfigError: unknown search or option.
            UsageError: a line has constraints, and the search is not `constrained`.
        """
        return [best[0].text for best in self.stream(chunked(_several(lines)), spec)]

    def n_best(self, lines: Iterable[str | Line], spec: str | None = None) -> Iterator[list[Translation]]:
        """Yield each line's translations with all that is known of them, in the order the search ranks them.

        Log-probabilities are those of the model in float32, whatever the search computed in.

        Args:
            lines: as for `translate`.
            spec: search, such as `beam(beam_size=4, top_beams=4)`.

        Raises:
            ConfigError, UsageError: as for `translate`.
        """
        return self.stream(chunked(_several(lines)), spec, details=True)

    def stream(
        self,
        windows: Iterable[Sequence[str | Line]],
        spec: str | None = None,
        *,
        details: bool = False,
        tick: Callable[[int], object] = lambda lines: None,
    ) -> Iterator[list[Translation]]:
        """Do as `translate` or, with details, as `n_best`, for groups of lines, as they come.

        The lines of a group are batched together. Without details scores are those the search worked with. `tick` is
        told how many more lines are done.
        """
        find = search(self.config.search if spec is None else spec)
        return chain.from_iterable(self._window(window, find, details, tick) for window in windows)

    def score(self, pairs: Iterable[tuple[str, str]]) -> Iterator[Translation]:
        """Yield what the model thinks of given translations, in order; `score` is the log-probability.

        Nothing is cut: a line much longer than the model was trained for is scored as it is.

        Raises:
            DataError: a line is longer than the positions that the model has learned.
        """
        before = 0
        for window in chunked(pairs):
            sources = [self._encode(src) for src, _ in window]
            targets = [self.tokenizer.encode(tgt) for _, tgt in window]
            self._check_lengths(sources, targets, before)
            before += len(window)
            for (_, text), src, tgt, scored in zip(
                window, sources, targets, self.engine.score(sources, targets), strict=True
            ):
                piece = _Piece(Source(src), "", 0)
                yield self._join([piece], [Hypothesis(tgt, sum(scored.log_probs), 0.0)], [scored], text)

    def _check_lengths(self, sources: list[list[int]], targets: list[list[int]], before: int) -> None:
        most = self.engine.max_positions or math.inf
        for number, pair in enumerate(zip(sources, targets, strict=True), before + 1):
            longest = max(map(len, pair)) + 1
            if longest > most:
                raise DataError(
                    f"line {number} has {longest} tokens, its end counted, and the model has learned {most} positions",
                    "leave the line out, or train with positions that have no end",
                )

    def _window(
        self, lines: Sequence[str | Line], find: Search, details: bool, tick: Callable[[int], object]
    ) -> list[list[Translation]]:
        texts = [line if isinstance(line, str) else line.text for line in lines]
        pieces_of = [self._pieces(line if isinstance(line, Line) else Line(line), find) for line in lines]
        sources = [piece.source for pieces in pieces_of for piece in pieces]
        done = 0

        def advance(sentences: int) -> None:
            nonlocal done
            tick((done + sentences) * len(lines) // len(sources) - done * len(lines) // len(sources))
            done += sentences

        found = iter(self.engine.search(sources, find, advance))
        if not sources:
            tick(len(lines))
        ranked = [_ranks([next(found) for _ in pieces]) for pieces in pieces_of]
        known: Iterator[TokenScores] | None = None
        if details:
            source_ids, targets = [], []
            for pieces, ranks in zip(pieces_of, ranked, strict=True):
                source_ids += [piece.source.ids for _ in ranks for piece in pieces]
                targets += [hypothesis.ids for hypotheses in ranks for hypothesis in hypotheses]
            known = iter(self.engine.score(source_ids, targets))
        translated = []
        for text, pieces, ranks in zip(texts, pieces_of, ranked, strict=True):
            before, after = outer_space(text)
            best = [self._join(pieces, each, [next(known) for _ in pieces] if known else None) for each in ranks]
            translated.append([replace(one, text=f"{before}{one.text}{after}") for one in best])
        return translated

    def _pieces(self, line: Line, find: Search) -> list[_Piece]:
        """Cut a line into what is translated as one; a prefix and constraints belong to the first piece."""
        if line.constraints and not isinstance(find, Constrained):
            raise UsageError("constraints need the search 'constrained'", "constrained(beam_size=8)")
        text, end = line.text, 0
        pieces: list[_Piece] = []
        whole = self._encode(text)
        spans = [(0, len(text))]
        if len(whole) > self.max_source or not self._has_few_sentences(text):
            spans = segments(text, self.config.data.src, self._fits)
        for start, stop in spans:
            if ids := whole if stop - start == len(text) else self._encode(text[start:stop]):
                inside_word = start > 0 and not text[start - 1].isspace()
                words = len(normalize(text[:start]).split()) - inside_word if start else 0
                source = Source(ids)
                if not pieces and (line.prefix or line.constraints):
                    source = self._wishes(ids, line)
                pieces.append(_Piece(source, gap(text, end, start) if pieces else "", words))
                end = stop
        return pieces

    def _wishes(self, ids: list[int], line: Line) -> Source:
        constraints = [self.tokenizer.encode(constraint) for constraint in line.constraints]
        source = Source(
            ids, self.tokenizer.encode(line.prefix), [constraint for constraint in constraints if constraint]
        )
        if len(source.prefix) + sum(map(len, source.constraints)) > self.max_source:
            most = f"({self.max_source} tokens)"
            raise UsageError(f"prefix and constraints are longer than the model was trained for {most}", "shorten them")
        return source

    def _fits(self, text: str) -> bool:
        return self._has_few_sentences(text) and len(self._encode(text)) <= self.max_source

    def _has_few_sentences(self, text: str) -> bool:
        return count_sentences(text, self.config.data.src) <= self.max_sentences

    def _encode(self, text: str) -> list[int]:
        """Return the ids of source text."""
        return self.tokenizer.encode(normalize_case(text, lowercase_all_caps=self.config.lowercase_all_caps))

    def _join(
        self,
        pieces: Sequence[_Piece],
        hypotheses: Sequence[Hypothesis],
        known: Sequence[TokenScores] | None,
        given: str | None = None,
    ) -> Translation:
        """Make one translation of those of a line's pieces; `given` is its text where that was not translated."""
        text, score, log_prob = "", 0.0, 0.0
        tokens: list[str] = []
        log_probs: list[float] = []
        alignment: list[tuple[int, int]] = []
        for number, (piece, hypothesis) in enumerate(zip(pieces, hypotheses, strict=True)):
            words = len(text.split()) - (bool(text) and not piece.gap)  # of the target, before this piece
            text += piece.gap + self.tokenizer.decode(hypothesis.ids)
            if known is not None:
                scored = known[number]
                hypothesis = _rescored(hypothesis, scored)
                tokens += [*self.tokenizer.pieces(hypothesis.ids), END]
                log_probs += scored.log_probs
                source = self.tokenizer.pieces(piece.source.ids)
                aligned = align(source, self.tokenizer.pieces(hypothesis.ids), scored.attention_TS)
                alignment += [(piece.words + s, words + t) for s, t in aligned]
            score += hypothesis.score
            log_prob += hypothesis.log_prob
        if given is not None:
            text, score = given, log_prob
        return Translation(text, score, log_prob, tuple(tokens), tuple(log_probs), tuple(alignment))


@dataclass(frozen=True)
class _Piece:
    """A part of a line that is translated as one."""

    source: Source
    gap: str
    """White space between it and the piece before it."""
    words: int
    """Number of its first word in the line."""


def _ranks(found: Sequence[list[Hypothesis]]) -> list[list[Hypothesis]]:
    """Make a line's n-best list of those of its pieces: the best of each, the second best, ..."""
    longest = max(map(len, found), default=1)
    return [[hypotheses[min(rank, len(hypotheses) - 1)] for hypotheses in found] for rank in range(longest)]


def _rescored(hypothesis: Hypothesis, scored: TokenScores) -> Hypothesis:
    """Put the exact log-probability in the place of the one the search worked with."""
    log_prob = sum(scored.log_probs)
    score = hypothesis.score + (log_prob - hypothesis.log_prob) / hypothesis.norm
    return replace(hypothesis, log_prob=log_prob, score=score)


def _several(lines: Iterable[str | Line]) -> Iterable[str | Line]:
    """Refuse one text in the place of several: its letters would be taken for lines."""
    if isinstance(lines, str | Line):
        raise UsageError("lines is a list of texts, not a text", "translate([...])")
    return lines
