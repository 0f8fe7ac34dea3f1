"""Text files of which some parts are replaced; all other characters, the encoding and the line ends stay unchanged."""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple, Protocol

from nmt.documents.document import RichText
from nmt.errors import DataError
from nmt.inference.paragraphs import paragraphs

_BYTE_ORDER_MARKS = {
    codecs.BOM_UTF8: "utf-8", codecs.BOM_UTF32_LE: "utf-32-le", codecs.BOM_UTF32_BE: "utf-32-be",
    codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be",
}  # fmt: skip


@dataclass(frozen=True)
class TextFile:
    """The text of a file, and how it is encoded."""

    text: str
    encoding: str = "utf-8"
    bom: bytes = b""

    @classmethod
    def decode(cls, data: bytes, errors: str, encoding: str = "utf-8") -> TextFile:
        """Decode a file; a byte order mark takes precedence over `encoding`.

        Raises:
            DataError: the bytes are invalid, and `errors` is `strict`.
        """
        bom = next((each for each in _BYTE_ORDER_MARKS if data.startswith(each)), b"")
        encoding = _BYTE_ORDER_MARKS.get(bom, encoding)
        try:
            return cls(data[len(bom) :].decode(encoding, errors), encoding, bom)
        except UnicodeDecodeError as error:
            line = data[: len(bom) + error.start].count(b"\n") + 1
            raise DataError(
                f"line {line}: not {encoding.upper()} (0x{error.object[error.start]:02x})",
                "convert the file to UTF-8, or use --encoding-errors replace",
            ) from None

    def encode(self, text: str) -> bytes:
        """Encode a changed text.

        Raises:
            DataError: the encoding of the file lacks a character.
        """
        try:
            return self.bom + text.encode(self.encoding)
        except UnicodeEncodeError as error:
            raise DataError(
                f"the file's encoding, {self.encoding}, lacks the character '{text[error.start]}' of a translation",
                "convert the file to UTF-8",
            ) from None

    def line(self, position: int) -> int:
        """Return the number of the line at a position, from 1."""
        return self.text.count("\n", 0, position) + 1


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
