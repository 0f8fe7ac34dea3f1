"""Tables of text: CSV (RFC 4180) with quotes, and TSV without."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice

from nmt.core.console import counted
from nmt.core.errors import DataError
from nmt.data.pairs import InputFile, read_lines, read_tsv
from nmt.data.tables.columns import ColumnRequest
from nmt.data.tables.table import Record, Table

DELIMITERS = (",", ";", "\t", "|")
"""What may separate the cells of a CSV file. Spreadsheets write semicolons where the comma is the
decimal separator, as in German."""
_DECLARATION = re.compile(r"sep=(.)", re.IGNORECASE)
"""A line before the first row that declares the delimiter, as Excel writes and reads it."""
SAMPLE_LINES = 100
"""Lines from which the delimiter is found."""
MAX_CELL = 1_000_000
"""Maximum number of characters of a cell: a quote that is not closed extends to the end of the
file."""
_PROBLEMS = {
    "unexpected end of data": ("a quote is not closed", "close it"),
    "field larger": (
        f"a cell has more than {MAX_CELL:,} characters",
        "look for a quote that is not closed",
    ),
    "expected after": (
        "text after a closing quote",
        'write each quote in a quoted cell twice: ""',
    ),
    "new-line character": ("a line ends in CR", "convert the line ends to LF"),
}
"""Message and hint for the errors of the module csv, by a part of their text."""


def open_tsv(path: InputFile, request: ColumnRequest, errors: str) -> Table:
    """Open a tab-separated file, in which quotes have no meaning. Without names that tell the
    columns, the first line is a pair."""
    first = next(read_lines(path, errors), "").split("\t")
    has_header = bool(request.is_header(first))
    read = partial(_read_tsv, path, errors, has_header)
    return _table(path, request, first, has_header, read)


def _read_tsv(
    path: InputFile, errors: str, has_header: bool, columns: Sequence[int]
) -> Iterator[Record]:
    rows = read_tsv(path, errors, columns=tuple(columns))
    records = enumerate(rows, 1)
    if has_header:
        next(records, None)
    return records


def open_csv(path: InputFile, request: ColumnRequest, errors: str) -> Table:
    """Open a CSV file, and find its delimiter and its names.

    Raises:
        DataError: it is empty, or delimiter or names cannot be found.
    """
    sample = list(islice(read_lines(path, errors), SAMPLE_LINES))
    declared = _DECLARATION.fullmatch(sample[0]) if sample else None
    if declared:
        del sample[0]
    if not any(sample):
        raise DataError(f"{path} is empty", "write a line with the names of the columns")
    delimiter = request.delimiter or (declared[1] if declared else "")
    delimiter = delimiter or _find_delimiter(path, sample, request)
    first = _parse_sample(path, sample, delimiter)[0]
    if len(first) < 2:
        raise DataError(
            f"{path}, line 1: one column, separated by '{delimiter}'", "leave out delimiter="
        )
    has_header = request.is_header(first)
    if has_header is None:
        raise DataError(
            f"{path}: line 1 may be a pair, or the names of columns",
            f"{request.language_hint}write files(train='{path}', header=False) if it is a pair,"
            " otherwise header=True with the names or numbers of two columns: src=..., tgt=...",
        )
    num_columns = len(request.names) or len(first)
    num_skipped = 1 if declared else 0
    read = partial(_read_csv, path, errors, delimiter, has_header, num_columns, num_skipped)
    return _table(path, request, first, has_header, read)


def _table(
    path: InputFile,
    request: ColumnRequest,
    first: Sequence[str],
    has_header: bool,
    read: Callable[[Sequence[int]], Iterator[Record]],
) -> Table:
    names = list(first)
    if request.names and not request.are_in(first):
        names = list(request.names)
    elif not has_header:
        names = [str(i + 1) for i in range(len(first))]
    columns = request.find(path, names, has_names=has_header or bool(request.names))
    return Table(path, "line", names, columns, read)


def _find_delimiter(path: InputFile, sample: Sequence[str], request: ColumnRequest) -> str:
    """Return the delimiter that yields the wanted names in the first row, or the only one that
    divides all rows of the sample into the same number of columns."""
    possible = []
    for delimiter in DELIMITERS:
        rows = _parse_sample(path, sample, delimiter)
        if request.are_in(rows[0]):
            return delimiter
        counts = {len(row) for row in rows}
        if len(counts) == 1 and counts != {1}:
            possible.append(delimiter)
    if len(possible) == 1:
        return possible[0]
    raise DataError(
        f"{path}: the columns and their delimiter are unknown",
        f"{request.language_hint}name the columns as in line 1: files(train='{path}', src='...',"
        " tgt='...'); without names: delimiter=';', header=False",
    )


def _parse_sample(path: InputFile, sample: Sequence[str], delimiter: str) -> list[list[str]]:
    """Return the rows of the first lines, without the last one, which may continue."""
    lines = (line + "\n" for line in sample)
    csv.field_size_limit(MAX_CELL)
    reader = csv.reader(lines, delimiter=delimiter, skipinitialspace=True)
    try:
        rows = [row for row in reader if row]
    except csv.Error as error:
        raise _data_error(path, reader.line_num, error) from None
    return rows[:-1] if len(sample) == SAMPLE_LINES and len(rows) > 1 else rows


def _read_csv(
    path: InputFile,
    errors: str,
    delimiter: str,
    has_header: bool,
    num_columns: int,
    num_skipped: int,
    columns: Sequence[int],
) -> Iterator[Record]:
    """Yield the line in which a row begins, and its cells."""
    lines = (line + "\n" for line in islice(read_lines(path, errors), num_skipped, None))
    csv.field_size_limit(MAX_CELL)
    rows = csv.reader(lines, delimiter=delimiter, skipinitialspace=True, strict=True)
    is_skipped = has_header
    number = num_skipped + 1
    try:
        for row in rows:
            start = number
            number = num_skipped + rows.line_num + 1
            if not row:  # a blank line
                continue
            if is_skipped:
                is_skipped = False
                continue
            if len(row) != num_columns:
                raise DataError(
                    f"{path}, line {start}: {counted(len(row), 'column')} instead of {num_columns}",
                    f"put quotes around cells that contain '{delimiter}'",
                )
            yield start, [row[index] for index in columns]
    except csv.Error as error:
        raise _data_error(path, number, error) from None


def _data_error(path: InputFile, line: int, error: csv.Error) -> DataError:
    text = str(error)
    for part, (message, hint) in _PROBLEMS.items():
        if part in text:
            return DataError(f"{path}, line {line}: {message}", hint)
    return DataError(f"{path}, line {line}: {text}")
