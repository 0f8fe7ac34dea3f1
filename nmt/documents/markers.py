"""Markers, such as those of notes and exponents: text next to a word that is not translated."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from nmt.documents.document import RichText, Tag, parents
from nmt.documents.ranges import Span, overlaps_any
from nmt.text.spans import apply_edits

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
    ids = (tag.id for tag in rich.tags)
    parent_of = dict(zip(ids, parents(rich.tags), strict=True))
    starts = {tag.start for tag in rich.tags}
    fixed = sorted((span.start, span.end) for span in rich.fixed)
    markers: dict[int, Marker] = {}
    tags: list[Tag] = []
    spans: list[Span] = []
    marker_of: dict[int | None, Tag] = {}  # of the tags in it
    chain_start = 0  # of the adjacent markers that end at `spans[-1][1]`
    for tag in rich.tags:
        outer = marker_of.get(parent_of[tag.id])
        if outer:
            marker_of[tag.id] = outer
            markers[outer.id].inside.append(
                Tag(tag.start - outer.start, tag.end - outer.start, tag.id)
            )
            continue
        tags.append(tag)
        is_in_chain = bool(spans) and spans[-1][1] == tag.start
        start = chain_start if is_in_chain else tag.start
        if _is_marker(rich.text, tag, start, starts) and not overlaps_any(
            (tag.start, tag.end), fixed
        ):
            chain_start = start
            marker_of[tag.id] = tag
            markers[tag.id] = Marker(rich.text[tag.start : tag.end], [], parent_of)
            spans.append((tag.start, tag.end))
    return _without_spans(replace(rich, tags=tuple(tags)), spans), markers


def _without_spans(rich: RichText, spans: Sequence[Span]) -> RichText:
    """Remove ranges, which are in order, from a text."""
    ends = [end for _, end in spans]
    removed = [0, *accumulate(end - start for start, end in spans)]

    def moved(position: int) -> int:
        i = bisect_left(ends, position)  # the spans before it end before the position
        is_inside = i < len(spans) and spans[i][0] < position
        return (spans[i][0] if is_inside else position) - removed[i]

    tags = [Tag(moved(tag.start), moved(tag.end), tag.id) for tag in rich.tags]
    fixed = [replace(span, start=moved(span.start), end=moved(span.end)) for span in rich.fixed]
    text = apply_edits(rich.text, ((*span, "") for span in spans))
    return RichText(text, tuple(tags), tuple(fixed))


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
    tags: list[Tag] = []
    for i, tag in enumerate(rich.tags):
        start = inserted.start(tag, i)
        end = inserted.end(tag, i)
        tags.append(Tag(start, end, tag.id))
        if tag.id not in markers:
            continue
        for inner in markers[tag.id].inside:
            tags.append(Tag(start + inner.start, start + inner.end, inner.id))
    return replace(rich, text=inserted.text, tags=tuple(tags))


class _Insertion:
    """The positions in a text with markers."""

    def __init__(self, rich: RichText, markers: Mapping[int, Marker]) -> None:
        places: list[tuple[int, int]] = []
        for i, tag in enumerate(rich.tags):
            if tag.id in markers:
                places.append((tag.start, i))
        self._places = sorted(places)
        """Position of each marker, and the index of its tag."""
        self._lengths = [0]
        """Length of the markers before each one, and of all."""
        pieces: list[str] = []
        position = 0
        for start, i in self._places:
            text = markers[rich.tags[i].id].text
            self._lengths.append(self._lengths[-1] + len(text))
            pieces.append(rich.text[position:start])
            pieces.append(text)
            position = start
        pieces.append(rich.text[position:])
        self.text = "".join(pieces)
        self._inside = _lengths_inside(rich.tags, markers)

    def start(self, tag: Tag, i: int) -> int:
        """Return the start of the tag with index `i`."""
        if tag.start == tag.end:
            return tag.start + self._length_before((tag.start, i))
        # Of the markers at its start, only those inside of it come after the start.
        length = self._length_before((tag.start + 1, -1))
        return tag.start + length - self._inside.get((tag.id, tag.start), 0)

    def end(self, tag: Tag, i: int) -> int:
        """Return the end of the tag with index `i`."""
        length = self._length_before((tag.end, i))
        return tag.end + length + self._inside.get((tag.id, tag.end), 0)

    def _length_before(self, place: tuple[int, int]) -> int:
        """Return the length of the markers before a position and the index of a tag there."""
        return self._lengths[bisect_left(self._places, place)]


def _lengths_inside(
    tags: Sequence[Tag], markers: Mapping[int, Marker]
) -> dict[tuple[int, int], int]:
    """Return the length of the markers inside of a tag at its start or end, by the id of the tag
    and the position.

    A marker is inside of the tag if it was in the source.
    """
    parent_of = next(iter(markers.values())).parents  # the same for all
    lengths: dict[tuple[int, int], int] = defaultdict(int)
    for tag in reversed(tags):  # a tag comes before the tags in it
        if tag.id in markers:
            lengths[tag.id, tag.start] += len(markers[tag.id].text)
        parent = parent_of.get(tag.id)
        if parent is None:
            continue
        for position in {tag.start, tag.end}:
            length = lengths.get((tag.id, position), 0)
            if length:
                lengths[parent, position] += length
    return lengths
