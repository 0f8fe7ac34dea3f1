"""The texts between the fixed spans of a line, and the translation that keeps the spans in their
places."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from nmt.text.whitespace import inline, surrounding_whitespace
from nmt.translation.pieces import part_of_line, word_indices_at
from nmt.translation.result import Part, Translation, concatenate
from nmt.translation.segments import FixedSpan, Line

_LEADING_PUNCTUATION = re.compile(r"[\s,;:.!?)\]}”“»'\"-]*")
_ADDED_PERIOD = re.compile(r"[.!?…。！？।॥؟۔]+$")
_SENTENCE_END = re.compile(r"[.!?…。！？।॥؟۔\u037e]['\"”’»“)\]]*$")


@dataclass(frozen=True)
class Gap:
    """A text between two fixed spans."""

    span: FixedSpan | None
    """The span before it; None at the start of the line."""
    punctuation: str
    """What the text begins with, up to its first word."""
    text: Line
    start: int
    """Offset of the text in the line."""


def split_at_spans(line: Line) -> Iterator[Gap]:
    """Yield the gaps around the fixed spans of a line. Terms are words of the text."""
    spans = [span for span in line.fixed if not span.is_term]
    ends = [*(span.start for span in spans), len(line.text)]
    for span, end in zip([None, *spans], ends, strict=True):
        start = span.end if span else 0
        match = _LEADING_PUNCTUATION.match(line.text, start, end)
        assert match  # it may be empty
        yield Gap(span, match[0], part_of_line(line, match.end(), end), match.end())


def join_gaps(line: Line, gaps: Sequence[Gap], translations: Iterable[Translation]) -> Translation:
    """Return the translation of a line from those of its gaps, with the whitespace around it."""
    word_indices = word_indices_at(line.text, sorted({0, *_offsets(gaps)}))
    word_index = dict(zip(sorted({0, *_offsets(gaps)}), word_indices, strict=True))
    parts: list[Part] = []
    for gap, translation in zip(gaps, translations, strict=True):
        if gap.span:
            num_words = len(gap.span.translation.split())
            copy = Translation(
                gap.span.translation, 0.0, 0.0, alignment=tuple((0, i) for i in range(num_words))
            )
            parts.append(Part(copy, "", word_index[gap.span.start]))
        parts.append(Part(Translation(inline(gap.punctuation), 0.0, 0.0)))
        parts.append(Part(without_added_period(gap.text, translation), "", word_index[gap.start]))
    joined = concatenate(parts)
    before, after = surrounding_whitespace(line.text)
    return replace(joined, text=f"{before}{joined.text.strip()}{after}")


def _offsets(gaps: Iterable[Gap]) -> Iterator[int]:
    for gap in gaps:
        yield gap.start
        if gap.span:
            yield gap.span.start


def without_added_period(source: Line, translation: Translation) -> Translation:
    """Return the translation of a heading or part of a sentence without the period that the source
    does not have."""
    words = translation.text.split()
    is_copied = bool(words) and words.count(words[-1]) <= source.text.split().count(
        words[-1]
    )  # such as Yahoo!
    if is_copied or _SENTENCE_END.search(source.text.rstrip()):
        return translation
    before, after = surrounding_whitespace(translation.text)
    text = _ADDED_PERIOD.sub("", translation.text.strip())
    return replace(translation, text=f"{before}{text}{after}")
