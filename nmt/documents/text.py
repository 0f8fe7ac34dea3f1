"""Plain text documents: line-wrapped text, which is split into paragraphs, and whose layout is restored.

Blank lines separate paragraphs. A paragraph continues on the next line if that starts in lower case, or if the line
before is long enough to be wrapped; the lines of an address, for example, are paragraphs. The translation is wrapped to
the width of the paragraph, unless the paragraph is a single line. A heading, the line after it, a list item, and a line
indented further than the paragraph's text start a new paragraph. From the third line of a paragraph on, a line that is
not indented like the second starts one, too. Tabs separate columns, which are translated separately. The marker of a
paragraph, such as a list bullet, a number, a check box, `#` or `>`, is preserved.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from nmt.documents.document import RichText
from nmt.documents.formats import DocumentOptions
from nmt.documents.text_file import TextFile

MIN_WRAPPED = 40
"""Minimum number of characters of a line after which a paragraph continues with an upper-case letter."""
MIN_SHARE_OF_LONGEST = 0.6
"""Minimum length of such a line, relative to the longest line of the paragraph."""
_MARKER = re.compile(
    r"\s*(?:(?:[-*+•–]|\d{1,3}\.|\(?(?:\d{1,3}|[a-zA-Z]|[ivx]{2,5})\)|#{1,6}|>+)\s+)?(?:\[[ xX]\]\s+)?"
)

_TABS = re.compile(r"((?<!\s)\s*\t\s*)")  # with the lookbehind, the time is linear


@dataclass
class Paragraph:
    """A paragraph, or a blank line."""

    marker: str
    """Whitespace and list or heading marker before the text; for a blank line, the entire line."""
    lines: list[str] = field(default_factory=list)
    """Lines without surrounding whitespace; empty for a blank line."""
    indent: str = ""
    """Whitespace before the lines after the first."""
    original_lines: list[str] = field(default_factory=list)
    longest: int = 0
    """Length of the longest of `lines`."""

    @property
    def text(self) -> str:
        """The paragraph as one line."""
        return " ".join(self.lines)

    def continues_with(self, indent: str, text: str) -> bool:
        """Return whether a line with this indentation and text can be the next line of the paragraph."""
        if "\t" in self.lines[-1] + text:  # columns
            return False
        if not text[0].islower() and len(self.lines[-1]) < max(MIN_WRAPPED, MIN_SHARE_OF_LONGEST * self.longest):
            return False
        if len(self.lines) > 1:
            return indent == self.indent
        return len(indent) <= len(self.marker) and "#" not in self.marker

    def format(self, text: str) -> Iterator[str]:
        """Yield the lines of `text` in the layout of this paragraph."""
        if len(self.lines) < 2:
            yield self.marker + text
            return
        width = max(len(self.marker) + len(self.lines[0]), *(len(self.indent) + len(line) for line in self.lines[1:]))
        yield from textwrap.wrap(
            text, width, initial_indent=self.marker, subsequent_indent=self.indent,
            break_long_words=False, break_on_hyphens=False,
        ) or [self.marker]  # fmt: skip


def paragraphs(lines: Iterable[str]) -> Iterator[Paragraph]:
    """Group lines into paragraphs, which preserve the input."""
    current: Paragraph | None = None
    for line in lines:
        marker = _MARKER.match(line)[0]  # type: ignore[index]  # the pattern matches any string
        text = line[len(marker) :].rstrip()
        if current and text and not marker.strip() and current.continues_with(marker, text):
            current.indent = marker
            current.lines.append(text)
            current.original_lines.append(line)
            current.longest = max(current.longest, len(text))
            continue
        if current:
            yield current
        current = Paragraph(marker, [text], original_lines=[line], longest=len(text)) if text else None
        if current is None:
            yield Paragraph(line, original_lines=[line])
    if current:
        yield current


class TextDocument:
    """A plain text document."""

    def __init__(self, file: TextFile) -> None:
        self._file = file
        self._paragraphs = list(paragraphs(file.text.replace("\r\n", "\n").split("\n")))
        self.blocks = [RichText(text) for each in self._paragraphs for text in _TABS.split(each.text)[::2] if text]

    def render(self, translations: Sequence[RichText]) -> bytes:
        """Return the document with the translation of each paragraph."""
        translated = iter(translations)
        lines: list[str] = []
        for paragraph in self._paragraphs:
            parts = _TABS.split(paragraph.text)
            parts[::2] = [next(translated).text if text else "" for text in parts[::2]]
            translation = "".join(parts)
            is_unchanged = translation == paragraph.text
            lines += paragraph.original_lines if is_unchanged else paragraph.format(translation)
        line_end = "\r\n" if "\r\n" in self._file.text else "\n"
        return self._file.encode(line_end.join(lines))


def parse(data: bytes, options: DocumentOptions) -> TextDocument:
    """Parse a plain text document in UTF-8.

    Raises:
        DataError: the file is not UTF-8.
    """
    return TextDocument(TextFile.decode(data, options.encoding_errors))
