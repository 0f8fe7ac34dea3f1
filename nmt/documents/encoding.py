"""Decoding and encoding of text documents."""

from __future__ import annotations

import codecs
from dataclasses import dataclass

from nmt.errors import DataError

_BYTE_ORDER_MARKS = {
    codecs.BOM_UTF8: "utf-8", codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be",
}  # fmt: skip


@dataclass(frozen=True)
class DecodedText:
    """The text of a file, and what is needed to encode another text in the same way."""

    text: str
    encoding: str
    byte_order_mark: bytes

    def encode(self, text: str, errors: str = "strict") -> bytes:
        """Encode a text like the file."""
        return self.byte_order_mark + text.encode(self.encoding, errors)


def decode(data: bytes, errors: str, declared: str = "utf-8") -> DecodedText:
    """Decode a file according to its byte order mark, else as `declared`.

    Args:
        data: content of the file.
        errors: for invalid bytes: "strict" raises an error, "replace" decodes them as U+FFFD.
        declared: name of the encoding.

    Raises:
        DataError: the encoding is unknown, or the file is not valid in it.
    """
    mark, encoding = next(((m, e) for m, e in _BYTE_ORDER_MARKS.items() if data.startswith(m)), (b"", declared))
    data = data.removeprefix(mark)
    try:
        return DecodedText(str(data, encoding, errors), encoding, mark)
    except UnicodeDecodeError as error:
        line, start = data.count(b"\n", 0, error.start) + 1, data.rfind(b"\n", 0, error.start) + 1
        raise DataError(
            f"line {line}, byte {error.start - start + 1} of the line: not {encoding.upper()} "
            f"(0x{data[error.start]:02x})",
            "correct its encoding, or use --encoding-errors replace",
        ) from None
    except LookupError:
        raise DataError(f"unknown encoding '{encoding}'", "convert the file to UTF-8") from None
