"""Lines of text in UTF-8."""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Iterator

from nmt.core.errors import DataError

_UTF16_BOMS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


class EncodingError(DataError):
    """A text is not UTF-8."""


def decode_lines(raw_lines: Iterable[bytes], name: str, errors: str = "strict") -> Iterator[str]:
    """Decode lines without their ends and a byte order mark.

    Args:
        raw_lines: the lines, with their ends.
        name: the name of the input in error messages.
        errors: for bytes that are not UTF-8: "strict" raises an error, "replace" decodes them as
            U+FFFD.

    Raises:
        EncodingError: a line is not UTF-8; the message has its line and byte, from 1.
    """
    for number, raw in enumerate(raw_lines, 1):
        if number == 1:
            if raw.startswith(_UTF16_BOMS) and errors == "strict":
                raise EncodingError(
                    f"{name} is UTF-16, not UTF-8",
                    "save it as UTF-8 (in Excel: CSV UTF-8), or use iconv -f UTF-16 -t UTF-8",
                )
            raw = raw.removeprefix(codecs.BOM_UTF8)
        line = raw.removesuffix(b"\n").removesuffix(b"\r")
        try:
            yield line.decode("utf-8", errors)
        except UnicodeDecodeError as error:
            raise EncodingError(
                f"{name}, line {number}, byte {error.start + 1} of the line: not UTF-8"
                f" (0x{line[error.start]:02x})",
                "save it as UTF-8, or use --encoding-errors replace, or errors='replace' in"
                " files(...)",
            ) from None
