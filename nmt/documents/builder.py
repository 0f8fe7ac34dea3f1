"""Builds the rich text of a format with a stack of open elements, and writes its translations."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from nmt.documents.document import RichText, Tag
from nmt.documents.own_text import with_tags_on_own_text
from nmt.documents.rich_text import Event, events
from nmt.translation.segments import FixedSpan


class Markup:
    """A position or range of a text. A format adds the source of the markup there."""

    id = 0
    start = 0
    end = 0
    own_text = ""
    """Text that the markup itself writes, such as that of a field."""


@dataclass
class SourceMarkup(Markup):
    """Markup of a text file: all of its source, or what is before and after its text."""

    opening: str
    closing: str = ""


def to_markup(
    rich: RichText, markup: Mapping[int, SourceMarkup], escape: Callable[[str], str] = str
) -> str:
    """Return the source of a rich text; `markup` has that of each tag."""
    pieces = []
    for event, text, tag in events(rich):
        if tag is None:
            pieces.append(escape(text))
        elif event is Event.OPEN:
            pieces.append(markup[tag.id].opening)
        else:
            pieces.append(markup[tag.id].closing)
    return "".join(pieces)


M = TypeVar("M", bound=Markup)


class TextBuilder(Generic[M]):
    """A text to which text and markup are added at the end, in the order of the file."""

    def __init__(self) -> None:
        self.length = 0
        """Length of the text so far."""
        self.last_character = ""
        self.markup: dict[int, M] = {}
        """All markup, by the id of its tag."""
        self.tags: list[M] = []
        """The markup of the text."""
        self.open: list[tuple[str, M]] = []
        """Name and markup of what has no end so far, outer ones first."""
        self._pieces: list[str] = []
        self._fixed: list[FixedSpan] = []
        self._parents: dict[int, int] = {}

    def add_text(self, text: str) -> None:
        """Add text."""
        self._pieces.append(text)
        self.length += len(text)
        self.last_character = text[-1:] or self.last_character

    def add(self, markup: M) -> M:
        """Add markup at the end of the text: a point, or a range that may be extended."""
        markup.id = len(self.markup)
        markup.start = markup.end = self.length
        if self.open:
            self._parents[markup.id] = self.open[-1][1].id
        self.markup[markup.id] = markup
        self.tags.append(markup)
        return markup

    def add_own_text(self, markup: M, text: str, *, is_fixed: bool = True) -> None:
        """Add the text that some markup writes itself."""
        markup.own_text = text
        if is_fixed:
            self._fixed.append(FixedSpan(self.length, self.length + len(text), text))
        self.add_text(text)
        markup.end = self.length

    def start(self, name: str, markup: M) -> M:
        """Start a range."""
        self.open.append((name, self.add(markup)))
        return markup

    def close(self, name: str) -> M:
        """End the innermost range with a name.

        Ranges that start in it and end later remain two points.
        """
        while True:
            open_name, markup = self.open.pop()
            if open_name == name:
                markup.end = self.length
                return markup

    def is_innermost(self, name: str) -> bool:
        """Return whether the innermost open range has a name."""
        return bool(self.open) and self.open[-1][0] == name

    def rich_text(self) -> RichText:
        """Return the text."""
        tags = tuple(Tag(each.start, each.end, each.id) for each in self.tags)
        return RichText("".join(self._pieces), tags, tuple(self._fixed))

    def events(self, translation: RichText) -> Iterator[tuple[Event, str, M | None, bool]]:
        """Yield what `rich_text.events` does, without text that markup writes itself, and whether
        the markup is a copy of markup that has ended."""
        own_texts = {each.id: each.own_text for each in self.markup.values()}
        placed = set()
        own_text = ""
        with_tags = with_tags_on_own_text(translation, own_texts)
        for event, text, tag in events(with_tags, self._parents):
            if tag is None:
                if text != own_text:
                    yield event, text, None, False
                continue
            is_copy = tag.id in placed
            yield event, "", self.markup[tag.id], is_copy
            own_text = ""
            if event is Event.CLOSE:
                placed.add(tag.id)
            elif not is_copy:
                own_text = own_texts[tag.id]
