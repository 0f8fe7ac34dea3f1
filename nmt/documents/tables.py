"""CSV and TSV: some columns of a table are translated, and all other cells are copied.

The delimiter is a comma, semicolon, tab or `|`, or that of a first line such as `sep=;`. Cells may
be in double quotes, and then contain line breaks and doubled quotes (RFC 4180). Spaces around the
quotes are copied. In a table with tabs, a cell that is not entirely in quotes is read as it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from nmt.core.errors import DataError, UsageError, suggest_closest
from nmt.documents.formats import DocumentOptions
from nmt.documents.splicing import SplicedDocument
from nmt.documents.strings import StringLines, StringPart
from nmt.documents.text_file import TextFile

DELIMITERS = (",", ";", "\t", "|")
_SEPARATOR_LINE = re.compile(r'"?sep=([^"\r\n])"?\r?\n')
"""First line of tables for Excel, which names the delimiter."""


@dataclass(frozen=True)
class Cell:
    """A cell, as a range of the file. That of a quoted cell starts and ends at its quotes."""

    start: int
    end: int
    text: str
    is_quoted: bool
    is_last: bool
    """Whether the row ends after it."""


def parse_tsv(data: bytes, options: DocumentOptions) -> SplicedDocument:
    """Parse a table with tabs between the cells; see `parse`."""
    return parse(data, options, ["\t"])


def parse(
    data: bytes, options: DocumentOptions, delimiters: Sequence[str] = DELIMITERS
) -> SplicedDocument:
    """Parse a table whose first row has the names of its columns.

    Raises:
        UsageError: a column does not exist, or several exist and none is given.
        DataError: a quote is not closed, or the encoding is invalid.
    """
    file = TextFile.decode(data, options.encoding_errors)
    separator = _SEPARATOR_LINE.match(file.text)
    start = separator.end() if separator else 0
    delimiter = separator[1] if separator else _find_delimiter(file, options.columns, delimiters)
    rows = _rows(file, delimiter, start)
    header = [cell.text.strip() for cell in next(rows, [])]
    columns = _select(header, options.columns)
    parts = []
    for row in rows:
        for i in columns:
            if i < len(row):
                parts.append(_part(row[i], delimiter))
    return SplicedDocument(file, parts)


def _part(cell: Cell, delimiter: str) -> StringPart:
    lines = StringLines(cell.text)
    return StringPart(cell.start, cell.end, lines, lambda text: _encode(text, cell, delimiter))


def _find_delimiter(file: TextFile, columns: Sequence[str], delimiters: Sequence[str]) -> str:
    """Return the delimiter with which the first row has the most of `columns`, and the most cells.

    If that is one cell, return the delimiter, if any, with which every row has one: a comma may be
    part of the text, also before a quote.
    """
    best, best_score = delimiters[0], (-1, -1)
    for delimiter in delimiters:
        try:
            header = [cell.text.strip() for cell in next(_rows(file, delimiter), [])]
        except DataError:
            continue
        score = (len(set(header) & set(columns)), len(header))
        if score > best_score:
            best, best_score = delimiter, score
    if best_score[1] == 1:
        with suppress(DataError):  # of a quote, which the caller reports
            for delimiter in delimiters:
                if all(cell.is_last for cell in _cells(file, delimiter)):
                    return delimiter
    return best


def _rows(file: TextFile, delimiter: str, start: int = 0) -> Iterator[list[Cell]]:
    """Yield the rows that are not blank."""
    row: list[Cell] = []
    for cell in _cells(file, delimiter, start):
        row.append(cell)
        if cell.is_last:
            if len(row) > 1 or cell.text:
                yield row
            row = []


def _cells(file: TextFile, delimiter: str, start: int = 0) -> Iterator[Cell]:
    separator = re.escape(delimiter)
    space = " \t".replace(delimiter, "")
    quoted = rf'[{space}]*+(?P<quotes>"(?P<quoted>(?:[^"]|"")*)")[{space}]*+'
    plain = rf"(?P<plain>[^{separator}\r\n]*)"
    pattern = re.compile(rf"(?:{quoted}|{plain})(?P<next>{separator}|\r\n|[\r\n]|\Z)")
    position = start
    is_last = True
    while position < len(file.text) or not is_last:
        match = pattern.match(file.text, position)
        assert match  # a cell without quotes matches anything
        is_last = match["next"] != delimiter
        if match["quotes"]:
            text = match["quoted"].replace('""', '"')
            yield Cell(*match.span("quotes"), text, is_quoted=True, is_last=is_last)
        elif delimiter != "\t" and match["plain"].lstrip(space).startswith('"'):
            raise DataError(
                f"line {file.line(position)}: a quote is not closed, or a quote in a cell is not"
                " doubled",
                'write a quote in a quoted cell as ""',
            )
        else:
            yield Cell(*match.span("plain"), match["plain"], is_quoted=False, is_last=is_last)
        position = match.end()


def _select(header: Sequence[str], columns: Sequence[str]) -> list[int]:
    """Return the indices of the columns to translate."""
    names = f"columns: {', '.join(header)}"
    if not columns and len(header) > 1:
        raise UsageError("--column is required for a table with several columns", names)
    for name in columns:
        if name not in header:
            hint = suggest_closest(name, header)
            raise UsageError(
                f"--column {name}: there is no such column in the first row",
                f"{hint} ({names})" if hint else names,
            )
    return [i for i, name in enumerate(header) if not columns or name in columns]


def _encode(text: str, cell: Cell, delimiter: str) -> str:
    """Return the source of a cell with another text, in quotes if it was in quotes or needs
    them."""
    if delimiter == "\t" and not cell.is_quoted:
        return re.sub(r"[\t\r\n]+", " ", text)
    if cell.is_quoted or any(char in text for char in f'{delimiter}"\r\n'):
        return '"' + text.replace('"', '""') + '"'
    return text
