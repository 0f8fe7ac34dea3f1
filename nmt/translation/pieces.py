"""Divide a line into pieces that are translated one by one, and join their translations.

Tabs separate texts. The marker of a list item and a tag around a text would only disturb its
translation. A text with more tokens or sentences than the model translates as a unit is divided
into segments.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

from nmt.text.lazy_pattern import lazy_pattern
from nmt.text.whitespace import separator, with_surrounding_whitespace, word_indices_at
from nmt.translation.periods import without_added_period
from nmt.translation.result import Part, Place, Translation, concatenate, join
from nmt.translation.segments import FixedSpan, Line, spans_within

_MARKER = lazy_pattern(r"\s*[-–—•*·▪◦‣]\s+(?P<rest>[^\W\d_].*)", re.DOTALL)
_ENCLOSING_TAG = lazy_pattern(
    r"\s*<(?P<name>[a-z][\w-]*)(?:\s[^<>]*)?>(?P<rest>(?:(?!</?(?P=name)\b).)*)</(?P=name)>\s*"
)
_LEADER = lazy_pattern(r"\.{4,}|…{2,}|-{4,}|\.(?:[ \u00a0]\.){3,}")
"""What leads to the page number in a table of contents, or is filled in on a form."""

MAX_SPAN = 100
"""Maximum number of characters of a protected span that is translated with the text around it if it
is divided."""
Span = tuple[int, int]
NBest = list[Translation]
Segmentation = Callable[[Line], Sequence[Span]]
"""Returns the start and end of each segment of a text."""


class Column(NamedTuple):
    """A text between tabs, without a frame such as the marker of a list item, and its segments."""

    text: Line
    before: str
    after: str
    """The frame: the text before and after it, which is equal in both languages. There is none
    after it if there is none before it."""
    segments: Sequence[Span]

    def pieces(self) -> list[Line]:
        """Return the lines to translate. A prefix and constraints apply to the first one."""
        if len(self.segments) < 2:
            return [self.text]
        lines: list[Line] = []
        line = self.text
        without_prefix = replace(line, prefix="", constraints=())
        for span in self.segments:
            lines.append(part_of_line(line, *span))
            line = without_prefix
        return lines

    def join(self, n_best_of_pieces: Sequence[NBest]) -> NBest:
        """Return the n-best list of the column from those of its pieces."""
        if len(n_best_of_pieces) == 1:
            n_best = n_best_of_pieces[0]
        else:
            n_bests = self._without_periods_before_leaders(n_best_of_pieces)
            n_best = join_parts(self.text.text, self.segments, n_bests)
        if not self.before:
            return n_best
        return [self._with_frame(translation) for translation in n_best]

    def _without_periods_before_leaders(self, n_best_of_pieces: Sequence[NBest]) -> list[NBest]:
        n_bests = list(n_best_of_pieces)
        for i, (piece, following) in enumerate(pairwise(self.pieces())):
            if _LEADER.fullmatch(following.text):
                n_bests[i] = [without_added_period(piece, each) for each in n_bests[i]]
        return n_bests

    def _with_frame(self, translation: Translation) -> Translation:
        """Return the translation between the text before and after the words."""
        if self.before[-1].isspace():  # the marker of an item is a word
            first_word = 1
            copy = Translation(self.before, alignment=((0, 0),))
        else:  # a tag is a part of the first word
            first_word = len(self.before.split()) - 1
            copy = Translation(self.before)
        parts = [Part(copy), Part(translation, "", first_word)]
        joined = concatenate(parts)
        return replace(
            translation,
            text=joined.text + self.after,
            alignment=joined.alignment,
            links=joined.links,
        )


def divide(line: Line, prepare: Callable[[Line], Line], segment: Segmentation) -> list[Column]:
    """Return the columns of a line.

    Args:
        line: the line.
        prepare: returns a text with its fixed spans.
        segment: divides a text.
    """
    columns: list[Column] = []
    for between_tabs in _split_at_tabs(line):
        before, text, after = _split_frame(between_tabs)
        prepared = prepare(text)
        segments = segment(prepared)
        columns.append(Column(prepared, before, after, segments))
    return columns


def join_columns(columns: Sequence[Column], n_best_of_columns: Sequence[NBest]) -> NBest:
    """Return the n-best list of a line from those of its columns."""
    if len(columns) == 1:
        return n_best_of_columns[0]
    places: list[Place] = []
    num_words = 0
    for column in columns:
        places.append(Place("\t" if places else "", num_words))
        text = f"{column.before}{column.text.text}{column.after}"
        num_words += len(text.split())
    return join(n_best_of_columns, places)


def join_parts(text: str, spans: Sequence[Span], n_best_of_parts: Sequence[NBest]) -> NBest:
    """Return the n-best list of a text from those of its parts, with the whitespace around and
    between them."""
    starts = [start for start, _ in spans]
    word_indices = word_indices_at(text, starts)
    places: list[Place] = []
    previous_end = 0
    for (start, end), word_index in zip(spans, word_indices, strict=True):
        between = ""
        if places:
            between = separator(text, previous_end, start)
        places.append(Place(between, word_index))
        previous_end = end
    joined = join(n_best_of_parts, places)
    return [replace(each, text=with_surrounding_whitespace(each.text, text)) for each in joined]


def part_of_line(line: Line, start: int, end: int) -> Line:
    """Return a part of a line with its fixed spans."""
    fixed = spans_within(line.fixed, start, end)
    return replace(line, text=line.text[start:end], fixed=fixed)


def segment_around_spans(line: Line, segment: Segmentation) -> list[Span]:
    """Return the segments of a text. Each leader between two texts is one of them, and if there are
    several segments, also each long span that stays as it is.

    Otherwise, a URL with more tokens than the model translates as a unit would be divided.
    """
    segments = list(segment(line))
    own_segments: list[Span] = []
    for span in line.fixed:
        is_long = span.is_opaque and span.end - span.start > MAX_SPAN
        is_divided = is_long and len(segments) > 1
        is_leader = not line.is_constrained and _is_leader(line.text, span)
        if is_divided or is_leader:
            own_segments.append((span.start, span.end))
    if not own_segments:
        return segments
    divided: list[Span] = []
    start = 0
    text_end = len(line.text)
    for own_segment in [*own_segments, (text_end, text_end)]:
        part = part_of_line(line, start, own_segment[0])
        for segment_start, segment_end in segment(part):
            divided.append((start + segment_start, start + segment_end))
        divided.append(own_segment)
        start = own_segment[1]
    return divided[:-1]


def _is_leader(text: str, span: FixedSpan) -> bool:
    """Return whether a span is a row of dots or hyphens that does not interrupt a sentence."""
    following = text[span.end :].lstrip()[:1]
    is_in_sentence = following.islower()
    return _LEADER.fullmatch(span.translation) is not None and not is_in_sentence


def _split_at_tabs(line: Line) -> list[Line]:
    has_tabs = "\t" in line.text.strip()
    if line.is_constrained or not has_tabs:
        return [line]
    parts: list[Line] = []
    start = 0
    for text in line.text.split("\t"):
        end = start + len(text)
        parts.append(part_of_line(line, start, end))
        start = end + 1
    return parts


def _split_frame(line: Line) -> tuple[str, Line, str]:
    """Return the text before the words of a line, the words, and the text after them."""
    match = _MARKER.match(line.text) or _ENCLOSING_TAG.fullmatch(line.text)
    if line.prefix or not match:
        return "", line, ""
    start, end = match.span("rest")
    text = part_of_line(line, start, end)
    return line.text[:start], text, line.text[end:]
