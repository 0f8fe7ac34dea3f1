"""Decoding and encoding of text documents."""

from __future__ import annotations

import codecs
import html
import re
from dataclasses import dataclass

from nmt.core.errors import DataError

_BYTE_ORDER_MARKS = {
    codecs.BOM_UTF8: "utf-8",
    codecs.BOM_UTF32_LE: "utf-32-le",
    codecs.BOM_UTF32_BE: "utf-32-be",
    codecs.BOM_UTF16_LE: "utf-16-le",
    codecs.BOM_UTF16_BE: "utf-16-be",
}
"""The encoding of each mark. That of UTF-32 begins with that of UTF-16."""
_REJECTED = {"idna", "punycode", "raw-unicode-escape", "unicode-escape", "utf-7"}
"""Codecs of Python that are no encodings of documents: their time is quadratic, or they decode to
lone surrogates."""
_LINE_END = re.compile(rb"(?<!\r)\r*+\n|\r")
_HUGE_REFERENCE = re.compile(r"&#[0-9]{4000,};?")


def unescape(text: str) -> str:
    """Replace the character references of HTML. Numbers that are too long for html.unescape become
    U+FFFD."""
    return html.unescape(_HUGE_REFERENCE.sub("\ufffd", text))


@dataclass(frozen=True)
class TextFile:
    """The text of a file, and what is needed to encode another text in the same way."""

    text: str
    encoding: str = "utf-8"
    byte_order_mark: bytes = b""
    line_end: str = "\n"
    """What the file has for each `\\n` of the text: a carriage return, if it has no other line
    ends."""

    @classmethod
    def decode(cls, data: bytes, errors: str, declared: str = "utf-8") -> TextFile:
        """Decode a file according to its byte order mark, else as `declared`.

        Args:
            data: content of the file.
            errors: for invalid bytes: "strict" raises an error, "replace" decodes them as U+FFFD.
            declared: name of the encoding.

        Raises:
            DataError: the encoding is unknown, or the file is not valid in it.
        """
        if declared.lower().startswith("utf-16") and b"\0" not in data:
            declared = "utf-8"  # the declaration could be read as ASCII
        mark = next(filter(data.startswith, _BYTE_ORDER_MARKS), b"")
        encoding = _BYTE_ORDER_MARKS.get(mark, declared)
        data = data.removeprefix(mark)
        try:
            if codecs.lookup(encoding).name in _REJECTED:
                raise LookupError
            text = str(data, encoding, errors)
        except UnicodeDecodeError as error:
            lines = _LINE_END.split(data[: error.start])
            raise DataError(
                f"line {len(lines)}, byte {len(lines[-1]) + 1} of the line: not {encoding.upper()} "
                f"(0x{data[error.start]:02x})",
                "correct its encoding, name that of a .txt, .srt or .vtt file with --encoding, or"
                " use --encoding-errors replace",
            ) from None
        except (LookupError, UnicodeError):
            raise DataError(
                f"unknown encoding '{encoding}'",
                "a typical one is cp1252, or convert the file to UTF-8",
            ) from None
        if "\r" in text and "\n" not in text:
            return cls(text.replace("\r", "\n"), encoding, mark, line_end="\r")
        return cls(text, encoding, mark)

    def encode(self, text: str, errors: str = "strict") -> bytes:
        """Encode a changed text.

        Raises:
            DataError: the encoding of the file lacks a character.
        """
        text = text.replace("\n", self.line_end)
        try:
            return self.byte_order_mark + text.encode(self.encoding, errors)
        except UnicodeEncodeError as error:
            raise DataError(
                f"the file's encoding, {self.encoding}, lacks the character '{text[error.start]}'"
                " of a translation",
                "convert the file to UTF-8",
            ) from None

    def line(self, position: int) -> int:
        """Return the number of the line at a position, from 1."""
        return self.text.count("\n", 0, position) + 1
