"""Text files of which some parts are replaced; all other characters, the encoding and the line ends
stay unchanged."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
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


class Part(Protocol):
    """A part of a file that is translated, such as a table cell."""

    @property
    def blocks(self) -> Sequence[RichText]:
        """The blocks to translate."""

    def edits(self, translations: Sequence[RichText]) -> Iterable[Edit]:
        """Return the changes of the file for the translation of each block."""


class SplicedDocument:
    """A document in which the translations replace ranges of the text."""

    def __init__(
        self,
        file: TextFile,
        parts: Sequence[Part],
        edits: Iterable[Edit] = (),
        encoding_errors: str = "strict",
    ) -> None:
        """Combine parts and other edits. `encoding_errors`: handling of characters that the
        encoding does not have."""
        self.file, self.parts, self.other_edits, self.encoding_errors = (
            file,
            parts,
            list(edits),
            encoding_errors,
        )
        self.blocks = [block for part in parts for block in part.blocks]

    def render(self, translations: Sequence[RichText]) -> bytes:
        """Return the document with the translation of each block; everything else is unchanged."""
        remaining, edits = iter(translations), list(self.other_edits)
        for part in self.parts:
            edits += part.edits(list(islice(remaining, len(part.blocks))))
        return self.file.encode(apply_edits(self.file.text, edits), self.encoding_errors)
