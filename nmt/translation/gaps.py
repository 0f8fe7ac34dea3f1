"""The texts between the fixed spans of a line, and the translation that keeps the spans in their
places."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, pairwise
from typing import NamedTuple

from nmt.text.lazy_pattern import lazy_pattern
from nmt.text.tokenizer import Tokenizer
from nmt.text.whitespace import inline, with_surrounding_whitespace, word_indices_at
from nmt.translation.capitals import inside_sentence
from nmt.translation.periods import without_added_period
from nmt.translation.pieces import part_of_line
from nmt.translation.result import Part, Translation, concatenate
from nmt.translation.segments import FixedSpan, Line

_LEADING_PUNCTUATION = lazy_pattern(r"[\s,;:.!?)\]}”“»'\"-]*")


class Gap(NamedTuple):
    """A text between two fixed spans."""

    span: FixedSpan
    """The span before it; an empty one at the start of the line."""
    punctuation: str
    """What the text begins with, up to its first word."""
    text: Line
    start: int
    """Offset of the text in the line."""


def split_at_spans(line: Line) -> Iterator[Gap]:
    """Yield the gaps around the fixed spans of a line. Terms are words of the text."""
    length = len(line.text)
    # An empty span at both ends of the line.
    spans = [FixedSpan(0, 0, ""), *line.protected, FixedSpan(length, length, "")]
    for span, following in pairwise(spans):
        match = _LEADING_PUNCTUATION.match(line.text, span.end, following.start)
        assert match  # it may be empty
        start = match.end()
        text = part_of_line(line, start, following.start)
        yield Gap(span, match[0], text, start)


def join_gaps(
    line: Line,
    gaps: Sequence[Gap],
    translations: Iterable[Translation],
    tokenizer: Tokenizer,
    language: str,
) -> Translation:
    """Return the translation of a line into a language from those of its gaps, with the whitespace
    around it."""
    offsets = chain.from_iterable((gap.span.start, gap.start) for gap in gaps)
    word_indices = iter(word_indices_at(line.text, offsets))
    parts: list[Part] = []
    for gap, translation in zip(gaps, translations, strict=True):
        span_text = gap.span.translation
        num_words = len(span_text.split())
        alignment = tuple((0, i) for i in range(num_words))
        parts += [
            Part(Translation(span_text, alignment=alignment), "", next(word_indices)),
            Part(Translation(inline(gap.punctuation))),
            Part(_cased(gap.text, translation, tokenizer, language), "", next(word_indices)),
        ]
    joined = concatenate(parts)
    text = joined.text.strip()
    if line.text.strip()[:1].isupper():
        text = text[:1].upper() + text[1:]
    return replace(joined, text=with_surrounding_whitespace(text, line.text))


def _cased(
    source: Line, translation: Translation, tokenizer: Tokenizer, language: str
) -> Translation:
    """Return the translation of a gap without an added period, and in lower case if the gap is."""
    translation = without_added_period(source, translation)
    if not source.text[:1].islower():
        return translation
    text = inside_sentence(translation.text, source.text, tokenizer, language)
    return replace(translation, text=text)
