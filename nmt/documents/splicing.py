"""Text files of which some parts are replaced; all other characters, the encoding and the line ends stay unchanged."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import NamedTuple, Protocol

from nmt.data.spans import apply_edits, find_spans
from nmt.documents.document import RichText
from nmt.documents.text_file import TextFile
from nmt.inference.segments import FixedSpan

_WHOLE = ("url", "email", "path")
"""Kinds of protected spans that stay whole."""
_LINE = re.compile(r"(?:[-*•–][ \t]+)?(?P<text>\S(?:[^\t\r\n]*\S)?)")


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
        self, file: TextFile, parts: Sequence[Part], edits: Iterable[Edit] = (), encoding_errors: str = "strict"
    ) -> None:
        """Combine parts and other edits. `encoding_errors`: handling of characters that the encoding does not have."""
        self.file, self.parts, self.other_edits, self.encoding_errors = file, parts, list(edits), encoding_errors
        self.blocks = [block for part in parts for block in part.blocks]

    def render(self, translations: Sequence[RichText]) -> bytes:
        """Return the document with the translation of each block; everything else is unchanged."""
        remaining, edits = iter(translations), list(self.other_edits)
        for part in self.parts:
            edits += part.edits(list(islice(remaining, len(part.blocks))))
        return self.file.encode(apply_edits(self.file.text, edits), self.encoding_errors)


class StringLines:
    """A string such as a table cell: each line is a block, and its bullet and the whitespace around it are kept.

    A tab ends a line, too: it separates columns, or a menu entry from its shortcut. Matches of `protected` are fixed.
    """

    def __init__(self, text: str, protected: re.Pattern[str] | None = None) -> None:
        self.text = text
        self._spans = [match.span("text") for match in _LINE.finditer(text)]
        self.blocks = [
            RichText(line, fixed=_fixed(line, protected)) for line in (text[slice(*span)] for span in self._spans)
        ]

    def render(self, translations: Sequence[RichText]) -> str:
        """Return the string with the translations of its blocks."""
        texts = (re.sub(r"[\r\n]+", " ", each.text) for each in translations)
        return apply_edits(self.text, [Edit(*span, text) for span, text in zip(self._spans, texts, strict=True)])


def _fixed(text: str, pattern: re.Pattern[str] | None) -> tuple[FixedSpan, ...]:
    """Return the matches that are not a part of a tag, URL, address or path."""
    if pattern is None:
        return ()
    spans = (span for span in find_spans(text) if span.kind in _WHOLE or text[span.start] == "<")
    span_at = {i: span for span in spans for i in range(span.start, span.end)}
    fixed = []
    for match in pattern.finditer(text):
        other = span_at.get(match.start())
        if other is None or match.end() > other.end or (other.start, other.end) == match.span():
            fixed.append(FixedSpan(*match.span(), match[0]))
    return tuple(fixed)
