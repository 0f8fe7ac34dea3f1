"""Text with inline markup in a source file: from pieces of the source to a `RichText`, and back to
source.

HTML and Markdown share this. The markup between two words is divided among the elements that end
there, free markup such as an image, and the elements that start there, so every character of the
source belongs to the text or to a tag.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from functools import lru_cache

from nmt.documents.builder import Markup, TextBuilder
from nmt.documents.document import RichText, Tag, parents
from nmt.documents.paired_codes import ended_range, is_range, started_range
from nmt.documents.ranges import Span, overlap, span_of
from nmt.documents.rich_text import Event, Sections, events, points_outside_before_tags
from nmt.documents.variants import syntax_spans
from nmt.text.spans import find_spans


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
_GAPS = {Kind.SPACE, Kind.BREAK}
_EMPHASIS = {"*", "**", "_", "__", "~", "~~", "=="}
"""Markup of Markdown that would be literal characters if it had no text."""
_LINE_BREAK = "\n"
"""What stands for a line break in the text of a run. Other line ends are spaces there."""
_BARS = ("|", "·", "•")
"""Characters that separate links."""
_SYMBOL_CATEGORIES = ("So", "Sm", "Sk", "Co", "Mn", "Me", "Cf")
"""Unicode categories of icons, arrows and the modifiers of emojis, but not of currency signs."""
_ADDRESS_KINDS = ("url", "email")
_SPACES = " \t\n\r\f"


@dataclass(slots=True)  # not frozen, because a document has very many
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


@dataclass
class _Markup(Markup):
    """A tag and its markup."""

    open: Span
    """A range of the source."""
    close: Span | None = None
    """None: a point, or a fixed element, which `open` includes with its text."""


class InlineText:
    """A run of text and inline markup, such as the content of a paragraph. A line break in it ends
    a block."""

    def __init__(self, pieces: Iterable[Piece], encode: Callable[[str], str]) -> None:
        """Find the text and its markup in adjacent pieces of the source; `encode` returns the
        source of a text."""
        self._encode = encode
        joined = _join_line_breaks(pieces)
        run, partners = _join_elements(joined)
        words = []
        for i, piece in enumerate(run):
            if piece.kind in WORDS and not _is_symbol(piece):
                words.append(i)
        self.start = self.end = 0
        """The range of the source that a translation replaces. Markup around all of the text is
        outside of it, and a symbol in front of or after it that is an element, such as an arrow in
        a menu."""
        builder = _Builder()
        if words:
            # A tag of the text has its partner in it.
            indices = range(words[0], words[-1] + 1)
            partners_of_text = [partners.get(i, i) for i in indices]
            first = min(partners_of_text)
            last = max(partners_of_text)
            self.start = run[first].start
            self.end = run[last].end
            builder.add_run(run[first : last + 1])
        self._text = builder.rich_text()
        self._markup = builder.markup
        self._line_breaks = builder.line_breaks
        separator = re.compile(_LINE_BREAK)
        syntax = _message_syntax(self._text)
        self._sections = Sections(self._text, separator, syntax)
        self.blocks = self._sections.blocks
        """The lines to translate."""

    def render(self, translations: Sequence[RichText], source: Callable[[int, int], str]) -> str:
        """Return the source of the translation of each block; `source` returns a range of the
        source."""
        translation = self._sections.join(translations)
        has_same_tags = translation.tags == self._text.tags
        if has_same_tags and translation.text == self._text.text:
            return source(self.start, self.end)
        parent_of = parents(self._text.tags)
        tags = points_outside_before_tags(translation.tags, parent_of)
        line_breaks = iter(self._line_breaks)
        output = []
        is_in_fixed = False  # whether a fixed element is open, whose markup includes its text
        ordered = replace(translation, tags=tags)
        for event, text, tag in events(ordered, parent_of):
            if tag is not None:
                output.append(self._markup_source(tag, event, source))
                has_end = self._markup[tag.id].close is not None
                if not has_end and not tag.is_point:
                    is_in_fixed = event is Event.OPEN
            elif not is_in_fixed:
                first, *others = text.split(_LINE_BREAK)
                output.append(self._encode(first))
                for line in others:
                    line_break = next(line_breaks)
                    output += [source(*line_break), self._encode(line)]
        return "".join(output)

    def _markup_source(self, tag: Tag, event: Event, source: Callable[[int, int], str]) -> str:
        """Return the source of the start or end of a tag. Emphasis without text is left out."""
        markup = self._markup[tag.id]
        opening = source(*markup.open)
        if tag.is_point and opening in _EMPHASIS:
            return ""
        if event is Event.OPEN:
            return opening
        if markup.close is None:
            return ""
        return source(*markup.close)


class _Builder(TextBuilder[_Markup]):
    """Builds a rich text from the pieces of a run."""

    def __init__(self) -> None:
        super().__init__()
        self.line_breaks: list[Span] = []
        """The range of each line break in the source."""

    def add_run(self, run: Sequence[Piece]) -> None:
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
        has_space = any(piece.kind in _GAPS for piece in gap)
        space = " " if self.length and is_before_text and has_space else ""
        for part in _divide(gap):
            if part and part[-1].kind is Kind.CLOSE:
                markup = self.close(part[-1].name)
                markup.close = _without_spaces(part)
            elif part and part[0].kind is Kind.OPEN:
                markup = _Markup(_without_spaces(part))
                self.start(part[0].name, markup)
            else:
                self._add_free_markup(part, space)

    def _add_free_markup(self, pieces: Sequence[Piece], space: str) -> None:
        """Add markup between elements, and the space between two words."""
        if all(piece.kind is Kind.SPACE for piece in pieces):
            self.add_text(space)
            return
        start, end = _without_spaces(pieces)
        is_after_space = pieces[0].kind is Kind.SPACE
        is_before_space = pieces[-1].kind is Kind.SPACE
        if is_after_space and not is_before_space:
            self.add_text(space)  # the markup is next to the following word
            self.add(_Markup((start, end)))
        else:
            self.add(_Markup((pieces[0].start, end)))
            self.add_text(space)

    def _add_word(self, piece: Piece) -> None:
        """Add a text, a fixed element or a line break."""
        if piece.kind is Kind.LINE_BREAK:
            self.line_breaks.append(span_of(piece))
            self.add_text(piece.text)
            return
        text = piece.text.replace(_LINE_BREAK, " ")  # from a character reference
        if piece.kind is Kind.FIXED:
            markup = self.add(_Markup(span_of(piece)))
            self.add_own_text(markup, text)
        else:
            self.add_text(text)


def _message_syntax(rich: RichText) -> list[Span]:
    """Return the ranges of the syntax of ICU messages; none if a fixed text has a part of it."""
    spans = list(syntax_spans(rich.text))
    for fixed in rich.fixed if spans else ():
        if any(overlap(span, span_of(fixed)) for span in spans):
            return []
    return spans


def text_piece(start: int, end: int, source: str, decode: Callable[[str], str]) -> Iterator[Piece]:
    """Yield the pieces of a range of the source without markup: the text itself, and the spaces
    before and after it."""
    core = source[start:end].strip(_SPACES)
    first = source.index(core, start)
    last = first + len(core)
    if start < first:
        yield Piece(start, first, Kind.SPACE)
    if core:
        yield Piece(first, last, Kind.TEXT, decode(core))
    if last < end:
        yield Piece(last, end, Kind.SPACE)


def paired_code(code: str) -> tuple[Kind, str]:
    """Return the kind and name of a piece of code without text, which may start or end a range."""
    started = started_range(code)
    if started:
        return Kind.OPEN, started
    ended = ended_range(code)
    return (Kind.CLOSE if ended else Kind.POINT), ended


def _join_line_breaks(pieces: Iterable[Piece]) -> list[Piece]:
    """Join each line break, or bar between elements, with the spaces and line breaks around it."""
    joined: list[Piece] = []
    for piece in pieces:
        previous_kind = joined[-1].kind if joined else None
        is_bar = piece.kind is Kind.TEXT and piece.text in _BARS
        is_separating_bar = is_bar and previous_kind is Kind.SPACE
        is_space = piece.kind is Kind.SPACE
        is_after_break = is_space and previous_kind is Kind.LINE_BREAK
        start = piece.start
        if piece.kind is Kind.LINE_BREAK or is_separating_bar or is_after_break:
            while joined and joined[-1].kind in (Kind.SPACE, Kind.LINE_BREAK):
                start = joined.pop().start
            piece = Piece(start, piece.end, Kind.LINE_BREAK, _LINE_BREAK)
        joined.append(piece)
    return joined


def end_indices(pieces: Iterable[Piece]) -> dict[int, int]:
    """Return the index of the end tag of each start tag that has one, by its index. Elements are
    properly nested."""
    ends = {}
    open_tags = []
    num_open = Counter[str]()
    for i, piece in enumerate(pieces):
        if piece.kind is Kind.OPEN:
            open_tags.append((i, piece.name))
            num_open[piece.name] += 1
        elif piece.kind is Kind.CLOSE and num_open[piece.name]:
            name = ""
            while name != piece.name:
                start, name = open_tags.pop()
                num_open[name] -= 1
            ends[start] = i
    return ends


def _join_elements(pieces: Sequence[Piece]) -> tuple[list[Piece], dict[int, int]]:
    """Make one piece of each element without text, and of each element whose text is an address;
    make a point of each tag without a partner.

    Returns:
        the pieces, and the index of the partner of each tag.
    """
    joined = []
    partners = {}
    ends = _ends_of_elements(pieces)
    matched = {*ends, *ends.values()}
    num_words = 0
    open_tags = []  # index in `joined`, number of words before it
    for i, piece in enumerate(pieces):
        kind = piece.kind
        joined.append(piece)
        if kind in WORDS:
            num_words += 1
        elif kind in (Kind.OPEN, Kind.CLOSE) and i not in matched:
            joined[-1] = replace(piece, kind=Kind.POINT)
        elif kind is Kind.OPEN:
            open_tags.append((len(joined) - 1, num_words))
        elif kind is Kind.CLOSE:
            start, num_words_before = open_tags.pop()
            whole = _whole_element(joined, start, num_words > num_words_before)
            if whole:
                joined[start:] = [whole]
            else:
                end = len(joined) - 1
                partners[start] = end
                partners[end] = start
    return joined, partners


def _ends_of_elements(pieces: Sequence[Piece]) -> dict[int, int]:
    """Return what `end_indices` does, without code in several blocks, in which it would be
    repeated."""
    ends = {}
    for start, end in end_indices(pieces).items():
        is_code = is_range(pieces[start].name)
        if not is_code or not _has_line_break(pieces[start:end]):
            ends[start] = end
    return ends


def _has_line_break(pieces: Iterable[Piece]) -> bool:
    return any(piece.kind is Kind.LINE_BREAK for piece in pieces)


def _whole_element(run: Sequence[Piece], first: int, has_words: bool) -> Piece | None:
    """Return the piece of the element at the end of a run; None: its tags stay apart."""
    start = run[first].start
    end = run[-1].end
    text = run[first + 1].text
    if has_words:
        has_one_piece = len(run) == first + 3
        if has_one_piece and _is_address(text):
            return Piece(start, end, Kind.FIXED, text)
        return None
    kinds = {piece.kind for piece in run[first:]}
    if Kind.LINE_BREAK in kinds:
        return Piece(start, end, Kind.LINE_BREAK, _LINE_BREAK)
    kind = Kind.BREAK if kinds & _GAPS else Kind.POINT
    return Piece(start, end, kind)


@lru_cache(maxsize=1)  # it is asked for each element around a text
def _is_address(text: str) -> bool:
    """Return whether a text is a URL or e-mail address: a link on it must not move to other
    words."""
    if " " in text or "." not in text:
        return False
    spans = find_spans(text)
    addresses = [span_of(span) for span in spans if span.kind in _ADDRESS_KINDS]
    return (0, len(text)) in addresses


def _is_symbol(piece: Piece) -> bool:
    """Return whether a text consists of symbols, such as an icon or an arrow."""
    if piece.kind is not Kind.TEXT:
        return False
    categories = map(unicodedata.category, piece.text)
    return all(category in _SYMBOL_CATEGORIES for category in categories)


def _divide(gap: Iterable[Piece]) -> list[list[Piece]]:
    """Divide the markup between two words: a part for each element that ends, one for free markup,
    and one for each element that starts."""
    parts: list[list[Piece]] = [[]]
    for piece in gap:
        if piece.kind is Kind.OPEN:
            parts.append([])
        parts[-1].append(piece)
        if piece.kind is Kind.CLOSE:
            parts.append([])
    return parts


def _without_spaces(pieces: Sequence[Piece]) -> Span:
    """Return the range of pieces without the spaces around them.

    Spaces are kept if there is other markup between them and the tag.
    """
    markup = [piece for piece in pieces if piece.kind is not Kind.SPACE]
    start = markup[0].start
    end = markup[-1].end
    return start, end
