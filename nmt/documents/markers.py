"""Markers, such as those of notes and exponents: text next to a word that is not translated."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from operator import itemgetter
from typing import TypeVar

from nmt.documents.document import Parents, RichText, Tag, parents
from nmt.documents.ranges import Span, overlaps_any, span_of
from nmt.documents.rich_text import Event, borders, points_outside_before_tags
from nmt.text.spans import apply_edits
from nmt.translation.segments import FixedSpan

MAX_LENGTH = 100
"""Maximum number of characters of a marker."""

_MARKER = re.compile(r"\[(?:\d[\d,;–-]*|[a-z]{1,2})\]|[*†‡§¶]+")
"""Text of a note marker."""
_NUMBER = re.compile(r"\(?\d{1,3}(?:[,;–-]\d{1,3})*\)?")
"""Text of a note marker after a lower-case word, or of an exponent, as in m²."""
_WORD_END = re.compile(r"(\w)[.,;:!?'\"”’)\]]*\Z")
_MAX_WORD_END = 5
"""Number of characters in which the end of a word is searched."""


@dataclass(frozen=True)
class Marker:
    """Markup with a text that is not translated, next to a word: a note marker or an exponent."""

    text: str
    start: int
    inside: list[Tag] = field(default_factory=list)
    """The tags in it."""


def without_markers(rich: RichText) -> tuple[RichText, dict[int, Marker]]:
    """Make a point of each marker, because a model translates `park[1]` as another word.

    Returns:
        the text without the markers, and the markers by the ids of their tags.
    """
    parent_of = parents(rich.tags)
    starts = {tag.start for tag in rich.tags}
    fixed = sorted(map(span_of, rich.fixed))
    markers = {}
    marker_of: dict[int | None, Marker] = {}  # of the tags in it
    tags = []
    spans = []
    chain_starts: dict[int, int] = {}  # of adjacent markers, by the end of the last one
    for tag in rich.tags:
        marker = marker_of.get(parent_of[tag.id])
        if marker:
            marker_of[tag.id] = marker
            marker.inside.append(tag)
            continue
        tags.append(tag)
        start = chain_starts.get(tag.start, tag.start)
        if _is_marker(rich.text, tag, start, starts) and not overlaps_any(tag.span, fixed):
            chain_starts[tag.end] = start
            marker = Marker(rich.text[tag.start : tag.end], tag.start)
            markers[tag.id] = marker
            marker_of[tag.id] = marker
            spans.append(tag.span)
    return _without_spans(rich, tags, spans), markers


T = TypeVar("T", Tag, FixedSpan)


def _without_spans(rich: RichText, tags: Iterable[Tag], spans: Sequence[Span]) -> RichText:
    """Return a text with some tags and without ranges, which are in order."""
    lengths = (end - start for start, end in spans)
    removed = [0, *accumulate(lengths)]

    def moved(position: int) -> int:
        # The spans before the index end before the position.
        i = bisect_left(spans, position, key=itemgetter(1))
        if i < len(spans):
            position = min(position, spans[i][0])
        return position - removed[i]

    def move(each: T) -> T:
        start = moved(each.start)
        end = moved(each.end)
        return replace(each, start=start, end=end)

    edits = ((*span, "") for span in spans)
    text = apply_edits(rich.text, edits)
    moved_tags = map(move, tags)
    fixed = map(move, rich.fixed)
    return RichText(text, tuple(moved_tags), tuple(fixed))


def _is_marker(text: str, tag: Tag, start: int, starts: Container[int]) -> bool:
    """Return whether a tag is a marker.

    Args:
        text: the text.
        tag: the tag.
        start: its start, or that of the adjacent markers before it.
        starts: the positions where tags start.
    """
    first = max(0, start - _MAX_WORD_END)
    before = text[first:start]
    after = text[tag.end : tag.end + 1]
    marker = text[tag.start : tag.end]
    is_after_space = before[-1:].strip() == ""
    is_in_word = after.isalnum() and tag.end not in starts
    if is_after_space or is_in_word or len(marker) > MAX_LENGTH:
        return False
    if _MARKER.fullmatch(marker):
        return True
    if start < tag.start and marker in (",", ";"):  # between two markers
        return True
    word_end = _WORD_END.search(before)
    is_after_word = word_end is not None and word_end[1].islower()  # not CO2 or $50
    is_number = _NUMBER.fullmatch(marker) is not None
    return is_after_word and is_number


def with_markers(rich: RichText, markers: Mapping[int, Marker], parent_of: Parents) -> RichText:
    """Insert the text of markers, whose tags are points.

    Args:
        rich: the text.
        markers: the markers by the ids of their tags.
        parent_of: by the id of each tag, the id of the tag that contained it with the markers.
    """
    if not markers:
        return rich
    tags = points_outside_before_tags(rich.tags, parent_of)
    text = ""
    position = 0
    starts = {}
    ends = {}
    for border, event, tag in borders(tags, parent_of):
        text += rich.text[position:border]
        position = border
        if event is Event.CLOSE:
            ends[tag.id] = len(text)
            continue
        starts[tag.id] = len(text)
        if tag.id in markers:
            text += markers[tag.id].text
    placed = []
    for tag in rich.tags:
        start = starts[tag.id]
        placed.append(Tag(start, ends[tag.id], tag.id))
        if tag.id in markers:
            marker = markers[tag.id]
            placed += (inner.moved(start - marker.start) for inner in marker.inside)
    text += rich.text[position:]
    return replace(rich, text=text, tags=tuple(placed))
