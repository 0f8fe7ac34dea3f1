"""Operations on rich text: cut it into parts, join parts, and write it with its markup."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from itertools import accumulate

from nmt.data.spans import apply_edits
from nmt.documents.document import RichText, Tag, parents
from nmt.inference.segments import FixedSpan

Span = tuple[int, int]
_MARKER = re.compile(r"\[(?:\d[\d,;–-]*|[a-z]{1,2})\]|[*†‡§¶]+")
"""Text of a note marker."""
_NUMBER = re.compile(r"\(?\d{1,3}(?:[,;–-]\d{1,3})*\)?")
"""Text of a note marker after a lower-case word, or of an exponent, as in m²."""
_WORD_END = re.compile(r"(\w)[.,;:!?'\"”’)\]]*\Z")


@dataclass(frozen=True)
class Marker:
    """Markup with a text that is not translated, next to a word: a note marker or an exponent."""

    text: str
    inside: list[Tag]
    """The tags in it; their positions are relative to its start."""
    around: list[int]
    """Ids of the tags around it, the innermost one first."""


class Event(Enum):
    """What comes next in a rich text."""

    TEXT = auto()
    OPEN = auto()
    CLOSE = auto()


def events(rich: RichText, parents: Mapping[int, int] | None = None) -> Iterator[tuple[Event, str, Tag | None]]:
    """Yield text, and the start and end of each tag, in nested order; a point starts and ends at once.

    Args:
        rich: the text.
        parents: by the id of a tag, the id of the tag that contains it in the source. A point at the end of a tag is
            inside of it only if it was there in the source.
    """
    position, open_tags = 0, list[Tag]()

    def text_until(end: int) -> Iterator[tuple[Event, str, Tag | None]]:
        nonlocal position
        if end > position:
            yield Event.TEXT, rich.text[position:end], None
            position = end

    for tag in sorted(rich.tags, key=lambda tag: tag.start):
        while open_tags and (open_tags[-1].end < tag.start or _closes_before(open_tags[-1], tag, parents or {})):
            yield from text_until(open_tags[-1].end)
            yield Event.CLOSE, "", open_tags.pop()
        yield from text_until(tag.start)
        yield Event.OPEN, "", tag
        if tag.end > tag.start:
            open_tags.append(tag)
        else:
            yield Event.CLOSE, "", tag
    for tag in reversed(open_tags):
        yield from text_until(tag.end)
        yield Event.CLOSE, "", tag
    yield from text_until(len(rich.text))


def _closes_before(outer: Tag, tag: Tag, parents: Mapping[int, int]) -> bool:
    return outer.end == tag.start and not (tag.start == tag.end and parents.get(tag.id) == outer.id)


def to_markup(rich: RichText, markup: Mapping[int, tuple[str, str]], escape: Callable[[str], str] = str) -> str:
    """Return the source of a rich text: `markup` has the strings before and after the text of each tag."""
    pieces = []
    for event, text, tag in events(rich):
        if tag is None:
            pieces.append(escape(text))
        else:
            pieces.append(markup[tag.id][event is Event.CLOSE])
    return "".join(pieces)


def cut(rich: RichText, spans: Sequence[Span]) -> list[RichText]:
    """Return the parts of a text, in order, without what is between them.

    A tag that spans several parts is in each of them. A point between two parts, and a tag of text that is in no part,
    becomes a point at the end of the previous part.
    """
    tags: list[list[Tag]] = [[] for _ in spans]
    fixed: list[list[FixedSpan]] = [[] for _ in spans]
    starts = [start for start, _ in spans]
    for tag in rich.tags:
        overlaps = _overlaps(tag, spans)
        for i in overlaps:
            start, end = spans[i]
            tags[i].append(Tag(max(tag.start, start) - start, min(tag.end, end) - start, tag.id))
        if not overlaps:
            i = max(0, bisect_right(starts, tag.start) - 1)
            at = min(max(tag.start, spans[i][0]), spans[i][1]) - spans[i][0]
            tags[i].append(Tag(at, at, tag.id))
    for each in rich.fixed:
        i = bisect_right(starts, each.start) - 1
        if i >= 0 and each.end <= spans[i][1]:
            fixed[i].append(replace(each, start=each.start - starts[i], end=each.end - starts[i]))
    return [RichText(rich.text[slice(*span)], tuple(tags[i]), tuple(fixed[i])) for i, span in enumerate(spans)]


def _overlaps(tag: Tag, spans: Sequence[Span]) -> list[int]:
    """Return the indices of the spans that have a character of a tag. Spans are in order and do not overlap."""
    first = bisect_right(spans, tag.start, key=lambda span: span[1])
    last = bisect_left(spans, tag.end, key=lambda span: span[0])
    return [i for i in range(first, last) if max(tag.start, spans[i][0]) < min(tag.end, spans[i][1])]


def join(parts: Iterable[RichText], separator: str = "") -> RichText:
    """Join the parts of a text. Tags with the same id that only a separator divides become one."""
    text, tags = "", list[Tag]()
    latest: dict[int, int] = {}  # index of the last tag with an id that is not a point
    for i, part in enumerate(parts):
        text += separator if i else ""
        offset = len(text)
        first = (tag.id for tag in part.tags if tag.start == 0 < tag.end and tag.id in latest)
        continued = {id: latest[id] for id in first if not text[tags[latest[id]].end :].strip()}
        for tag in part.tags:
            moved = Tag(tag.start + offset, tag.end + offset, tag.id)
            k = continued.get(tag.id)
            if k is not None and tag.start == 0 < tag.end and _can_extend(tags, k, part, tag):
                tags[k] = replace(tags[k], end=moved.end)
            else:
                tags.append(moved)
                if tag.start < tag.end:
                    latest[tag.id] = len(tags) - 1
        text += part.text
    return RichText(text, tuple(_outer_first(tags)))


def without_markers(rich: RichText) -> tuple[RichText, dict[int, Marker]]:
    """Make a point of each marker, because a model translates `park[1]` as another word.

    Returns:
        the text without the markers, and the markers by the ids of their tags.
    """
    parent_of = dict(zip((tag.id for tag in rich.tags), parents(rich.tags), strict=True))
    starts = {tag.start for tag in rich.tags}
    markers: dict[int, Marker] = {}
    marker_of: dict[int | None, Tag] = {}  # of the tags in it
    spans, kept = list[Span](), list[Tag]()
    chain = 0  # start of the markers that end at `spans[-1][1]`
    for tag in rich.tags:
        if outer := marker_of.get(parent_of[tag.id]):
            marker_of[tag.id] = outer
            markers[outer.id].inside.append(Tag(tag.start - outer.start, tag.end - outer.start, tag.id))
            continue
        kept.append(tag)
        is_in_chain = bool(spans) and spans[-1][1] == tag.start
        if _is_marker(rich, tag, chain if is_in_chain else tag.start, starts):
            chain = chain if is_in_chain else tag.start
            around, outer_id = list[int](), parent_of[tag.id]
            while outer_id is not None:
                around.append(outer_id)
                outer_id = parent_of[outer_id]
            markers[tag.id], marker_of[tag.id] = Marker(rich.text[tag.start : tag.end], [], around), tag
            spans.append((tag.start, tag.end))
    ends, removed = [end for _, end in spans], [0, *accumulate(end - start for start, end in spans)]

    def moved(position: int) -> int:
        i = bisect_left(ends, position)  # the spans before it end before the position
        return position - removed[i] - max(0, position - spans[i][0] if i < len(spans) else 0)

    fixed = tuple(replace(each, start=moved(each.start), end=moved(each.end)) for each in rich.fixed)
    tags = tuple(Tag(moved(tag.start), moved(tag.end), tag.id) for tag in kept)
    return RichText(apply_edits(rich.text, ((*span, "") for span in spans)), tags, fixed), markers


def _is_marker(rich: RichText, tag: Tag, start: int, starts: Container[int]) -> bool:
    """Return whether a tag is a marker.

    Args:
        rich: the text.
        tag: the tag.
        start: its start, or that of the adjacent markers before it.
        starts: the positions where tags start.
    """
    text = rich.text[tag.start : tag.end]
    is_separator = start < tag.start and text in (",", ";")
    if not (is_separator or _MARKER.fullmatch(text)):
        word_end = _WORD_END.search(rich.text[max(0, start - 5) : start])
        if not (word_end and word_end[1].islower() and _NUMBER.fullmatch(text)):  # not CO2 or $50
            return False
    is_word_end = tag.end in starts or not rich.text[tag.end : tag.end + 1].isalnum()
    is_fixed = any(max(span.start, tag.start) < min(span.end, tag.end) for span in rich.fixed)
    return rich.text[:start][-1:].strip() != "" and is_word_end and not is_fixed


def with_markers(rich: RichText, markers: Mapping[int, Marker]) -> RichText:
    """Insert the text of markers, whose tags are points."""
    placed = [(tag.start, i, markers[tag.id]) for i, tag in enumerate(rich.tags) if tag.id in markers]
    placed.sort(key=lambda each: each[:2])
    positions, added = [at for at, _, _ in placed], [0, *accumulate(len(marker.text) for _, _, marker in placed)]
    order = {i: k for k, (_, i, _) in enumerate(placed)}
    tags: list[Tag] = []
    for i, tag in enumerate(rich.tags):
        if i in order:
            at, _, marker = placed[order[i]]
            start = at + added[order[i]]
            tags.append(Tag(start, start + len(marker.text), tag.id))
            tags += [Tag(start + each.start, start + each.end, each.id) for each in marker.inside]
            continue
        start, end = (position + added[bisect_left(positions, position)] for position in (tag.start, tag.end))
        for at, j, marker in placed[bisect_left(positions, tag.start) : bisect_right(positions, tag.start)]:
            start += len(marker.text) * (tag.id not in marker.around and (i > j or tag.end > at))
        for _, j, marker in placed[bisect_left(positions, tag.end) : bisect_right(positions, tag.end)]:
            end += len(marker.text) * (tag.id in marker.around or i > j)
        tags.append(Tag(start, end, tag.id))
    text, end = "", 0
    for at, _, marker in placed:
        text, end = text + rich.text[end:at] + marker.text, at
    return replace(rich, text=text + rich.text[end:], tags=tuple(tags))


def with_fixed_tags(rich: RichText, fixed: Mapping[int, str]) -> RichText:
    """Move the tags of fixed text to where the text is, because it is found more reliably than by word alignment.

    Args:
        rich: a translation.
        fixed: by the id of a tag, its text.
    """
    tags, used, places = list(rich.tags), set[int](), dict[str, list[int]]()
    for i, tag in enumerate(tags):
        text = fixed.get(tag.id)
        if not text or rich.text[tag.start : tag.end] == text:
            used |= {tag.start} if text else set()
            continue
        if text not in places:  # the last one first
            places[text] = [match.start() for match in re.finditer(re.escape(text), rich.text)][::-1]
        starts = places[text]
        while starts and starts[-1] in used:
            starts.pop()
        if starts and not (len(text) > 1 and any(_crosses(tag, starts[-1], starts[-1] + len(text)) for tag in tags)):
            used.add(starts[-1])
            tags[i] = Tag(starts[-1], starts[-1] + len(text), tag.id)
    return replace(rich, tags=tuple(_outer_first(tags)))


def _crosses(tag: Tag, start: int, end: int) -> bool:
    """Return whether a tag starts or ends within a range."""
    return start < tag.start < end or start < tag.end < end


def _can_extend(tags: Sequence[Tag], i: int, part: RichText, tag: Tag) -> bool:
    """Return whether tag `i` of the text so far can include a tag of the next part without crossing another."""
    outer = [each.id for each in part.tags if each.start == 0 and each.end > tag.end]
    ends_later = {each.id for each in tags[:i] if each.start <= tags[i].start and each.end >= tags[i].end}
    return all(each in ends_later for each in outer)


def _outer_first(tags: Iterable[Tag]) -> list[Tag]:
    """Sort tags; those that start at the same position stay in order, except for an inner tag before an outer tag."""
    ordered: list[Tag] = []
    for tag in sorted(tags, key=lambda tag: tag.start):
        i = len(ordered)
        while i and ordered[i - 1].start == tag.start < ordered[i - 1].end < tag.end:
            i -= 1
        ordered.insert(i, tag)
    return ordered


def _is_inside(tag: Tag, span: Span, is_first: bool, is_last: bool) -> bool:
    """Return whether a tag is inside a range between sections. A point next to a section is in that section."""
    start, end = span
    is_apart = tag.start < tag.end or ((start < tag.start or is_first) and (tag.end < end or is_last))
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
    """A text that is translated in sections, such as lines: what is between them, also a tag, stays in its place."""

    def __init__(self, rich: RichText, separator: re.Pattern[str], syntax: Iterable[Span] = ()) -> None:
        """Cut a text where `separator` matches, and at further ranges, such as the syntax of a message.

        The separators and the whitespace around them are kept.
        """
        self.rich, self._separator = rich, separator
        pattern = re.compile(rf"(?<!\s)\s*(?:{separator.pattern})(?:\s|{separator.pattern})*|(?<!\s)\s+\Z|\A\s+")
        separators = [match.span() for match in pattern.finditer(rich.text)]
        gaps = _merge(separators + [_with_spaces(rich.text, *span) for span in syntax])
        starts, ends = [0, *(end for _, end in gaps)], [*(start for start, _ in gaps), len(rich.text)]
        spans = [span for span in zip(starts, ends, strict=True) if span[0] < span[1]]
        edges = [0, *(position for span in spans for position in span), len(rich.text)]
        between = list(zip(edges[::2], edges[1::2], strict=True))
        free: list[list[Tag]] = [[] for _ in between]
        in_sections = list[Tag]()
        end_of_sections = -1  # of the tags so far that have text of a section
        for tag in sorted(rich.tags, key=lambda tag: tag.start):  # an outer tag comes before the tags in it
            i = bisect_right(between, tag.start, key=lambda gap: gap[0]) - 1
            has_section = bool(_overlaps(tag, spans))
            if has_section or tag.end <= end_of_sections or not _is_inside(tag, between[i], i == 0, i == len(spans)):
                in_sections.append(tag)
            else:
                free[i].append(tag)
            end_of_sections = max(end_of_sections, tag.end if has_section else -1)
        self.blocks = cut(replace(rich, tags=tuple(in_sections)), spans) if spans else []
        self._between = [
            cut(replace(rich, tags=tuple(tags)), [gap])[0] for tags, gap in zip(free, between, strict=True)
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
