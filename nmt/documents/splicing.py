"""Text files whose translations replace ranges. All other characters, the encoding and the line
ends stay unchanged."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import NamedTuple, Protocol

from nmt.documents.document import RichText
from nmt.documents.inline import InlineText
from nmt.documents.text_file import TextFile
from nmt.text.spans import apply_edits


class Edit(NamedTuple):
    """The replacement of a range of a text."""

    start: int
    end: int
    text: str


class HasBlocks(Protocol):
    """A part of a document."""

    @property
    def blocks(self) -> Sequence[RichText]:
        """The blocks to translate."""


def next_blocks(translations: Iterator[RichText], part: HasBlocks) -> list[RichText]:
    """Return the translations of a part, which are the next ones."""
    return list(islice(translations, len(part.blocks)))


class Part(HasBlocks, Protocol):
    """A part of a file that is translated, such as a table cell."""

    def edits(self, translations: Sequence[RichText]) -> Iterable[Edit]:
        """Return the changes of the file for the translation of each block."""


@dataclass
class SplicedDocument:
    """A document in which the translations replace ranges of the text. A text with markup may
    contain other parts, such as the title of a link in a paragraph."""

    file: TextFile
    parts: Sequence[Part | InlineText]
    """The parts in the order of their blocks; texts with markup in that of the file."""
    other_edits: Sequence[Edit] = ()
    encoding_errors: str = "strict"
    """Handling of characters that the encoding does not have."""

    @cached_property
    def blocks(self) -> list[RichText]:
        """The blocks to translate."""
        return [block for part in self.parts for block in part.blocks]

    def render(self, translations: Sequence[RichText]) -> bytes:
        """Return the document with the translation of each block; everything else is unchanged."""
        remaining = iter(translations)
        edits = [*self.other_edits]
        texts: list[tuple[InlineText, list[RichText]]] = []
        for part in self.parts:
            of_part = next_blocks(remaining, part)
            if isinstance(part, InlineText):
                texts.append((part, of_part))
            else:
                edits += part.edits(of_part)
        edits.sort()
        text = apply_edits(self.file.text, self._outer_edits(edits, texts))
        return self.file.encode(text, self.encoding_errors)

    def _outer_edits(
        self, edits: Sequence[Edit], texts: Iterable[tuple[InlineText, Sequence[RichText]]]
    ) -> Iterator[Edit]:
        """Yield the edits, which are in order, and those of texts with markup: the source of their
        translations contains the edits in them."""

        def source(start: int, end: int) -> str:
            first = bisect_left(edits, (start,))
            last = bisect_left(edits, (end,))
            inside = edits[first:last]
            shifted = (Edit(each.start - start, each.end - start, each.text) for each in inside)
            return apply_edits(self.file.text[start:end], shifted)

        position = 0
        for text, translations in texts:
            yield from edits[position : bisect_left(edits, (text.start,))]
            yield Edit(text.start, text.end, text.render(translations, source))
            position = bisect_left(edits, (text.end,))
        yield from edits[position:]
