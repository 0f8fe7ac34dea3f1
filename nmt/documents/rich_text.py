"""Operations on rich text: cut it into parts, join parts, and write it with its markup."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from itertools import islice

from nmt.documents.document import MAX_NESTING, RichText, Tag
from nmt.documents.ranges import Span
from nmt.translation.segments import FixedSpan


class Event(Enum):
    """What comes next in a rich text."""

    TEXT = auto()
    OPEN = auto()
    CLOSE = auto()


def events(
    rich: RichText, parents: Mapping[int, int] | None = None
) -> Iterator[tuple[Event, str, Tag | None]]:
    """Yield text, and the start and end of each tag, in nested order; a point starts and ends at
    once.

    Args:
        rich: the text.
        parents: by the id of a tag, the id of the tag that contains it in the source. A point at
            the end of a tag is inside of it only if it was there in the source.
    """
    parent_of = parents or {}
    position = 0
    open_tags: list[Tag] = []

    def text_until(end: int) -> Iterator[tuple[Event, str, Tag | None]]:
        nonlocal position
        if end > position:
            yield Event.TEXT, rich.text[position:end], None
            position = end

    for tag in sorted(rich.tags, key=_start):
        is_point = tag.start == tag.end
        while open_tags:
            last = open_tags[-1]
            is_inside = is_point and parent_of.get(tag.id) == last.id
            if last.end > tag.start or (last.end == tag.start and is_inside):
                break
            yield from text_until(last.end)
            yield Event.CLOSE, "", open_tags.pop()
        yield from text_until(tag.start)
        yield Event.OPEN, "", tag
        if is_point:
            yield Event.CLOSE, "", tag
        else:
            open_tags.append(tag)
    for tag in reversed(open_tags):
        yield from text_until(tag.end)
        yield Event.CLOSE, "", tag
    yield from text_until(len(rich.text))


def _start(tag: Tag) -> int:
    return tag.start


def to_markup(
    rich: RichText, markup: Mapping[int, tuple[str, str]], escape: Callable[[str], str] = str
) -> str:
    """Return the source of a rich text: `markup` has the strings before and after the text of each
    tag."""
    pieces = []
    for event, text, tag in events(rich):
        if tag is None:
            pieces.append(escape(text))
        else:
            pieces.append(markup[tag.id][event is Event.CLOSE])
    return "".join(pieces)


def cut(rich: RichText, spans: Sequence[Span]) -> list[RichText]:
    """Return the parts of a text, in order, without what is between them.

    A tag that spans several parts is in each of them. A point between two parts, and a tag of text
    that is in no part, becomes a point at the end of the previous part. A tag in many others is
    only in its first part.
    """
    parts = [_Part(*span) for span in spans]
    starts = [part.start for part in parts]
    ends: list[int] = []  # of the tags around a tag
    for tag in rich.tags:
        while ends and ends[-1] <= tag.start:
            ends.pop()
        max_parts = len(parts) if len(ends) < MAX_NESTING else 1
        ends.append(tag.end)
        overlaps = list(islice(_overlaps(tag, spans), max_parts))
        for i in overlaps:
            parts[i].add(tag)
        if not overlaps:
            previous = parts[max(0, bisect_right(starts, tag.start) - 1)]
            at = min(max(tag.start, previous.start), previous.end)
            previous.add(replace(tag, start=at, end=at))
    for fixed in rich.fixed:
        i = bisect_right(starts, fixed.start) - 1
        if i >= 0 and fixed.end <= parts[i].end:
            first = fixed.start - starts[i]
            parts[i].fixed.append(replace(fixed, start=first, end=fixed.end - starts[i]))
    return [part.of(rich.text) for part in parts]


@dataclass
class _Part:
    """A part of a text, as a range."""

    start: int
    end: int
    tags: list[Tag] = field(default_factory=list)
    fixed: list[FixedSpan] = field(default_factory=list)

    def add(self, tag: Tag) -> None:
        """Add what is in the part of a tag of the text."""
        start = max(tag.start, self.start)
        end = min(tag.end, self.end)
        self.tags.append(Tag(start - self.start, end - self.start, tag.id))

    def of(self, text: str) -> RichText:
        """Return the part."""
        return RichText(text[self.start : self.end], tuple(self.tags), tuple(self.fixed))


def _overlaps(tag: Tag, spans: Sequence[Span]) -> Iterator[int]:
    """Yield the indices of the spans that have a character of a tag. Spans are in order and do not
    overlap."""
    first = bisect_right(spans, tag.start, key=lambda span: span[1])
    last = bisect_left(spans, tag.end, key=lambda span: span[0])
    for i in range(first, last):
        start, end = spans[i]
        if max(tag.start, start) < min(tag.end, end):
            yield i


def join(parts: Iterable[RichText], separator: str = "") -> RichText:
    """Join the parts of a text. Tags with the same id that only a separator divides become one."""
    pieces: list[str] = []
    length = 0
    tags: list[Tag] = []
    last: dict[int, int] = {}
    """Indices of the tags after which there is only space so far, by id."""
    for part in parts:
        if pieces:
            pieces.append(separator)
            length += len(separator)
        if separator.strip():
            last = {}
        added: dict[int, int] = {}
        outer: Tag | None = None  # the innermost tag so far that starts at the start of the part
        for tag in part.tags:
            is_first = tag.start == 0 < tag.end
            i = last.get(tag.id) if is_first else None
            # A tag that goes on must stay inside the tag around it.
            if i is not None and (outer is None or _encloses(tags, added[outer.id], i)):
                tags[i] = replace(tags[i], end=length + tag.end)
            else:
                i = len(tags)
                tags.append(Tag(length + tag.start, length + tag.end, tag.id))
            if tag.start < tag.end:
                added[tag.id] = i
            outer = tag if is_first else outer
        pieces.append(part.text)
        length += len(part.text)
        text_end = length - len(part.text) + len(part.text.rstrip())
        if part.text.strip():
            last = {}
        for tag_id, i in added.items():
            if tags[i].end >= text_end:
                last[tag_id] = i
    return RichText("".join(pieces), tuple(_outer_first(tags)))


def _encloses(tags: Sequence[Tag], outer: int, inner: int) -> bool:
    """Return whether a tag comes before another one and encloses it."""
    is_before = outer < inner and tags[outer].start <= tags[inner].start
    return is_before and tags[inner].end <= tags[outer].end


def with_fixed_tags(rich: RichText, fixed: Mapping[int, str]) -> RichText:
    """Move the tags of fixed text to where the text is, because it is found more reliably than by
    word alignment.

    Args:
        rich: a translation.
        fixed: by the id of a tag, its text.
    """
    tags = list(rich.tags)
    borders = Counter(position for tag in tags for position in (tag.start, tag.end))
    used: set[int] = set()
    places: dict[str, list[int]] = {}
    for i, tag in enumerate(tags):
        text = fixed.get(tag.id)
        if not text:
            continue
        if rich.text.startswith(text, tag.start) and tag.end - tag.start == len(text):
            used.add(tag.start)
            continue
        if text not in places:  # the last one first
            places[text] = [match.start() for match in re.finditer(re.escape(text), rich.text)][
                ::-1
            ]
        starts = places[text]
        while starts and starts[-1] in used:
            starts.pop()
        if not starts:
            continue
        moved = Tag(starts[-1], starts[-1] + len(text), tag.id)
        if not any(borders[position] for position in range(moved.start + 1, moved.end)):
            used.add(moved.start)
            borders.subtract((tag.start, tag.end))
            borders.update((moved.start, moved.end))
            tags[i] = moved
    return replace(rich, tags=tuple(_outer_first(tags)))


def _outer_first(tags: Iterable[Tag]) -> list[Tag]:
    """Sort tags; those that start at the same position stay in order, except for an inner tag
    before an outer tag."""
    keys: list[tuple[int, int, int]] = []
    ordered = sorted(tags, key=_start)
    group = 0
    for tag in ordered:
        if tag.start == tag.end:  # no tag passes a point
            keys.append((tag.start, group + 1, 0))
            group += 2
        else:
            keys.append((tag.start, group, -tag.end))
    order = sorted(range(len(ordered)), key=keys.__getitem__)
    return [ordered[i] for i in order]


def _is_inside(tag: Tag, span: Span, is_first: bool, is_last: bool) -> bool:
    """Return whether a tag is inside a range between sections. A point next to a section is in that
    section."""
    start, end = span
    is_apart = tag.start < tag.end or (
        (start < tag.start or is_first) and (tag.end < end or is_last)
    )
    return start <= tag.start and tag.end <= end and is_apart


def _with_spaces(text: str, start: int, end: int) -> Span:
    """Extend a range to the whitespace around it."""
    while start > 0 and text[start - 1].isspace():
        start -= 1
    while end < len(text) and text[end].isspace():
        end += 1
    return start, end


def _merge(spans: Iterable[Span]) -> list[Span]:
    """Return ranges in order, those that overlap as one."""
    merged: list[Span] = []
    for start, end in sorted(spans):
        if merged and start <= merged[-1][1]:
            previous_start, previous_end = merged.pop()
            merged.append((previous_start, max(previous_end, end)))
        else:
            merged.append((start, end))
    return merged


class Sections:
    """A text that is translated in sections, such as lines: what is between them, also a tag, stays
    in its place."""

    def __init__(
        self, rich: RichText, separator: re.Pattern[str], syntax: Iterable[Span] = ()
    ) -> None:
        """Cut a text where `separator` matches, and at further ranges, such as the syntax of a
        message.

        The separators and the whitespace around them are kept.
        """
        self.rich, self._separator = rich, separator
        pattern = re.compile(
            rf"(?<!\s)\s*(?:{separator.pattern})(?:\s|{separator.pattern})*|(?<!\s)\s+\Z|\A\s+"
        )
        separators = [match.span() for match in pattern.finditer(rich.text)]
        gaps = _merge(separators + [_with_spaces(rich.text, *span) for span in syntax])
        starts, ends = (
            [0, *(end for _, end in gaps)],
            [*(start for start, _ in gaps), len(rich.text)],
        )
        spans = [span for span in zip(starts, ends, strict=True) if span[0] < span[1]]
        edges = [0, *(position for span in spans for position in span), len(rich.text)]
        between = list(zip(edges[::2], edges[1::2], strict=True))
        free: list[list[Tag]] = [[] for _ in between]
        in_sections = list[Tag]()
        end_of_sections = -1  # of the tags so far that have text of a section
        for tag in sorted(
            rich.tags, key=lambda tag: tag.start
        ):  # an outer tag comes before the tags in it
            i = bisect_right(between, tag.start, key=lambda gap: gap[0]) - 1
            has_section = any(True for _ in _overlaps(tag, spans))
            if (
                has_section
                or tag.end <= end_of_sections
                or not _is_inside(tag, between[i], i == 0, i == len(spans))
            ):
                in_sections.append(tag)
            else:
                free[i].append(tag)
            end_of_sections = max(end_of_sections, tag.end if has_section else -1)
        self.blocks = cut(replace(rich, tags=tuple(in_sections)), spans) if spans else []
        self._between = [
            cut(RichText(rich.text, tuple(tags)), [gap])[0]
            for tags, gap in zip(free, between, strict=True)
        ]

    def join(self, translations: Sequence[RichText]) -> RichText:
        """Return the text with the translations of its blocks."""
        if list(translations) == self.blocks:
            return self.rich
        sections = map(self._without_separators, translations)
        parts = [part for pair in zip(self._between, sections, strict=False) for part in pair]
        return join([*parts, self._between[-1]])

    def _without_separators(self, rich: RichText) -> RichText:
        """Replace separators in a translation by spaces, so that their number does not change."""
        return replace(rich, text=self._separator.sub(lambda match: " " * len(match[0]), rich.text))
