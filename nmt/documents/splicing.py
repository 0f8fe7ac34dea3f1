"""Text files whose translations replace ranges that do not contain each other: tables, PO, XLIFF
and JSON. All other characters, the encoding and the line ends stay unchanged."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import NamedTuple, Protocol

from nmt.documents.document import RichText
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
    """A document in which the translations replace ranges of the text."""

    file: TextFile
    parts: Sequence[Part]
    other_edits: Iterable[Edit] = ()
    encoding_errors: str = "strict"
    """Handling of characters that the encoding does not have."""

    @cached_property
    def blocks(self) -> list[RichText]:
        """The blocks to translate."""
        return [block for part in self.parts for block in part.blocks]

    def render(self, translations: Sequence[RichText]) -> bytes:
        """Return the document with the translation of each block; everything else is unchanged."""
        remaining = iter(translations)
        edits = list(self.other_edits)
        for part in self.parts:
            edits += part.edits(next_blocks(remaining, part))
        return self.file.encode(apply_edits(self.file.text, edits), self.encoding_errors)
