"""Markers, such as those of notes and exponents: text next to a word that is not translated."""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from operator import itemgetter
from typing import TypeVar

from nmt.documents.document import RichText, Tag
from nmt.documents.ranges import Span, overlaps_any
from nmt.documents.rich_text import parents_by_id
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
    inside: list[Tag]
    """The tags in it; their positions are relative to its start."""
    parents: Mapping[int, int | None]
    """By the id of each tag of the text, also of the marker, the id of the tag that contains it."""


def without_markers(rich: RichText) -> tuple[RichText, dict[int, Marker]]:
    """Make a point of each marker, because a model translates `park[1]` as another word.

    Returns:
        the text without the markers, and the markers by the ids of their tags.
    """
    parent_of = parents_by_id(rich.tags)
    starts = {tag.start for tag in rich.tags}
    fixed = sorted((span.start, span.end) for span in rich.fixed)
    markers: dict[int, Marker] = {}
    tags = []
    spans: list[Span] = []
    marker_of: dict[int | None, Tag] = {}  # of the tags in it
    chain_start = 0  # of the adjacent markers that end at `spans[-1][1]`
    for tag in rich.tags:
        marker = marker_of.get(parent_of[tag.id])
        if marker:
            marker_of[tag.id] = marker
            inner = Tag(tag.start - marker.start, tag.end - marker.start, tag.id)
            markers[marker.id].inside.append(inner)
            continue
        tags.append(tag)
        span = (tag.start, tag.end)
        start = chain_start if spans and spans[-1][1] == tag.start else tag.start
        if _is_marker(rich.text, tag, start, starts) and not overlaps_any(span, fixed):
            chain_start = start
            marker_of[tag.id] = tag
            markers[tag.id] = Marker(rich.text[tag.start : tag.end], [], parent_of)
            spans.append(span)
    return _without_spans(replace(rich, tags=tuple(tags)), spans), markers


T = TypeVar("T", Tag, FixedSpan)


def _without_spans(rich: RichText, spans: Sequence[Span]) -> RichText:
    """Remove ranges, which are in order, from a text."""
    removed = [0, *accumulate(end - start for start, end in spans)]

    def moved(position: int) -> int:
        # The spans before the index end before the position.
        i = bisect_left(spans, position, key=itemgetter(1))
        if i < len(spans):
            position = min(position, spans[i][0])
        return position - removed[i]

    def move(each: T) -> T:
        return replace(each, start=moved(each.start), end=moved(each.end))

    text = apply_edits(rich.text, ((*span, "") for span in spans))
    return RichText(text, tuple(map(move, rich.tags)), tuple(map(move, rich.fixed)))


def _is_marker(text: str, tag: Tag, start: int, starts: Container[int]) -> bool:
    """Return whether a tag is a marker.

    Args:
        text: the text.
        tag: the tag.
        start: its start, or that of the adjacent markers before it.
        starts: the positions where tags start.
    """
    is_after_space = not text[max(0, start - 1) : start].strip()
    is_in_word = tag.end not in starts and text[tag.end : tag.end + 1].isalnum()
    if is_after_space or is_in_word or tag.end - tag.start > MAX_LENGTH:
        return False
    marker = text[tag.start : tag.end]
    if _MARKER.fullmatch(marker):
        return True
    if start < tag.start and marker in (",", ";"):  # between two markers
        return True
    word_end = _WORD_END.search(text[max(0, start - _MAX_WORD_END) : start])
    is_after_word = word_end is not None and word_end[1].islower()  # not CO2 or $50
    return is_after_word and _NUMBER.fullmatch(marker) is not None


def with_markers(rich: RichText, markers: Mapping[int, Marker]) -> RichText:
    """Insert the text of markers, whose tags are points."""
    if not markers:
        return rich
    inserted = _Insertion(rich, markers)
    tags = []
    for i, tag in enumerate(rich.tags):
        start = inserted.start(tag, i)
        tags.append(Tag(start, inserted.end(tag, i), tag.id))
        if tag.id in markers:
            for inner in markers[tag.id].inside:
                tags.append(Tag(start + inner.start, start + inner.end, inner.id))
    return replace(rich, text=inserted.text, tags=tuple(tags))


class _Insertion:
    """The positions in a text with markers."""

    def __init__(self, rich: RichText, markers: Mapping[int, Marker]) -> None:
        self._places: list[tuple[int, int]] = []
        """Position of each marker, and the index of its tag."""
        for i, tag in enumerate(rich.tags):
            if tag.id in markers:
                self._places.append((tag.start, i))
        self._places.sort()
        self._inside = _lengths_inside(rich.tags, markers)
        self._lengths = [0]
        """Length of the markers before each one, and of all."""
        pieces = []
        position = 0
        for start, i in self._places:
            marker = markers[rich.tags[i].id]
            self._lengths.append(self._lengths[-1] + len(marker.text))
            pieces.append(rich.text[position:start])
            pieces.append(marker.text)
            position = start
        pieces.append(rich.text[position:])
        self.text = "".join(pieces)

    def start(self, tag: Tag, i: int) -> int:
        """Return the start of the tag with index `i`."""
        if tag.start == tag.end:
            return self._moved(tag.start, i)
        # Of the markers at its start, only those inside of it come after the start.
        start = self._moved(tag.start, math.inf)
        return start - self._inside[tag.id, tag.start]

    def end(self, tag: Tag, i: int) -> int:
        """Return the end of the tag with index `i`."""
        end = self._moved(tag.end, i)
        return end + self._inside[tag.id, tag.end]

    def _moved(self, position: int, i: float) -> int:
        """Return where a position is after the markers before it, and those there before tag
        `i`."""
        num_before = bisect_left(self._places, (position, i))
        return position + self._lengths[num_before]


def _lengths_inside(
    tags: Sequence[Tag], markers: Mapping[int, Marker]
) -> Counter[tuple[int | None, int]]:
    """Return the length of the markers inside of a tag at its start or end, by the id of the tag
    and the position.

    A marker is inside of the tag if it was in the source.
    """
    parent_of = next(iter(markers.values())).parents  # the same for all
    lengths = Counter[tuple[int | None, int]]()
    for tag in reversed(tags):  # a tag comes before the tags in it
        if tag.id in markers:
            lengths[tag.id, tag.start] = len(markers[tag.id].text)
        for position in {tag.start, tag.end}:
            lengths[parent_of.get(tag.id), position] += lengths[tag.id, position]
    return lengths
