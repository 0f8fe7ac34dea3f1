"""Text with inline markup in a source file: from pieces of the source to a `RichText`, and back to source.

HTML and Markdown share this. The markup between two words is divided among the elements that end there, free markup
such as an image, and the elements that start there, so every character of the source belongs to the text or to a tag.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from itertools import pairwise

from nmt.documents.document import RichText, Tag, parents
from nmt.inference.segments import FixedSpan


class Kind(Enum):
    """What a piece of the source is."""

    TEXT = auto()
    SPACE = auto()
    OPEN = auto()
    CLOSE = auto()
    POINT = auto()
    """Markup without text, such as a comment."""
    BREAK = auto()
    """Markup without text that separates words, such as a line break or an image."""
    FIXED = auto()
    """An element whose text is not translated, such as code."""


WORDS = (Kind.TEXT, Kind.FIXED)
_EMPHASIS = {"*", "**", "_", "__", "~", "~~"}
"""Markup of Markdown that would be literal characters if it had no text."""


@dataclass(frozen=True)
class Piece:
    """A piece of the source."""

    start: int
    end: int
    kind: Kind
    text: str = ""
    """The text, without escapes and surrounding spaces; for a fixed element, what the translation must contain."""
    name: str = ""
    """Name of the element; an OPEN and a CLOSE with the same name match."""


@dataclass(frozen=True)
class Markup:
    """The markup of a tag, as ranges of the source."""

    open: tuple[int, int]
    close: tuple[int, int] | None = None
    """None: a point, or a fixed element, which `open` includes with its text."""


class InlineText:
    """A run of text and inline markup, such as the content of a paragraph."""

    def __init__(self, pieces: Iterable[Piece], encode: Callable[[str], str]) -> None:
        """Find the text and its markup in adjacent pieces of the source; `encode` returns the source of a text."""
        self._encode = encode
        run = _join_empty_elements(_unmatched_as_points(list(pieces)))
        words = [i for i, piece in enumerate(run) if piece.kind in WORDS]
        self.start = self.end = 0
        """The range of the source that a translation replaces. Markup around all of the text is outside of it."""
        self.block = RichText("")
        self._markup: list[Markup] = []
        if words:
            first, last = _range_with_partners(run, words[0], words[-1])
            self.start, self.end = run[first].start, run[last].end
            self._build(run[first : last + 1])

    def render(self, translation: RichText, source: Callable[[int, int], str]) -> str:
        """Return the source of the translation of `block`; `source` returns a range of the source."""
        if (translation.text, translation.tags) == (self.block.text, self.block.tags):
            return source(self.start, self.end)
        children: dict[int | None, list[Tag]] = defaultdict(list)
        parent_of = dict(zip((tag.id for tag in self.block.tags), parents(self.block.tags), strict=True))
        for tag in sorted(translation.tags, key=lambda tag: (tag.start, tag.end)):
            children[parent_of[tag.id]].append(tag)
        output, position = list[str](), 0
        waiting: list[Tag | tuple[int, str]] = [(len(translation.text), ""), *reversed(children[None])]
        while waiting:  # not recursive, because markup may be nested deeply
            item = waiting.pop()
            start, markup_source = (item.start, source(*self._markup[item.id].open)) if isinstance(item, Tag) else item
            is_lost = isinstance(item, Tag) and item.start == item.end and markup_source in _EMPHASIS
            output += [self._encode(translation.text[position:start]), "" if is_lost else markup_source]
            position = max(position, start)
            if isinstance(item, Tag):
                if closing := self._markup[item.id].close:
                    waiting.append((item.end, "" if is_lost else source(*closing)))
                else:
                    position = max(position, item.end)
                waiting += reversed(children[item.id])
        return "".join(output)

    def _build(self, run: Sequence[Piece]) -> None:
        text, gap = "", list[Piece]()
        spans: list[list[int]] = []  # start and end of each tag in the text
        fixed: list[FixedSpan] = []
        open_ids: list[int] = []

        def add(markup: Markup, start: int, end: int) -> None:
            self._markup.append(markup)
            spans.append([start, end])

        for piece in [*run, Piece(self.end, self.end, Kind.TEXT)]:
            if piece.kind not in WORDS:
                gap.append(piece)
                continue
            closing, middle, opening = _divide(gap)
            for markup in closing:
                tag_id = open_ids.pop()
                spans[tag_id][1] = len(text)
                self._markup[tag_id] = replace(self._markup[tag_id], close=markup)
            space = " " if text and piece.text and any(each.kind in (Kind.SPACE, Kind.BREAK) for each in gap) else ""
            if any(each.kind is not Kind.SPACE for each in middle):
                # Markup with a space before it only is next to the following word.
                is_before_word = middle[0].kind is Kind.SPACE and middle[-1].kind is not Kind.SPACE
                at = len(text) + len(space) * is_before_word
                add(Markup(_range(middle, keep_left=not is_before_word, keep_right=is_before_word)), at, at)
            text += space
            for markup in opening:
                open_ids.append(len(spans))
                add(Markup(markup), len(text), len(text))
            if piece.kind is Kind.FIXED:
                fixed.append(FixedSpan(len(text), len(text) + len(piece.text), piece.text))
                add(Markup((piece.start, piece.end)), len(text), len(text) + len(piece.text))
            text, gap = text + piece.text, []
        self.block = RichText(text, tuple(Tag(start, end, i) for i, (start, end) in enumerate(spans)), tuple(fixed))


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
    """Return the index of the matching tag for each tag that has one. Matches are properly nested."""
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
        replace(piece, kind=Kind.POINT) if piece.kind in (Kind.OPEN, Kind.CLOSE) and i not in partners else piece
        for i, piece in enumerate(pieces)
    ]


def _join_empty_elements(pieces: list[Piece]) -> list[Piece]:
    """Make a point of each element without text."""
    joined: list[Piece] = []
    num_words = 0
    starts: list[tuple[int, int]] = []  # of the open elements: index in `joined`, and words before it
    for piece in pieces:
        num_words += piece.kind in WORDS
        if piece.kind is Kind.OPEN:
            starts.append((len(joined), num_words))
        joined.append(piece)
        if piece.kind is Kind.CLOSE:
            start, num_words_before = starts.pop()
            if num_words == num_words_before:
                is_break = any(each.kind in (Kind.SPACE, Kind.BREAK) for each in joined[start + 1 : -1])
                joined[start:] = [Piece(joined[start].start, piece.end, Kind.BREAK if is_break else Kind.POINT)]
    return joined


def _range_with_partners(pieces: Sequence[Piece], first: int, last: int) -> tuple[int, int]:
    """Extend a range to the matching tags of all tags in it."""
    partners = _partners(pieces)
    inside = [partners[i] for i in range(first, last + 1) if i in partners]
    return min([first, *inside]), max([last, *inside])


def _divide(gap: Sequence[Piece]) -> tuple[list[tuple[int, int]], list[Piece], list[tuple[int, int]]]:
    """Divide the markup between two words into that of elements that end, free markup, and that of elements that start.

    Returns:
        ranges of the source of elements that end, free pieces, ranges of the source of elements that start.
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


def _range(pieces: Sequence[Piece], *, keep_left: bool = True, keep_right: bool = True) -> tuple[int, int]:
    """Return the range of pieces, without the spaces on the sides that are not kept.

    Spaces are kept if there is other markup between them and the tag.
    """
    is_space = [piece.kind is Kind.SPACE for piece in pieces]
    first = 0 if keep_left else is_space.index(False)
    last = len(pieces) - (0 if keep_right else is_space[::-1].index(False))
    return pieces[first].start, pieces[last - 1].end
