"""Split source lines into segments that a model can translate."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

from nmt.core.config import Config
from nmt.core.errors import UsageError
from nmt.engines import Source
from nmt.text.normalization import normalize_source
from nmt.text.sentences import count_sentences, split_to_fit
from nmt.text.spans import Edit, ProtectedSpan, apply_edits, find_spans, without_overlaps
from nmt.text.tokenizer import UNK, Tokenizer
from nmt.text.whitespace import separator, word_indices_at
from nmt.translation.budget import Budget, count_extra_letters
from nmt.translation.copied_words import CopiedWords, is_byte

MIN_SPELLED_PIECES = 40
"""Minimum number of pieces with letters in a text that is spelled letter by letter."""
MIN_SHARE_OF_PIECE = 0.25
"""Minimum mean length of the pieces of a text, as a share of that of all pieces of the
vocabulary."""


@dataclass(frozen=True)
class FixedSpan:
    """A span of a line whose translation is given: a protected span or a glossary term."""

    start: int
    end: int
    """Offsets of its characters in the line."""
    translation: str
    """Its text in the translation; for a protected span, its text in the line."""
    is_opaque: bool = True
    """Whether the line can be translated without reading the span. A number or term is read to
    inflect other words."""
    is_term: bool = False
    """Whether it is a glossary term, which the translation may inflect."""
    kept_term: str = field(default="", compare=False)
    """The glossary term that it leaves as it is; empty: none."""

    def moved(self, offset: int) -> FixedSpan:
        """Return the span, `offset` characters further."""
        return replace(self, start=self.start + offset, end=self.end + offset)


def protected_spans(text: str) -> tuple[FixedSpan, ...]:
    """Return the protected spans of a text; see `nmt.text.spans.find_spans`."""
    return as_fixed_spans(text, find_spans(text))


def as_fixed_spans(text: str, spans: Iterable[ProtectedSpan]) -> tuple[FixedSpan, ...]:
    """Return fixed spans that keep their text."""
    return tuple(
        FixedSpan(span.start, span.end, text[span.start : span.end], span.is_opaque)
        for span in spans
    )


def spans_within(spans: Sequence[FixedSpan], start: int, end: int) -> tuple[FixedSpan, ...]:
    """Return the fixed spans of a part of a text, which are in order, with their offsets in the
    part."""
    first = bisect_left(spans, start, key=lambda span: span.start)
    last = bisect_right(spans, end, lo=first, key=lambda span: span.end)
    return tuple(span.moved(-start) for span in spans[first:last])


@dataclass(frozen=True)
class Line:
    """A line to translate, with an optional target prefix, constraints and fixed spans."""

    text: str
    """Text to translate, one sentence or several."""
    prefix: str = ""
    """Text that the translation must begin with. It must end at a word boundary, because it is
    tokenized separately."""
    constraints: tuple[str, ...] = ()
    """Phrases that must appear in the translation. They need the `constrained` search."""
    fixed: tuple[FixedSpan, ...] = ()
    """Spans whose translation is given, in order and without overlaps."""
    language: str = ""
    """Token that chooses the target language of a multilingual model, if the text is a part of a
    line that has one."""
    budget: Budget | None = field(default=None, compare=False, repr=False)
    """Limit of the work of its repairs, which parts of a line share."""

    def __post_init__(self) -> None:
        """Raise a UsageError if `constraints` is a string, whose characters would be constraints,
        or for fixed spans that are empty, overlap, or are not in order or not in the text.
        """
        if isinstance(self.constraints, str):
            raise UsageError(
                "constraints must be a tuple of strings", f"constraints=({self.constraints!r},)"
            )
        ends = [0, *(span.end for span in self.fixed)]
        if not all(
            end <= span.start < span.end <= len(self.text)
            for end, span in zip(ends, self.fixed, strict=False)
        ):
            raise UsageError("fixed spans must be in order, in the text, and without overlaps")

    def with_edits(self, edits: Iterable[Edit]) -> Line:
        """Return the line with the edits of its text that change no fixed span."""
        applied: list[Edit] = []
        ends: list[int] = []
        offsets = [0]
        for edit in sorted(edits):
            start, end, new = edit
            following = bisect_right(self.fixed, start, key=lambda span: span.end)
            if any(span.start < end for span in self.fixed[following : following + 1]):
                continue
            applied.append(edit)
            ends.append(end)
            growth = len(new) - (end - start)
            offsets.append(offsets[-1] + growth)
        moved: list[FixedSpan] = []
        for span in self.fixed:
            num_before = bisect_right(ends, span.start)
            moved.append(span.moved(offsets[num_before]))
        text = apply_edits(self.text, applied)
        return replace(self, text=text, fixed=tuple(moved))

    def with_constraints(self, *phrases: str) -> Line:
        """Return the line with further constraints."""
        return replace(self, constraints=(*self.constraints, *phrases))

    @property
    def source(self) -> str:
        """The text with the token that chooses the target language before it."""
        return with_language(self.text, self.language)

    @property
    def terms(self) -> list[FixedSpan]:
        """The fixed spans that are glossary terms."""
        return [span for span in self.fixed if span.is_term]

    @property
    def protected(self) -> list[FixedSpan]:
        """The fixed spans that are not glossary terms."""
        return [span for span in self.fixed if not span.is_term]

    @property
    def is_constrained(self) -> bool:
        """Whether it has a prefix or constraints."""
        return bool(self.prefix or self.constraints)


class Segment(NamedTuple):
    """A part of a line that is translated as a unit, in most cases the entire line."""

    source: Source
    separator: str = ""
    """Whitespace between the previous segment and this one."""
    word_offset: int = 0
    """Index of its first word in the line, which may be a token added before the text: then one
    less."""


class Segmenter:
    """Tokenizes lines, and splits those with more tokens or sentences than the model translates as
    a unit."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        config: Config,
        max_source_length: int,
        max_sentences_per_line: int,
    ) -> None:
        self.tokenizer = tokenizer
        self.language = config.data.src
        self.lowercase = config.lowercase_all_caps
        self.max_source_length = max_source_length
        self.max_sentences_per_line = max_sentences_per_line
        self.copied_words = CopiedWords(tokenizer)

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the token ids of source texts."""
        return self.tokenizer.encode_batch(
            [normalize_source(text, lowercase_all_caps=self.lowercase) for text in texts]
        )

    def find_spans(self, text: str, custom: Iterable[re.Pattern[str]] = ()) -> list[ProtectedSpan]:
        """Return the protected spans of a text, and the words that the model would garble, without
        overlaps."""
        return list(without_overlaps([*find_spans(text, custom), *self.copied_words.find(text)]))

    def protected_spans(self, text: str) -> tuple[FixedSpan, ...]:
        """Return `find_spans` as fixed spans."""
        return as_fixed_spans(text, self.find_spans(text))

    def is_readable(self, line: Line) -> bool:
        """Return whether a text is made of words, as far as the tokenizer knows.

        It is not if most letters have no piece, or if nearly all pieces are single letters, which a
        model neither translates nor copies well: `x x x`, codes, random letters. A short text
        always is.
        """
        if not self.copied_words.can_spell(line.text):
            return False
        if len(line.text) < MIN_SPELLED_PIECES:
            return True
        opaque = ((span.start, span.end, " ") for span in line.fixed if span.is_opaque)
        [ids] = self.encode([apply_edits(line.text, opaque)])
        lengths = self._piece_lengths(ids)
        num_pieces = len(lengths)
        return (
            num_pieces < MIN_SPELLED_PIECES or sum(lengths) >= self._min_piece_length * num_pieces
        )

    @cached_property
    def _min_piece_length(self) -> float:
        """Minimum mean number of letters of the pieces of a text, which depends on the
        vocabulary."""
        lengths = self._piece_lengths(range(len(self.tokenizer)))
        return MIN_SHARE_OF_PIECE * sum(lengths) / len(lengths)

    def _piece_lengths(self, ids: Sequence[int]) -> list[int]:
        """Return the numbers of letters of the pieces that have any."""
        pieces = self.tokenizer.ids_to_pieces(ids)
        lengths = (_count_letters(piece) for piece in pieces if not is_byte(piece))
        return list(filter(None, lengths))

    def split(self, lines: Sequence[Line]) -> list[list[Segment]]:
        """Return the segments of each line; a blank line has none.

        A prefix and constraints apply to the first segment.

        Raises:
            UsageError: a prefix and constraints exceed the maximum source length.
        """
        encoded = self.encode([line.source for line in lines])
        return [list(self._split(line, ids)) for line, ids in zip(lines, encoded, strict=True)]

    def spans(self, line: Line) -> list[tuple[int, int]]:
        """Return the start and end of each segment of a line."""
        language = self._target_language(line)

        def fits(start: int, end: int) -> bool:
            if not self._has_few_sentences(line, start, end):
                return False
            part = with_language(line.text[start:end], language)
            [ids] = self.encode([part])
            return len(ids) <= self.max_source_length

        return split_to_fit(line.text, self.language, fits, line.fixed)

    def _split(self, line: Line, ids: list[int]) -> Iterator[Segment]:
        text = line.text
        language = self._target_language(line)
        if not text.removeprefix(language).strip():
            return
        spans = [(0, len(text))]
        encoded = [ids]
        if len(ids) > self.max_source_length or not self._has_few_sentences(line, 0, len(text)):
            spans = self.spans(line)
            encoded = self.encode([with_language(text[slice(*span)], language) for span in spans])
        word_offsets = word_indices_at(text, [start for start, _ in spans])
        previous_end = 0
        for (start, end), segment_ids, word_offset in zip(
            spans, encoded, word_offsets, strict=True
        ):
            if not segment_ids:
                continue
            if _needs_language(text[start:end], language):
                word_offset -= 1  # the token is a word of the segment
            between = separator(text, previous_end, start) if previous_end else ""
            yield Segment(self._source(segment_ids, line), between, word_offset)
            line = Line("")  # a prefix and constraints apply to the first segment
            previous_end = end

    def _source(self, ids: list[int], line: Line) -> Source:
        if not line.is_constrained:
            return Source(ids)
        prefix, *constraints = self.tokenizer.encode_batch(
            [line.prefix, *line.constraints], target=True
        )
        num_constrained = sum(map(len, constraints))
        if len(prefix) + num_constrained > self.max_source_length:
            raise UsageError(
                "prefix and constraints are longer than the model was trained for"
                f" ({self.max_source_length} tokens)",
                "shorten them",
            )
        if UNK in prefix or any(UNK in each for each in constraints):
            raise UsageError(
                "prefix or constraints have characters that the model's vocabulary lacks",
                "change them",
            )
        return Source(ids, prefix, list(filter(None, constraints)))

    def _target_language(self, line: Line) -> str:
        return line.language or self.tokenizer.language_token(line.text)

    def _has_few_sentences(self, line: Line, start: int, end: int) -> bool:
        fixed = spans_within(line.fixed, start, end)
        num_sentences = count_sentences(line.text[start:end], self.language, fixed)
        return num_sentences <= self.max_sentences_per_line


def _count_letters(piece: str) -> int:
    """Return the number of letters of a piece."""
    return sum(map(str.isalpha, piece)) + count_extra_letters(piece)


def _needs_language(text: str, language: str) -> bool:
    return bool(text.strip()) and not text.startswith(language)


def with_language(text: str, language: str) -> str:
    """Return the text with the token that chooses the target language before it, unless it is blank
    or has it."""
    return language + text if _needs_language(text, language) else text
