"""Operations on rich text: cut it into parts, join parts, and write it with its markup."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from functools import cache
from itertools import chain, islice
from operator import itemgetter
from types import MappingProxyType

from nmt.documents.document import MAX_NESTING, RichText, Tag, parents
from nmt.documents.ranges import Span, overlap
from nmt.translation.segments import FixedSpan


class Event(Enum):
    """What comes next in a rich text."""

    TEXT = auto()
    OPEN = auto()
    CLOSE = auto()


def events(
    rich: RichText, parent_of: Mapping[int, int | None] = MappingProxyType({})
) -> Iterator[tuple[Event, str, Tag | None]]:
    """Yield text, and the start and end of each tag, in nested order; a point starts and ends at
    once.

    Args:
        rich: the text.
        parent_of: by the id of a tag, the id of the tag that contains it in the source. A point at
            the end of a tag is inside of it only if it was there in the source.
    """
    position = 0
    for border, event, tag in _borders(rich.tags, parent_of):
        if position < border:
            yield Event.TEXT, rich.text[position:border], None
            position = border
        yield event, "", tag
    if position < len(rich.text):
        yield Event.TEXT, rich.text[position:], None


def _borders(
    tags: Iterable[Tag], parent_of: Mapping[int, int | None]
) -> Iterator[tuple[int, Event, Tag]]:
    """Yield the positions where tags start and end."""
    open_tags: list[Tag] = []
    for tag in sorted(tags, key=_start):
        is_point = tag.start == tag.end
        while open_tags:
            last = open_tags[-1]
            is_inside = is_point and parent_of.get(tag.id) == last.id
            if last.end > tag.start or (last.end == tag.start and is_inside):
                break
            yield last.end, Event.CLOSE, last
            open_tags.pop()
        yield tag.start, Event.OPEN, tag
        if is_point:
            yield tag.end, Event.CLOSE, tag
        else:
            open_tags.append(tag)
    for tag in reversed(open_tags):
        yield tag.end, Event.CLOSE, tag


def parents_by_id(tags: Sequence[Tag]) -> dict[int, int | None]:
    """Return the id of the tag that contains each tag, by its id; None: it is in no tag."""
    ids = [tag.id for tag in tags]
    return dict(zip(ids, parents(tags), strict=True))


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
            opening, closing = markup[tag.id]
            pieces.append(opening if event is Event.OPEN else closing)
    return "".join(pieces)


def cut(rich: RichText, spans: Sequence[Span]) -> list[RichText]:
    """Return the parts of a text, in order, without what is between them.

    A tag that spans several parts is in each of them. A point between two parts, and a tag of text
    that is in no part, becomes a point at the end of the previous part. A tag in many others is
    only in its first part.
    """
    if list(spans) == [(0, len(rich.text))]:
        return [rich]
    parts = [_Part(*span) for span in spans]
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
            previous = parts[max(0, _last_start(spans, tag.start))]
            position = min(max(tag.start, previous.start), previous.end)
            previous.add(Tag(position, position, tag.id))
    for fixed in rich.fixed:
        i = _last_start(spans, fixed.start)
        if i >= 0 and fixed.end <= parts[i].end:
            parts[i].add_fixed(fixed)
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

    def add_fixed(self, span: FixedSpan) -> None:
        """Add a fixed span of the text that is in the part."""
        start = span.start - self.start
        end = span.end - self.start
        self.fixed.append(replace(span, start=start, end=end))

    def of(self, text: str) -> RichText:
        """Return the part."""
        return RichText(text[self.start : self.end], tuple(self.tags), tuple(self.fixed))


def _last_start(spans: Sequence[Span], position: int) -> int:
    """Return the index of the last range that starts at or before a position; -1: there is none."""
    return bisect_right(spans, position, key=itemgetter(0)) - 1


def _overlaps(tag: Tag, spans: Sequence[Span]) -> Iterator[int]:
    """Yield the indices of the ranges that have a character of a tag. Ranges are in order and do
    not overlap."""
    first = bisect_right(spans, tag.start, key=itemgetter(1))
    last = bisect_left(spans, tag.end, key=itemgetter(0))
    for i in range(first, last):
        if overlap((tag.start, tag.end), spans[i]):
            yield i


def join(parts: Iterable[RichText], separator: str = "") -> RichText:
    """Join the parts of a text. Tags with the same id that only a separator divides become one."""
    between = RichText(separator)
    texts = []
    length = 0
    tags: list[Tag] = []
    last: dict[int, int] = {}  # indices of the tags after which there is only space, by id
    for part in list(chain.from_iterable((between, part) for part in parts))[1:]:
        added = {}
        outer = None  # the innermost tag so far that starts at the start of the part
        for tag in part.tags:
            moved = Tag(length + tag.start, length + tag.end, tag.id)
            is_first = tag.start == 0 < tag.end
            i = last.get(tag.id) if is_first else None
            # A tag that goes on must stay inside the tag around it.
            if i is not None and (outer is None or _encloses(tags, outer, i)):
                tags[i] = replace(moved, start=tags[i].start)
            else:
                i = len(tags)
                tags.append(moved)
            if tag.start < tag.end:
                added[tag.id] = i
            if is_first:
                outer = i
        if part.text.strip():
            last = {}
        text_end = length + len(part.text.rstrip())
        last |= {tag_id: i for tag_id, i in added.items() if tags[i].end >= text_end}
        texts.append(part.text)
        length += len(part.text)
    return RichText("".join(texts), _outer_first(tags))


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
    used = set()  # starts of the tags so far

    @cache
    def starts_of(text: str) -> deque[int]:
        return deque(match.start() for match in re.finditer(re.escape(text), rich.text))

    for i, tag in enumerate(tags):
        text = fixed.get(tag.id)
        if not text:
            continue
        if rich.text[tag.start : tag.end] == text:
            used.add(tag.start)
            continue
        starts = starts_of(text)
        while starts and starts[0] in used:
            starts.popleft()
        if not starts:
            continue
        start = starts[0]
        end = start + len(text)
        if not any(borders[position] for position in range(start + 1, end)):
            used.add(start)
            borders.subtract((tag.start, tag.end))
            borders.update((start, end))
            tags[i] = Tag(start, end, tag.id)
    return replace(rich, tags=_outer_first(tags))


def _outer_first(tags: Iterable[Tag]) -> tuple[Tag, ...]:
    """Sort tags; those that start at the same position stay in order, except for an inner tag
    before an outer tag. No tag passes a point."""
    ordered = []
    num_points = 0
    for tag in sorted(tags, key=_start):
        is_point = tag.start == tag.end
        ordered.append(((tag.start, num_points, 1 if is_point else -tag.end), tag))
        if is_point:
            num_points += 1
    ordered.sort(key=itemgetter(0))
    return tuple(tag for _, tag in ordered)


def _is_inside(tag: Tag, gap: Span, length: int) -> bool:
    """Return whether a tag is inside a range between the sections of a text of some length. A point
    next to a section is in that section."""
    start, end = gap
    if tag.start < tag.end:
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
    for tag in sorted(rich.tags, key=_start):  # an outer tag comes before the tags in it
        gap = between[_last_start(between, tag.start)]
        if any(True for _ in _overlaps(tag, sections)):
            in_sections.append(tag)
            end_of_sections = max(end_of_sections, tag.end)
        elif tag.end <= end_of_sections or not _is_inside(tag, gap, len(rich.text)):
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
        """Cut a text where `separator` matches, and at further ranges, such as the syntax of a
        message.

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
            parts += [self._without_separators(translation), gap]
        return join(parts)

    def _without_separators(self, rich: RichText) -> RichText:
        """Replace separators in a translation by spaces, so that their number does not change."""
        return replace(rich, text=self._separator.sub(lambda match: " " * len(match[0]), rich.text))
