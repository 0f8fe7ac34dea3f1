"""Text files of which some parts are replaced; all other characters, the encoding and the line ends stay unchanged."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import NamedTuple, Protocol

from nmt.documents.document import RichText
from nmt.documents.encoding import TextFile
from nmt.documents.text import paragraphs


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

    def __init__(self, file: TextFile, parts: Sequence[Part]) -> None:
        self.file, self.parts = file, parts
        self.blocks = [block for part in parts for block in part.blocks]

    def render(self, translations: Sequence[RichText]) -> bytes:
        """Return the document with the translation of each block; everything else is unchanged."""
        remaining, edits = iter(translations), list[Edit]()
        for part in self.parts:
            edits += part.edits(list(islice(remaining, len(part.blocks))))
        pieces, position = [], 0
        for start, end, text in sorted(edits):
            pieces += [self.file.text[position:start], text]
            position = end
        return self.file.encode("".join(pieces) + self.file.text[position:])


class PlainText:
    """A string such as a table cell: its paragraphs are blocks, and the whitespace around it is kept."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._inner = text.strip()
        self._line_end = "\r\n" if "\r\n" in self._inner else "\n"
        lines = self._inner.split(self._line_end)
        # In a single line, what looks like a list marker may be a number: "3. Mai".
        self._paragraphs = list(paragraphs(lines)) if len(lines) > 1 else []
        texts = [each.text for each in self._paragraphs if each.lines] if self._paragraphs else [self._inner]
        self.blocks = [RichText(text) for text in texts if text]

    def render(self, translations: Sequence[RichText]) -> str:
        """Return the string with the translations of its blocks."""
        if list(translations) == self.blocks:
            return self.text
        texts = iter(" ".join(each.text.split("\n")) for each in translations)
        lines = [
            line for each in self._paragraphs for line in (each.format(next(texts)) if each.lines else [each.marker])
        ]
        inner = self._line_end.join(lines) if self._paragraphs else next(texts)
        before, _, after = self.text.partition(self._inner)
        return before + inner + after
