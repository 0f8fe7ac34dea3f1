"""Operations on rich text: cut it into parts, join parts, and write it with its markup."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from enum import Enum, auto
from itertools import chain, groupby, islice
from operator import attrgetter, itemgetter
from types import MappingProxyType

from nmt.documents.document import MAX_NESTING, Parents, RichText, Tag
from nmt.documents.ranges import Span, by_end, by_start, overlap
from nmt.translation.segments import FixedSpan, spans_within

_SECTION = re.compile(r"\S(?:.*\S)?")


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
            text = rich.text[position:border]
            yield Event.TEXT, text, None
            position = border
        yield event, "", tag
    rest = rich.text[position:]
    if rest:
        yield Event.TEXT, rest, None


def borders(tags: Iterable[Tag], parent_of: Parents) -> Iterator[tuple[int, Event, Tag]]:
    """Yield the positions where tags start and end."""
    open_tags: list[Tag] = []
    for tag in sorted(tags, key=by_start):
        while open_tags:
            last = open_tags[-1]
            if tag.start < last.end:
                break
            parent = parent_of.get(tag.id)
            is_inside = tag.is_point and parent == last.id
            if last.end == tag.start and is_inside:
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
    ordered = []
    last = (0, -1)  # index of the tag that the last point is after
    for i, tag in enumerate(sorted(tags, key=by_start)):
        index = (tag.start, i)
        if tag.is_point:
            parent = parent_of.get(tag.id)
            index_of_parent = indices.get(parent, last)
            before_tags = (tag.start, -1)
            last = max(last, index_of_parent, before_tags)
            index = last
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

    Args:
        rich: the text.
        spans: the ranges of the parts, at least one.
    """
    whole = (0, len(rich.text))
    if list(spans) == [whole]:
        return [rich]
    tags_of_parts: list[list[Tag]] = [[] for _ in spans]
    ends: list[int] = []  # of the tags around a tag
    for tag in rich.tags:
        while ends and ends[-1] <= tag.start:
            ends.pop()
        max_parts = len(spans) if len(ends) <= MAX_NESTING else 1
        ends.append(tag.end)
        indices = list(islice(_overlaps(tag, spans), max_parts))
        if not indices:
            nearest = _last_start(spans, tag.start)
            indices = [max(0, nearest)]
        for i in indices:
            clipped = _clipped(tag, spans[i])
            tags_of_parts[i].append(clipped)
    parts = []
    for span, tags in zip(spans, tags_of_parts, strict=True):
        start, end = span
        text = rich.text[start:end]
        fixed = spans_within(rich.fixed, start, end)
        parts.append(RichText(text, tuple(tags), fixed))
    return parts


def _clipped(tag: Tag, span: Span) -> Tag:
    """Return the part of a tag in a range; if it is outside, the nearest point."""
    start, end = span
    tag_start = max(tag.start, start)
    tag_start = min(tag_start, end)
    tag_end = min(tag.end, end)
    tag_end = max(tag_start, tag_end)
    return replace(tag, start=tag_start - start, end=tag_end - start)


def _last_start(spans: Sequence[Span], position: int) -> int:
    """Return the index of the last range that starts at or before a position; -1: there is none."""
    num_started = bisect_right(spans, position, key=itemgetter(0))
    return num_started - 1


def _overlaps(tag: Tag, spans: Sequence[Span]) -> Iterator[int]:
    """Yield the indices of the ranges that have a character of a tag. Ranges are in order and do
    not overlap."""
    first = bisect_right(spans, tag.start, key=itemgetter(1))
    last = bisect_left(spans, tag.end, key=itemgetter(0))
    for i in range(first, last):
        span = spans[i]
        if overlap(tag.span, span):
            yield i


def join(parts: Iterable[RichText], separator: str = "") -> RichText:
    """Join the parts of a text.

    Tags with the same id that only the separator, which is whitespace, divides become one.
    """
    texts = []
    position = 0
    tags: list[Tag] = []
    fixed: list[FixedSpan] = []
    last: dict[int, int] = {}  # indices of the tags after which there is only space, by id
    for part in parts:
        texts.append(part.text)
        fixed += [span.moved(position) for span in part.fixed]
        last = _append_tags(tags, part, position, last)
        position += len(part.text) + len(separator)
    text = separator.join(texts)
    return RichText(text, outer_first(tags), tuple(fixed))


def _append_tags(
    tags: list[Tag], part: RichText, position: int, last: Mapping[int, int]
) -> dict[int, int]:
    """Add the tags of the next part to those before it, or continue these.

    Args:
        tags: the tags so far, which this changes.
        part: the part.
        position: where it starts.
        last: indices of the tags that may continue, by id.

    Returns:
        Indices of the tags that may continue in the part after it.
    """
    text_end = len(part.text.rstrip())
    following = {}
    if not text_end:
        following = dict(last)
    outer = -1  # the innermost tag so far that starts at the start of the part
    for tag in part.tags:
        moved = tag.moved(position)
        if tag.is_point:
            tags.append(moved)
            continue
        is_at_start = tag.start == 0
        i = -1
        if is_at_start:
            i = last.get(tag.id, -1)
        # A tag that continues stays inside the tag around it.
        stays_inside = outer < 0 or tags[outer].start <= tags[i].start
        if i > outer and stays_inside:
            start = tags[i].start
            tags[i] = replace(moved, start=start)
        else:
            i = len(tags)
            tags.append(moved)
        if is_at_start:
            outer = i
        if tag.end >= text_end:
            following[tag.id] = i
    return following


def outer_first(tags: Iterable[Tag]) -> tuple[Tag, ...]:
    """Sort tags; those that start at the same position stay in order, except for an inner tag
    before an outer tag. No tag passes a point."""
    ordered = []
    place = attrgetter("start", "is_point")
    by_place = sorted(tags, key=by_start)
    for _, group in groupby(by_place, place):
        ordered += sorted(group, key=by_end, reverse=True)
    return tuple(ordered)


def _is_inside(tag: Tag, gap: Span, length: int) -> bool:
    """Return whether a tag is inside a range between the sections of a text of some length. A point
    next to a section is in that section."""
    start, end = gap
    if not tag.is_point:
        return start <= tag.start and tag.end <= end
    is_after_section = start < tag.start or start == 0
    is_before_section = tag.end < end or end == length
    return is_after_section and is_before_section


def _divide_tags(
    rich: RichText, sections: Sequence[Span], between: Sequence[Span]
) -> tuple[list[Tag], dict[Span, list[Tag]]]:
    """Return the tags of sections, and those in each range between them."""
    in_sections = []
    free: dict[Span, list[Tag]] = {gap: [] for gap in between}
    end_of_sections = -1  # of the tags so far that have text of a section
    length = len(rich.text)
    for tag in sorted(rich.tags, key=by_start):
        index = _last_start(between, tag.start)
        gap = between[index]
        first_overlap = next(_overlaps(tag, sections), None)
        if first_overlap is not None:
            end_of_sections = max(end_of_sections, tag.end)
        is_in_section = tag.end <= end_of_sections
        if is_in_section or not _is_inside(tag, gap, length):
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

        The separators, which are whitespace, and the whitespace around them are kept.
        """
        self.rich = rich
        self._separator = separator
        text = rich.text
        # With a line feed for each character that is not translated, a section is the text of a
        # line.
        lines = list(separator.sub("\n", text))
        for start, end in syntax:
            lines[start:end] = "\n" * (end - start)
        masked = "".join(lines)
        spans = [match.span() for match in _SECTION.finditer(masked)]
        # The ranges before, between and after the sections.
        edges = [0, *chain.from_iterable(spans), len(text)]
        starts = edges[::2]
        ends = edges[1::2]
        between = list(zip(starts, ends, strict=True))
        in_sections, free = _divide_tags(rich, spans, between)
        self.blocks = []
        if spans:
            sections = replace(rich, tags=tuple(in_sections))
            self.blocks = cut(sections, spans)
        self._between: list[RichText] = []
        for gap, tags in free.items():
            free_text = RichText(text, tuple(tags))
            self._between += cut(free_text, [gap])

    def join(self, translations: Sequence[RichText]) -> RichText:
        """Return the text with the translations of its blocks."""
        if list(translations) == self.blocks:
            return self.rich
        first, *following = self._between
        parts = [first]
        for translation, gap in zip(translations, following, strict=True):
            # The number of separators must not change.
            text = self._separator.sub(" ", translation.text)
            translation = replace(translation, text=text)
            parts += [translation, gap]
        return join(parts)
