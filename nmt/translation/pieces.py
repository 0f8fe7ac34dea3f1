"""Divide a line into pieces that are translated one by one, and join their translations.

Tabs separate texts. The marker of a list item and a tag around a text would only disturb its
translation. A text with more tokens or sentences than the model translates as a unit is divided
into segments.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from nmt.text.whitespace import separator, surrounding_whitespace
from nmt.translation.result import Part, Place, Translation, concatenate, join
from nmt.translation.segments import Line, spans_within

_MARKER = re.compile(r"\s*[-–—•*·▪◦‣]\s+(?=[^\W\d_])")
_ENCLOSING_TAG = re.compile(
    r"\s*<(?P<name>[a-z][\w-]*)(?:\s[^<>]*)?>(?P<rest>(?:(?!</?(?P=name)\b).)*)</(?P=name)>\s*"
)

MAX_SPAN = 100
"""Maximum number of characters of a protected span that is translated with the text around it if it
is divided."""
Span = tuple[int, int]
NBest = list[Translation]


@dataclass(frozen=True)
class Column:
    """A text between tabs, without a frame such as the marker of a list item, and its segments."""

    text: Line
    before: str
    after: str
    """The frame: the text before and after it, which is equal in both languages."""
    segments: Sequence[Span]

    def pieces(self) -> list[Line]:
        """Return the lines to translate. A prefix and constraints apply to the first one."""
        if len(self.segments) < 2:
            return [self.text]
        first, *others = (part_of_line(self.text, *span) for span in self.segments)
        return [replace(first, prefix=self.text.prefix, constraints=self.text.constraints), *others]

    def join(self, n_best_of_pieces: Sequence[NBest]) -> NBest:
        """Return the n-best list of the column from those of its pieces."""
        if len(n_best_of_pieces) == 1:
            n_best = n_best_of_pieces[0]
        else:
            n_best = join_parts(self.text.text, self.segments, n_best_of_pieces)
        if not (self.before or self.after):
            return n_best
        return [_with_frame(self.before, each, self.after) for each in n_best]


def divide(
    line: Line, prepare: Callable[[Line], Line], segment: Callable[[Line], Sequence[Span]]
) -> list[Column]:
    """Return the columns of a line.

    Args:
        line: the line.
        prepare: returns a text with its fixed spans.
        segment: returns the start and end of each segment of a text.
    """
    columns: list[Column] = []
    for between_tabs in _split_at_tabs(line):
        before, text, after = _split_frame(between_tabs)
        prepared = prepare(text)
        columns.append(Column(prepared, before, after, segment(prepared)))
    return columns


def join_columns(columns: Sequence[Column], n_best_of_columns: Sequence[NBest]) -> NBest:
    """Return the n-best list of a line from those of its columns."""
    if len(columns) == 1:
        return n_best_of_columns[0]
    places: list[Place] = []
    num_words = 0
    for column in columns:
        places.append(Place("\t" if places else "", num_words))
        num_words += len(f"{column.before}{column.text.text}{column.after}".split())
    return join(n_best_of_columns, places)


def join_parts(text: str, spans: Sequence[Span], n_best_of_parts: Sequence[NBest]) -> NBest:
    """Return the n-best list of a text from those of its parts, with the whitespace around and
    between them."""
    separators = [""]
    for (_, end), (start, _) in pairwise(spans):
        separators.append(separator(text, end, start))
    word_indices = word_indices_at(text, (start for start, _ in spans))
    places = list(map(Place, separators, word_indices))
    before, after = surrounding_whitespace(text)
    return [
        replace(each, text=f"{before}{each.text}{after}") for each in join(n_best_of_parts, places)
    ]


def part_of_line(line: Line, start: int, end: int) -> Line:
    """Return a part of a line with its fixed spans, without a prefix and constraints."""
    text = line.text[start:end]
    return replace(
        line, text=text, prefix="", constraints=(), fixed=spans_within(line.fixed, start, end)
    )


def segment_around_long_spans(line: Line, segment: Callable[[Line], Sequence[Span]]) -> list[Span]:
    """Return the segments of a text. If it has several, each long span that stays as it is is one
    of them.

    Otherwise, a URL with more tokens than the model translates as a unit would be divided.
    """
    segments = list(segment(line))
    long_spans = [
        span for span in line.fixed if span.is_opaque and span.end - span.start > MAX_SPAN
    ]
    if len(segments) < 2 or not long_spans:
        return segments
    divided: list[Span] = []
    starts = [0, *(span.end for span in long_spans)]
    ends = [*(span.start for span in long_spans), len(line.text)]
    for i, start in enumerate(starts):
        for segment_start, segment_end in segment(part_of_line(line, start, ends[i])):
            divided.append((start + segment_start, start + segment_end))
        if i < len(long_spans):
            divided.append((long_spans[i].start, long_spans[i].end))
    return divided


def word_indices_at(text: str, starts: Iterable[int]) -> list[int]:
    """Return the indices of the words at or after some offsets, which are in order."""
    indices: list[int] = []
    num_words = 0
    counted = 0
    for start in starts:
        num_words += len(text[counted:start].split())
        if counted < start and is_inside_word(text, counted):
            num_words -= 1  # it was counted before
        counted = start
        indices.append(num_words - is_inside_word(text, start))
    return indices


def is_inside_word(text: str, position: int) -> bool:
    """Return whether the characters before and after a position are both in a word."""
    return 0 < position < len(text) and not (
        text[position - 1].isspace() or text[position].isspace()
    )


def _split_at_tabs(line: Line) -> list[Line]:
    if "\t" not in line.text.strip() or line.prefix or line.constraints:
        return [line]
    tabs = [match.start() for match in re.finditer("\t", line.text)]
    starts = [0, *(tab + 1 for tab in tabs)]
    ends = [*tabs, len(line.text)]
    return [part_of_line(line, start, end) for start, end in zip(starts, ends, strict=True)]


def _split_frame(line: Line) -> tuple[str, Line, str]:
    """Return the text before the words of a line, the words, and the text after them."""
    match = None if line.prefix else _MARKER.match(line.text) or _ENCLOSING_TAG.fullmatch(line.text)
    if not match:
        return "", line, ""
    start, end = (
        match.span("rest") if "rest" in match.groupdict() else (match.end(), len(line.text))
    )
    rest = replace(line, text=line.text[start:end], fixed=spans_within(line.fixed, start, end))
    return line.text[:start], rest, line.text[end:]


def _with_frame(before: str, translation: Translation, after: str) -> Translation:
    """Return the translation between the text before and after the words."""
    num_words = len(before.split())
    is_word = before[-1:].isspace()  # a tag is a part of the first word
    copy = Translation(
        before, 0.0, 0.0, alignment=tuple((i, i) for i in range(num_words)) if is_word else ()
    )
    joined = concatenate(
        [Part(copy), Part(translation, "", num_words if is_word else max(0, num_words - 1))]
    )
    return replace(
        translation, text=joined.text + after, alignment=joined.alignment, links=joined.links
    )
