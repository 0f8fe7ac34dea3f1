"""Operations on rich text: cut it into parts, join parts, and write it with its markup."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from enum import Enum, auto
from functools import cache
from itertools import chain, groupby, islice
from operator import attrgetter, itemgetter
from types import MappingProxyType

from nmt.documents.document import MAX_NESTING, Parents, RichText, Tag
from nmt.documents.ranges import Nearest, Span, by_end, by_start, overlap
from nmt.translation.segments import spans_within


class Event(Enum):
    """What comes next in a rich text."""

    TEXT = auto()
    OPEN = auto()
    CLOSE = auto()


def events(
    rich: RichText, parent_of: Parents = MappingProxyType({})
) -> Iterator[tuple[Event, str, Tag | None]]:
    """Yield text, and the start and end of each tag, in nested order; a point starts and ends at
    once.

    Args:
        rich: the text.
        parent_of: by the id of a tag, the id of the tag that contains it in the source. A point at
            the end of a tag is inside of it only if it was there in the source.
    """
    position = 0
    for border, event, tag in borders(rich.tags, parent_of):
        if position < border:
            yield Event.TEXT, rich.text[position:border], None
            position = border
        yield event, "", tag
    if position < len(rich.text):
        yield Event.TEXT, rich.text[position:], None


def borders(tags: Iterable[Tag], parent_of: Parents) -> Iterator[tuple[int, Event, Tag]]:
    """Yield the positions where tags start and end."""
    open_tags: list[Tag] = []
    for tag in sorted(tags, key=by_start):
        while open_tags:
            last = open_tags[-1]
            is_inside = tag.is_point and parent_of.get(tag.id) == last.id
            if last.end > tag.start or (last.end == tag.start and is_inside):
                break
            yield last.end, Event.CLOSE, last
            open_tags.pop()
        yield tag.start, Event.OPEN, tag
        open_tags.append(tag)
    for tag in reversed(open_tags):
        yield tag.end, Event.CLOSE, tag


def points_outside_before_tags(tags: Iterable[Tag], parent_of: Parents) -> tuple[Tag, ...]:
    """Sort tags so that a point at the start of a tag comes before it, unless it is inside of it in
    the source."""
    indices: dict[int | None, tuple[int, int]] = {}  # of tags with text: start, index
    ordered: list[tuple[tuple[int, int], Tag]] = []
    last = (0, -1)  # index of the tag that the last point is after
    for i, tag in enumerate(sorted(tags, key=by_start)):
        index = (tag.start, i)
        if tag.is_point:
            parent = indices.get(parent_of.get(tag.id), last)
            index = last = max(last, parent, (tag.start, -1))
        else:
            indices[tag.id] = index
        ordered.append((index, tag))
    ordered.sort(key=itemgetter(0))
    return tuple(tag for _, tag in ordered)


def cut(rich: RichText, spans: Sequence[Span]) -> list[RichText]:
    """Return the parts of a text, in order, without what is between them.

    A tag that spans several parts is in each of them. A point between two parts, and a tag of text
    that is in no part, becomes a point at the end of the previous part. A tag in many others is
    only in its first part.
    """
    if list(spans) == [(0, len(rich.text))]:
        return [rich]
    tags_of_parts: list[list[Tag]] = [[] for _ in spans]
    ends: list[int] = []  # of the tags around a tag
    for tag in rich.tags:
        while ends and ends[-1] <= tag.start:
            ends.pop()
        max_parts = len(spans) if len(ends) < MAX_NESTING else 1
        ends.append(tag.end)
        overlaps = list(islice(_overlaps(tag, spans), max_parts))
        for i in overlaps or [max(0, _last_start(spans, tag.start))]:
            tags_of_parts[i].append(_clipped(tag, spans[i]))
    parts = []
    for (start, end), tags in zip(spans, tags_of_parts, strict=True):
        fixed = spans_within(rich.fixed, start, end)
        parts.append(RichText(rich.text[start:end], tuple(tags), fixed))
    return parts


def _clipped(tag: Tag, span: Span) -> Tag:
    """Return the part of a tag in a range; if it is outside, the nearest point."""
    start, end = span
    tag_start = min(max(tag.start, start), end)
    tag_end = max(tag_start, min(tag.end, end))
    return Tag(tag_start, tag_end, tag.id).moved(-start)


def _last_start(spans: Sequence[Span], position: int) -> int:
    """Return the index of the last range that starts at or before a position; -1: there is none."""
    return bisect_right(spans, position, key=itemgetter(0)) - 1


def _overlaps(tag: Tag, spans: Sequence[Span]) -> Iterator[int]:
    """Yield the indices of the ranges that have a character of a tag. Ranges are in order and do
    not overlap."""
    first = bisect_right(spans, tag.start, key=itemgetter(1))
    last = bisect_left(spans, tag.end, key=itemgetter(0))
    for i in range(first, last):
        if overlap(tag.span, spans[i]):
            yield i


def join(parts: Iterable[RichText], separator: str = "") -> RichText:
    """Join the parts of a text.

    Tags with the same id that only the separator, which is whitespace, divides become one.
    """
    texts = []
    position = 0
    tags: list[Tag] = []
    last: dict[int, int] = {}  # indices of the tags after which there is only space, by id
    for part in parts:
        texts.append(part.text)
        text_end = len(part.text.rstrip())
        following = {} if text_end else last.copy()
        outer = -1  # the innermost tag so far that starts at the start of the part
        for tag in part.tags:
            moved = tag.moved(position)
            is_first = tag.start == 0 and not tag.is_point
            i = last.get(tag.id, -1) if is_first else -1
            # A tag that continues must stay inside the tag around it.
            if i > outer and (outer < 0 or tags[outer].start <= tags[i].start):
                tags[i] = replace(moved, start=tags[i].start)
            else:
                i = len(tags)
                tags.append(moved)
            if is_first:
                outer = i
            if tag.end >= text_end and not tag.is_point:
                following[tag.id] = i
        last = following
        position += len(part.text) + len(separator)
    return RichText(separator.join(texts), _outer_first(tags))


def with_fixed_tags(rich: RichText, fixed: Mapping[int, str]) -> RichText:
    """Move the tags of fixed text to where the text is, because it is found more reliably than by
    word alignment.

    Args:
        rich: a translation.
        fixed: by the id of a tag, its text.
    """
    tags = []
    borders = Counter(chain.from_iterable(tag.span for tag in rich.tags))
    used: set[int] = set()  # starts of the fixed texts so far

    @cache
    def starts_of(text: str) -> Nearest:
        return Nearest(match.start() for match in re.finditer(re.escape(text), rich.text))

    for tag in rich.tags:
        text = fixed.get(tag.id)
        start: int | None = tag.start
        if text and rich.text[tag.start : tag.end] != text:
            start = starts_of(text).find(0, lambda start: start not in used)
        if text and start is not None:
            placed = Tag(start, start + len(text), tag.id)
            if placed == tag or not any(map(borders.get, range(start + 1, placed.end))):
                used.add(start)
                borders.subtract(tag.span)
                borders.update(placed.span)
                tag = placed
        tags.append(tag)
    return replace(rich, tags=_outer_first(tags))


def _outer_first(tags: Iterable[Tag]) -> tuple[Tag, ...]:
    """Sort tags; those that start at the same position stay in order, except for an inner tag
    before an outer tag. No tag passes a point."""
    ordered = []
    place = attrgetter("start", "is_point")
    for _, group in groupby(sorted(tags, key=by_start), place):
        ordered += sorted(group, key=by_end, reverse=True)
    return tuple(ordered)


def _is_inside(tag: Tag, gap: Span, length: int) -> bool:
    """Return whether a tag is inside a range between the sections of a text of some length. A point
    next to a section is in that section."""
    start, end = gap
    if not tag.is_point:
        return start <= tag.start and tag.end <= end
    is_after_section = start < tag.start or start == 0
    return is_after_section and (tag.end < end or end == length)


def _with_spaces(text: str, start: int, end: int) -> Span:
    """Extend a range to the whitespace around it."""
    while start > 0 and text[start - 1].isspace():
        start -= 1
    while end < len(text) and text[end].isspace():
        end += 1
    return start, end


def _outside(gaps: Iterable[Span], length: int) -> list[Span]:
    """Return the parts of a text of some length that are in none of some ranges."""
    spans = []
    position = 0
    for start, end in [*sorted(gaps), (length, length)]:
        if position < start:
            spans.append((position, start))
        position = max(position, end)
    return spans


def _divide_tags(
    rich: RichText, sections: Sequence[Span], between: Sequence[Span]
) -> tuple[list[Tag], dict[Span, list[Tag]]]:
    """Return the tags of sections, and those in each range between them."""
    in_sections = []
    free: dict[Span, list[Tag]] = {gap: [] for gap in between}
    end_of_sections = -1  # of the tags so far that have text of a section
    for tag in sorted(rich.tags, key=by_start):  # an outer tag comes before the tags in it
        gap = between[_last_start(between, tag.start)]
        if any(True for _ in _overlaps(tag, sections)):
            end_of_sections = max(end_of_sections, tag.end)
        if tag.end <= end_of_sections or not _is_inside(tag, gap, len(rich.text)):
            in_sections.append(tag)
        else:
            free[gap].append(tag)
    return in_sections, free


class Sections:
    """A text that is translated in sections, such as lines: what is between them, also a tag, stays
    in its place."""

    def __init__(
        self, rich: RichText, separator: re.Pattern[str], syntax: Iterable[Span] = ()
    ) -> None:
        """Cut a text at the characters that `separator` matches, and at further ranges, such as the
        syntax of a message.

        The separators and the whitespace around them are kept.
        """
        self.rich = rich
        self._separator = separator
        pattern = re.compile(
            rf"(?<!\s)\s*(?:{separator.pattern})(?:\s|{separator.pattern})*|(?<!\s)\s+\Z|\A\s+"
        )
        gaps = [match.span() for match in pattern.finditer(rich.text)]
        gaps += [_with_spaces(rich.text, *span) for span in syntax]
        spans = _outside(gaps, len(rich.text))
        edges = [0, *chain.from_iterable(spans), len(rich.text)]
        between = list(zip(edges[::2], edges[1::2], strict=True))
        in_sections, free = _divide_tags(rich, spans, between)
        self.blocks = cut(replace(rich, tags=tuple(in_sections)), spans) if spans else []
        self._between: list[RichText] = []
        for gap, tags in free.items():
            self._between += cut(RichText(rich.text, tuple(tags)), [gap])

    def join(self, translations: Sequence[RichText]) -> RichText:
        """Return the text with the translations of its blocks."""
        if list(translations) == self.blocks:
            return self.rich
        parts = self._between[:1]
        for translation, gap in zip(translations, self._between[1:], strict=True):
            # The number of separators must not change.
            text = self._separator.sub(" ", translation.text)
            parts += [replace(translation, text=text), gap]
        return join(parts)
