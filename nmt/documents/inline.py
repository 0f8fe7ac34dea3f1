"""Text with inline markup in a source file: from pieces of the source to a `RichText`, and back to
source.

HTML and Markdown share this. The markup between two words is divided among the elements that end
there, free markup such as an image, and the elements that start there, so every character of the
source belongs to the text or to a tag.
"""

from __future__ import annotations

import re
import unicodedata
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from functools import lru_cache
from itertools import pairwise

from nmt.documents.document import RichText, Tag, parents
from nmt.documents.rich_text import Event, Sections, events
from nmt.documents.variants import syntax_spans
from nmt.text.spans import find_spans
from nmt.translation.segments import FixedSpan


class Kind(Enum):
    """What a piece of the source is."""

    TEXT = auto()
    SPACE = auto()
    OPEN = auto()
    CLOSE = auto()
    POINT = auto()
    """Markup without text, such as a comment."""
    BREAK = auto()
    """Markup without text that separates words, such as an image."""
    LINE_BREAK = auto()
    """Markup that ends a sentence, such as a line break."""
    FIXED = auto()
    """An element whose text is not translated, such as code."""


WORDS = (Kind.TEXT, Kind.FIXED)
_EMPHASIS = {"*", "**", "_", "__", "~", "~~"}
"""Markup of Markdown that would be literal characters if it had no text."""
_LINE_BREAK = "\n"
"""What stands for a line break in the text of a run. Other line ends are spaces there."""
_BARS = ("|", "·", "•")
"""Characters that separate links."""
_SYMBOL_CATEGORIES = ("So", "Sm", "Sk", "Co", "Mn", "Me", "Cf")
"""Unicode categories of icons, arrows and the modifiers of emojis, but not of currency signs."""
_ADDRESS_KINDS = ("url", "email")


@dataclass(frozen=True)
class Piece:
    """A piece of the source."""

    start: int
    end: int
    kind: Kind
    text: str = ""
    """The text, without escapes and surrounding spaces; for a fixed element, what the translation
    must contain."""
    name: str = ""
    """Name of the element; an OPEN and a CLOSE with the same name match."""


@dataclass(frozen=True)
class Markup:
    """The markup of a tag, as ranges of the source."""

    open: tuple[int, int]
    close: tuple[int, int] | None = None
    """None: a point, or a fixed element, which `open` includes with its text."""


class InlineText:
    """A run of text and inline markup, such as the content of a paragraph. A line break in it ends
    a block."""

    def __init__(self, pieces: Iterable[Piece], encode: Callable[[str], str]) -> None:
        """Find the text and its markup in adjacent pieces of the source; `encode` returns the
        source of a text."""
        self._encode = encode
        run = _join_elements(_unmatched_as_points(_join_line_breaks(pieces)))
        words = [i for i, piece in enumerate(run) if piece.kind in WORDS and not _is_symbol(piece)]
        self.start = self.end = 0
        """The range of the source that a translation replaces. Markup around all of the text is
        outside of it, and a symbol in front of or after it that is an element, such as an arrow in
        a menu."""
        builder = _Builder()
        if words:
            first, last = _range_with_partners(run, words[0], words[-1])
            self.start, self.end = run[first].start, run[last].end
            builder.add(run[first : last + 1])
        self._text = builder.rich_text()
        self._markup = builder.markup
        self._line_breaks = builder.line_breaks
        self._sections = Sections(self._text, re.compile(_LINE_BREAK), _message_syntax(self._text))
        self.blocks = self._sections.blocks
        """The lines to translate."""

    def render(self, translations: Sequence[RichText], source: Callable[[int, int], str]) -> str:
        """Return the source of the translation of each block; `source` returns a range of the
        source."""
        translation = self._sections.join(translations)
        if (translation.text, translation.tags) == (self._text.text, self._text.tags):
            return source(self.start, self.end)
        enclosing = _enclosing_ids(self._text.tags)
        tags = _points_outside_before_tags(translation.tags, enclosing)
        line_breaks = iter(self._line_breaks)
        output: list[str] = []
        is_in_fixed = False  # whether a fixed element is open, whose markup includes its text
        for event, text, tag in events(replace(translation, tags=tags), enclosing):
            if tag is not None:
                output.append(self._markup_source(tag, event, source))
                if self._markup[tag.id].close is None and tag.start < tag.end:
                    is_in_fixed = event is Event.OPEN
            elif not is_in_fixed:
                first, *others = text.split(_LINE_BREAK)
                output.append(self._encode(first))
                for line in others:
                    output += [source(*next(line_breaks)), self._encode(line)]
        return "".join(output)

    def _markup_source(self, tag: Tag, event: Event, source: Callable[[int, int], str]) -> str:
        """Return the source of the start or end of a tag. Emphasis without text is left out."""
        markup = self._markup[tag.id]
        opening = source(*markup.open)
        if tag.start == tag.end and opening in _EMPHASIS:
            return ""
        if event is Event.OPEN:
            return opening
        return source(*markup.close) if markup.close else ""


class _Builder:
    """Builds a rich text from the pieces of a run."""

    def __init__(self) -> None:
        self.markup: list[Markup] = []
        """The markup of each tag, by its id."""
        self.line_breaks: list[tuple[int, int]] = []
        """The range of each line break in the source."""
        self._texts: list[str] = []
        self._length = 0
        self._spans: list[list[int]] = []  # start and end of each tag in the text
        self._fixed: list[FixedSpan] = []
        self._open_ids: list[int] = []

    def rich_text(self) -> RichText:
        """Return the text of the pieces so far."""
        tags = tuple(Tag(start, end, i) for i, (start, end) in enumerate(self._spans))
        return RichText("".join(self._texts), tags, tuple(self._fixed))

    def add(self, run: Sequence[Piece]) -> None:
        """Add all pieces of a run, whose tags all have a partner in it."""
        gap: list[Piece] = []
        for piece in run:
            if piece.kind in WORDS or piece.kind is Kind.LINE_BREAK:
                self._add_gap(gap, bool(piece.text))
                self._add_word(piece)
                gap = []
            else:
                gap.append(piece)
        self._add_gap(gap, False)

    def _add_gap(self, gap: Sequence[Piece], is_before_text: bool) -> None:
        """Add the markup between two words."""
        closing, middle, opening = _divide(gap)
        for markup in closing:
            tag_id = self._open_ids.pop()
            self._spans[tag_id][1] = self._length
            self.markup[tag_id] = replace(self.markup[tag_id], close=markup)
        has_space = any(piece.kind in (Kind.SPACE, Kind.BREAK) for piece in gap)
        space = " " if self._length and is_before_text and has_space else ""
        if any(piece.kind is not Kind.SPACE for piece in middle):
            # Markup with a space before it only is next to the following word.
            is_before_word = middle[0].kind is Kind.SPACE and middle[-1].kind is not Kind.SPACE
            markup = _range(middle, keep_left=not is_before_word, keep_right=is_before_word)
            position = self._length
            if is_before_word:
                position += len(space)
            self._add_tag(markup, position, position)
        self._add_text(space)
        for markup in opening:
            self._open_ids.append(len(self._spans))
            self._add_tag(markup, self._length, self._length)

    def _add_word(self, piece: Piece) -> None:
        """Add a text, a fixed element or a line break."""
        text = piece.text
        if piece.kind is Kind.LINE_BREAK:
            self.line_breaks.append((piece.start, piece.end))
        else:
            text = text.replace(_LINE_BREAK, " ")  # from a character reference
        start = self._length
        end = start + len(text)
        if piece.kind is Kind.FIXED:
            self._add_tag((piece.start, piece.end), start, end)
            self._fixed.append(FixedSpan(start, end, text))
        self._add_text(text)

    def _add_text(self, text: str) -> None:
        self._texts.append(text)
        self._length += len(text)

    def _add_tag(self, markup: tuple[int, int], start: int, end: int) -> None:
        self.markup.append(Markup(markup))
        self._spans.append([start, end])


def _message_syntax(rich: RichText) -> list[tuple[int, int]]:
    """Return the ranges of the syntax of ICU messages; none if a fixed text has a part of it."""
    spans = list(syntax_spans(rich.text))
    for fixed in rich.fixed if spans else ():
        if any(max(start, fixed.start) < min(end, fixed.end) for start, end in spans):
            return []
    return spans


def text_piece(start: int, end: int, source: str, decode: Callable[[str], str]) -> Iterator[Piece]:
    """Yield the pieces of a text: the text itself, and the spaces before and after it."""
    core = source.strip(" \t\n\r\f")
    first = start + len(source) - len(source.lstrip(" \t\n\r\f")) if core else end
    last = first + len(core)
    if start < first:
        yield Piece(start, first, Kind.SPACE)
    if core:
        yield Piece(first, last, Kind.TEXT, decode(core))
    if last < end:
        yield Piece(last, end, Kind.SPACE)


def _partners(pieces: Sequence[Piece]) -> dict[int, int]:
    """Return the index of the matching tag for each tag that has one. Matches are properly
    nested."""
    partners: dict[int, int] = {}
    open_indices: list[int] = []
    num_open: defaultdict[str, int] = defaultdict(int)
    for i, piece in enumerate(pieces):
        if piece.kind is Kind.OPEN:
            open_indices.append(i)
            num_open[piece.name] += 1
        elif piece.kind is Kind.CLOSE and num_open[piece.name]:
            while True:
                start = open_indices.pop()
                num_open[pieces[start].name] -= 1
                if pieces[start].name == piece.name:
                    break
            partners[start], partners[i] = i, start
    return partners


def _unmatched_as_points(pieces: list[Piece]) -> list[Piece]:
    partners = _partners(pieces)
    return [
        replace(piece, kind=Kind.POINT)
        if piece.kind in (Kind.OPEN, Kind.CLOSE) and i not in partners
        else piece
        for i, piece in enumerate(pieces)
    ]


def _join_line_breaks(pieces: Iterable[Piece]) -> list[Piece]:
    """Join each line break, or bar between elements, with the spaces and line breaks around it."""
    joined: list[Piece] = []
    for piece in pieces:
        previous_kind = joined[-1].kind if joined else None
        is_bar = piece.text in _BARS and piece.kind is Kind.TEXT and previous_kind is Kind.SPACE
        is_after_break = piece.kind is Kind.SPACE and previous_kind is Kind.LINE_BREAK
        start = piece.start
        if piece.kind is Kind.LINE_BREAK or is_bar or is_after_break:
            while joined and joined[-1].kind in (Kind.SPACE, Kind.LINE_BREAK):
                start = joined.pop().start
            piece = Piece(start, piece.end, Kind.LINE_BREAK, _LINE_BREAK)
        joined.append(piece)
    return joined


def _join_elements(pieces: list[Piece]) -> list[Piece]:
    """Make one piece of each element without text, and of each element whose text is an address."""
    joined: list[Piece] = []
    num_words = 0
    starts: list[
        tuple[int, int]
    ] = []  # of the open elements: index in `joined`, and words before it
    for piece in pieces:
        num_words += piece.kind in WORDS
        if piece.kind is Kind.OPEN:
            starts.append((len(joined), num_words))
        joined.append(piece)
        if piece.kind is not Kind.CLOSE:
            continue
        start, num_words_before = starts.pop()
        first = joined[start].start
        if num_words == num_words_before:
            joined[start:] = [_empty_element(first, piece.end, joined[start + 1 : -1])]
        elif len(joined) == start + 3 and _is_address(joined[start + 1].text):
            joined[start:] = [Piece(first, piece.end, Kind.FIXED, joined[start + 1].text)]
    return joined


def _empty_element(start: int, end: int, content: Sequence[Piece]) -> Piece:
    kinds = {piece.kind for piece in content}
    if Kind.LINE_BREAK in kinds:
        return Piece(start, end, Kind.LINE_BREAK, _LINE_BREAK)
    return Piece(start, end, Kind.BREAK if kinds & {Kind.SPACE, Kind.BREAK} else Kind.POINT)


@lru_cache(maxsize=1)  # it is asked for each element around a text
def _is_address(text: str) -> bool:
    """Return whether a text is a URL or e-mail address: a link on it must not move to other
    words."""
    if " " in text or "." not in text:
        return False
    return any(
        span.kind in _ADDRESS_KINDS and (span.start, span.end) == (0, len(text))
        for span in find_spans(text)
    )


def _is_symbol(piece: Piece) -> bool:
    """Return whether a text consists of symbols, such as an icon or an arrow."""
    return piece.kind is Kind.TEXT and all(
        unicodedata.category(char) in _SYMBOL_CATEGORIES for char in piece.text
    )


def _enclosing_ids(tags: Sequence[Tag]) -> dict[int, int]:
    """Return the id of the tag that contains each tag that is inside of one, by its id."""
    enclosing: dict[int, int] = {}
    for tag, parent in zip(tags, parents(tags), strict=True):
        if parent is not None:
            enclosing[tag.id] = parent
    return enclosing


def _points_outside_before_tags(tags: Iterable[Tag], parents: Mapping[int, int]) -> tuple[Tag, ...]:
    """Sort tags so that a point at the start of a tag comes before it, unless it is inside of it in
    the source."""
    ordered: list[Tag] = []
    group: list[
        Tag
    ] = []  # tags with text that start at one position, after which there is no point so far
    indices: dict[int, int] = {}  # of them, by id
    first = 0  # of them that is not in `ordered`
    for tag in sorted(tags, key=lambda tag: tag.start):
        if group and group[0].start < tag.start:
            ordered += group[first:]
            group = []
            indices = {}
            first = 0
        if tag.start < tag.end:
            indices[tag.id] = len(group)
            group.append(tag)
            continue
        end = indices.get(parents.get(tag.id, -1), -1) + 1
        ordered += group[first:end]
        ordered.append(tag)
        first = max(first, end)
    return (*ordered, *group[first:])


def _range_with_partners(pieces: Sequence[Piece], first: int, last: int) -> tuple[int, int]:
    """Extend a range to the matching tags of all tags in it."""
    partners = _partners(pieces)
    inside = [partners[i] for i in range(first, last + 1) if i in partners]
    return min([first, *inside]), max([last, *inside])


def _divide(
    gap: Sequence[Piece],
) -> tuple[list[tuple[int, int]], list[Piece], list[tuple[int, int]]]:
    """Divide the markup between two words into that of elements that end, free markup, and that of
    elements that start.

    Returns:
        ranges of the source of elements that end, free pieces, ranges of the source of elements
        that start.
    """
    closing: list[tuple[int, int]] = []
    rest: list[Piece] = []
    for piece in gap:
        rest.append(piece)
        if piece.kind is Kind.CLOSE:
            closing.append(_range(rest, keep_left=False))
            rest = []
    bounds = [*(i for i, piece in enumerate(rest) if piece.kind is Kind.OPEN), len(rest)]
    opening = [_range(rest[start:end], keep_right=False) for start, end in pairwise(bounds)]
    return closing, rest[: bounds[0]], opening


def _range(
    pieces: Sequence[Piece], *, keep_left: bool = True, keep_right: bool = True
) -> tuple[int, int]:
    """Return the range of pieces, without the spaces on the sides that are not kept.

    Spaces are kept if there is other markup between them and the tag.
    """
    is_space = [piece.kind is Kind.SPACE for piece in pieces]
    first = 0 if keep_left else is_space.index(False)
    last = len(pieces) - (0 if keep_right else is_space[::-1].index(False))
    return pieces[first].start, pieces[last - 1].end
