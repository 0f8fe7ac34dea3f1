"""The interface of a document format: blocks of text to translate, and the document with their
translations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Protocol

from nmt.documents.ranges import Span, span_of
from nmt.text.spans import apply_edits
from nmt.translation.segments import FixedSpan

MAX_NESTING = 20
"""A tag in more than this many others is not aligned (`project`), and is only in the first of
several parts of a text (`cut`): both would take time proportional to the depth."""


Parents = Mapping[int, int | None]
"""The id of the tag that contains a tag, by its id; None: it is in no tag."""


@dataclass(frozen=True)
class Tag:
    """Inline markup of a part of a text, such as emphasis or a link; with start = end, of a
    position: an image, a line break.
    """

    start: int
    end: int
    id: int
    """Identifies the markup within its block, or its paragraph if that has several blocks; a
    translation may repeat or move it, but not lose it."""
    is_doubtful: bool = field(default=False, compare=False)
    """Whether the word alignment hardly shows that these words of a translation are those of the
    tag."""

    @property
    def span(self) -> Span:
        """Its range."""
        return self.start, self.end

    @property
    def is_point(self) -> bool:
        """Whether it is a position."""
        return self.start == self.end

    def moved(self, offset: int) -> Tag:
        """Return the tag, `offset` characters further."""
        return replace(self, start=self.start + offset, end=self.end + offset)


@dataclass(frozen=True)
class RichText:
    """A block of text, such as a paragraph, a table cell or a caption: several sentences,
    translated as a whole."""

    text: str
    tags: tuple[Tag, ...] = ()
    """Inline markup, properly nested, outer tags first."""
    fixed: tuple[FixedSpan, ...] = ()
    """Parts whose translation is given, such as inline code."""

    @property
    def borders(self) -> set[int]:
        """The positions where tags start and end."""
        return set(chain.from_iterable(tag.span for tag in self.tags))

    @property
    def free_text(self) -> str:
        """The text without the fixed parts."""
        return apply_edits(self.text, ((*span_of(span), "") for span in self.fixed))


class Document(Protocol):
    """A parsed document."""

    @property
    def blocks(self) -> Sequence[RichText]:
        """The blocks to translate, in reading order."""

    def render(self, translations: Sequence[RichText]) -> bytes:
        """Return the document with the translation of each block; everything else is unchanged."""


def parents(tags: Iterable[Tag]) -> Parents:
    """Return the id of the tag that contains each tag.

    A position at the end of a tag is outside of it; at its start, it is inside if it follows the
    tag in the order.
    """
    result = {}
    open_tags: list[Tag] = []
    for tag in tags:
        while open_tags and (tag.end > open_tags[-1].end or tag.start >= open_tags[-1].end):
            open_tags.pop()
        result[tag.id] = open_tags[-1].id if open_tags else None
        open_tags.append(tag)
    return result
