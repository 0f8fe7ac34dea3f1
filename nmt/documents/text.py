"""Plain text documents: line-wrapped text, which is split into paragraphs, and whose layout is
restored.

Blank lines and form feeds separate paragraphs. A paragraph continues on the next line if that
starts in lower case, or if the line before is long enough to be wrapped; the lines of an address,
for example, are paragraphs. The translation is wrapped to the width of the paragraph, unless the
paragraph is a single line. A heading, the line after it, a list item, and a line indented further
than the paragraph's text start a new paragraph. From the third line of a paragraph on, a line that
is not indented like the second starts one, too, and so does a line that begins with an option, a
date or a time. The marker of a paragraph, such as a list bullet, a number, a check box, a time
stamp, `#` or `>`, is preserved, and so is the whitespace at its end.

Tabs, bars, and two or more spaces separate columns, which are translated separately. Two spaces are
also usual after a sentence, a typing error in a sentence, and frequent in justified text.
"""

from __future__ import annotations

import re
import textwrap
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from nmt.documents.document import RichText
from nmt.documents.formats import DocumentOptions
from nmt.documents.ranges import by_start
from nmt.documents.text_file import TextFile
from nmt.text.spans import find_spans

MIN_WRAPPED = 40
"""Minimum number of characters of a line after which a paragraph continues with an upper-case
letter."""
MIN_SHARE_OF_LONGEST = 0.6
"""Minimum length of such a line, relative to the longest line of the paragraph."""
_DATE = r"(?:\d{4}[-/.]\d\d?[-/.]\d\d?|\d\d?[-/.]\d\d?[-/.]\d{2,4})(?!\d)"
_TIME = r"\d\d?:\d\d(?::\d\d)?(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?(?![\w:])"
_TIME_STAMP = rf"\[?(?:{_DATE}[T ]|[A-Z][a-zä]{{2}} [ \d]\d ){_TIME}\]?"
_MARKER = re.compile(
    r"\s*(?:(?:[-*+•–]|\d{1,3}\.|\(?(?:\d{1,3}|[a-zA-Z]|[ivx]{2,5})\)|#{1,6})\s+|>(?:\s*>)*(?:\s+|\Z))?(?:\[["
    r" xX]\]\s+)?"
    rf"(?:{_TIME_STAMP}\s+)?"
)
_QUOTE = re.compile(r">{1,2}(?: >{1,2})*\s+")
_START = re.compile(rf"--?[a-zA-Z?][\w-]*(?=[\s,=\[]|\Z)|[\[(]?(?:{_DATE}|{_TIME}|{_TIME_STAMP})")
"""A command-line option, a date or a time, with which a paragraph starts."""
# With the lookbehinds, the time is linear.
_WIDE_SEPARATOR = re.compile(r"(?<!\s)\s*[\t|│]\s*|(?<!\s) {3,}")
_SEPARATOR = re.compile(rf"{_WIDE_SEPARATOR.pattern}|(?<!\s) {{2,}}")
_LINE_END = re.compile(r"((?<!\r)\r*+\n|\r)")
_SENTENCE_END = re.compile(r"[.!?…]['\"”’)]?\Z")


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
        """Return whether a line with this indentation and text can be the next line of the
        paragraph."""
        if _START.match(text) or _has_columns(self.lines[-1], text):
            return False
        min_length = max(MIN_WRAPPED, MIN_SHARE_OF_LONGEST * self.longest)
        if not text[0].islower() and len(self.lines[-1]) < min_length:
            return False
        if len(self.lines) > 1:
            return indent == self.indent
        return len(indent) <= len(self.marker) and "#" not in self.marker

    def is_quote_before(self, marker: str, text: str) -> bool:
        """Return whether the paragraph is quoted, as in mail, and wrapped before a line."""
        has_quote_marker = _QUOTE.fullmatch(marker) is not None and marker == self.marker
        is_wrapped = len(self.lines[-1]) >= MIN_WRAPPED
        return has_quote_marker and is_wrapped and not _MARKER.match(text)[0]  # type: ignore[index]

    def cells(self) -> list[str]:
        """Return the cells of a row and the separators between them, alternately; usually, the text
        is one cell."""
        if len(self.lines) > 1:
            return [self.text]
        is_entry = _START.match(self.marker.lstrip() + self.text)
        is_sentence = _SENTENCE_END.search(self.text) and not is_entry
        separator = _WIDE_SEPARATOR if is_sentence else _SEPARATOR
        cells = []
        position = 0
        for start, end in _find_separators(separator, self.text):
            cells.append(self.text[position:start])
            cells.append(self.text[start:end])
            position = end
        cells.append(self.text[position:])
        return cells

    def format(self, text: str) -> Iterator[str]:
        """Yield the lines of `text` in the layout of this paragraph."""
        if len(self.lines) < 2:
            yield self.marker + text
            return
        first_width = len(self.marker) + len(self.lines[0])
        width = max(first_width, *(len(self.indent) + len(line) for line in self.lines[1:]))
        yield from textwrap.wrap(
            text,
            width,
            initial_indent=self.marker,
            subsequent_indent=self.indent,
            break_long_words=False,
            break_on_hyphens=False,
        ) or [self.marker]


def _find_separators(pattern: re.Pattern[str], text: str) -> list[tuple[int, int]]:
    """Return the ranges between columns: those that match a pattern, but not inside a protected
    span, such as code, and not two spaces after a sentence.
    """
    matches = list(pattern.finditer(text))
    spans = find_spans(text) if matches else []
    separators = []
    for match in matches:
        start, end = match.span()
        i = bisect_left(spans, start, key=by_start)
        is_inside = i > 0 and end < spans[i - 1].end
        text_before = text[max(0, start - 2) : start]
        is_after_sentence = match[0] == "  " and _SENTENCE_END.search(text_before)
        if not is_inside and not is_after_sentence:
            separators.append((start, end))
    return separators


def _has_columns(line: str, next_line: str) -> bool:
    """Return whether one of two lines has columns for sure, or both have columns that start at the
    same places."""
    if _find_separators(_WIDE_SEPARATOR, line) or _find_separators(_WIDE_SEPARATOR, next_line):
        return True
    starts = {end for _, end in _find_separators(_SEPARATOR, line)}
    next_starts = {end for _, end in _find_separators(_SEPARATOR, next_line)}
    if not starts or not next_starts:
        return False
    return starts <= next_starts or next_starts <= starts


def _join_cells(cells: Sequence[str], translations: Sequence[str]) -> str:
    """Join translated cells and the separators between them. A column starts where it did if there
    is space."""
    text = ""
    position = 0  # in the source
    for source, translation in zip(cells, translations, strict=True):
        is_separator = not source.strip(" \t|│")
        rest = source.lstrip(" ")
        num_spaces = len(source) - len(rest)
        if is_separator and num_spaces > 1:
            min_spaces = 1 if rest else 2
            column = position + num_spaces
            text += " " * max(min_spaces, column - len(text)) + rest
        else:
            text += translation
        position += len(source)
    return text


def _space_at_end(line: str) -> str:
    return line[len(line.rstrip()) :]


def paragraphs(lines: Iterable[str]) -> Iterator[Paragraph]:
    """Group lines into paragraphs, which preserve the input."""
    current: Paragraph | None = None
    for line in lines:
        marker = _MARKER.match(line)[0]  # type: ignore[index]  # the pattern matches any string
        text = line[len(marker) :].rstrip()
        is_continued_quote = current is not None and current.is_quote_before(marker, text)
        continues = not marker.strip() or is_continued_quote
        if current and text and continues and current.continues_with(marker, text):
            current.indent = marker
        else:
            if current:
                yield current
            current = Paragraph(marker if text else line)
        current.original_lines.append(line)
        if text:
            current.lines.append(text)
            current.longest = max(current.longest, len(text))
        else:
            yield current
            current = None
    if current:
        yield current


class TextDocument:
    """A plain text document."""

    def __init__(self, file: TextFile) -> None:
        self._file = file
        self._line_ends: list[str] = []
        self._paragraphs: list[Paragraph] = []
        for page in file.text.split("\f"):
            # Lines and line ends alternate.
            parts = _LINE_END.split(page)
            self._paragraphs += paragraphs(parts[::2])
            self._line_ends += [*parts[1::2], "\f"]
        self._line_ends[-1] = ""  # of the last page
        self._rows = [paragraph.cells() for paragraph in self._paragraphs]
        self.blocks: list[RichText] = []
        for row in self._rows:
            self.blocks += (RichText(cell) for cell in row[::2] if cell)

    def render(self, translations: Sequence[RichText]) -> bytes:
        """Return the document with the translation of each paragraph."""
        translated = iter(translations)
        pieces = []
        start = 0  # index of the line
        for paragraph, row in zip(self._paragraphs, self._rows, strict=True):
            cells = list(row)
            for i in range(0, len(row), 2):
                if row[i]:
                    cells[i] = next(translated).text
            translation = _join_cells(row, cells)
            source_lines = paragraph.original_lines
            end = start + len(source_lines)
            line_ends = self._line_ends[start:end]
            start = end
            if translation == paragraph.text:
                for line, line_end in zip(source_lines, line_ends, strict=True):
                    pieces += [line, line_end]
                continue
            first_end = _space_at_end(source_lines[0]) + line_ends[0]
            last_end = _space_at_end(source_lines[-1]) + line_ends[-1]
            lines = paragraph.format(translation)
            pieces += [first_end.join(lines), last_end]
        return self._file.encode("".join(pieces))


def parse(data: bytes, options: DocumentOptions) -> TextDocument:
    """Parse a plain text document.

    Raises:
        DataError: the encoding is unknown, or the file is not valid in it.
    """
    return TextDocument(TextFile.decode(data, options.encoding_errors, options.encoding))
