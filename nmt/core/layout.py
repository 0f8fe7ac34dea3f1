"""Results for readers, in the width of the terminal: wrapped lines, fields and tables.

Without a terminal, nothing is wrapped or left out, so other programs can read the lines.
"""

from __future__ import annotations

import itertools
import re
import shutil
import sys
import textwrap
from collections.abc import Collection, Iterable, Mapping, Sequence

from nmt.core.console import escape_control

GAP = "  "
"""Between the columns of a table."""
NO_BREAK_SPACE = "\xa0"
Row = Sequence[str]


def terminal_width() -> int:
    """Return the number of columns of the terminal that shows stdout; without one, a width that no
    line exceeds."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else sys.maxsize


class _Wrapper(textwrap.TextWrapper):
    """Breaks lines at spaces, but not after `±` and before units, and signatures after `|`."""

    wordsep_simple_re = re.compile(r"((?<!±)\s+(?!±|(?:[KM]|[kMG]?B)\b)|(?<=\|))")


def wrap(text: str, start: str = "", indent: str = "") -> list[str]:
    """Return the lines of a text. The first one begins with `start`, all others with `indent`."""
    wrapper = _Wrapper(
        terminal_width(),
        initial_indent=start,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return wrapper.wrap(escape_control(text)) or [start.rstrip()]


def format_fields(fields: Mapping[str, str | Iterable[str]], indent: str = "") -> list[str]:
    """Return lines with a label and a value each. A value of several lines has one label."""
    label_width = max(map(len, fields), default=0) + len(GAP)
    value_indent = indent + " " * label_width
    lines = []
    for label, value in fields.items():
        start = indent + label.ljust(label_width)
        for item in [value] if isinstance(value, str) else value:
            lines += wrap(item, start, value_indent)
            start = value_indent
    return lines


def format_table(
    rows: Sequence[Row], right: Collection[int] | None = None, optional: Iterable[int] = ()
) -> list[str]:
    """Return the lines of a table, the first row of which is its head.

    In a narrow terminal, the head and left-aligned cells are wrapped, then the table loses optional
    columns. If it is still too wide, each row becomes a list of fields.

    Args:
        rows: cells of equally many columns, in which `NO_BREAK_SPACE` is printed as a space.
        right: right-aligned columns; None: all but the first and the last.
        optional: columns that may be left out, the least important first.
    """
    right = range(1, len(rows[0]) - 1) if right is None else right
    max_width = terminal_width()
    droppable = list(optional)[::-1]
    rows = [list(map(escape_control, row)) for row in rows]
    columns = dict(enumerate(zip(*rows, strict=True)))
    while (widths := _fitting_widths(columns, right, max_width)) is None:
        if not droppable:
            return _rows_as_fields(rows)
        del columns[droppable.pop()]
    lines = []
    for row in rows:
        cells = [_wrap_cell(row[index], widths[index]) for index in columns]
        for parts in itertools.zip_longest(*cells, fillvalue=""):
            aligned = []
            for (index, width), part in zip(widths.items(), parts, strict=True):
                aligned.append(part.rjust(width) if index in right else part.ljust(width))
            lines.append(GAP.join(aligned).rstrip().replace(NO_BREAK_SPACE, " "))
    return lines


def _fitting_widths(
    columns: Mapping[int, Row], right: Collection[int], max_width: int
) -> dict[int, int] | None:
    """Return the width of each column, so that the table fits; None if it cannot."""
    widths = {index: _width(column) for index, column in columns.items()}
    min_widths = {index: _min_width(column, index in right) for index, column in columns.items()}
    while _table_width(widths.values()) > max_width:
        shrinkable = [index for index in widths if widths[index] > min_widths[index]]
        if not shrinkable:
            return None
        widths[max(shrinkable, key=widths.__getitem__)] -= 1
    return widths


def _width(column: Iterable[str]) -> int:
    return max(map(len, column))


def _table_width(widths: Iterable[int]) -> int:
    return sum(width + len(GAP) for width in widths) - len(GAP)


def _min_width(column: Sequence[str], is_right: bool) -> int:
    """Return the width of the longest word. Right-aligned cells are numbers, which stay whole."""
    head, *cells = column
    parts = _wrap_cell(head, 1)
    for cell in cells:
        parts += [cell] if is_right else _wrap_cell(cell, 1)
    return _width(parts)


def _wrap_cell(cell: str, width: int) -> list[str]:
    """Return the lines of a cell, with the indentation of the first."""
    indent = " " * (len(cell) - len(cell.lstrip()))
    lines = textwrap.wrap(
        cell,
        max(width, 1),  # a column without text has no width
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return lines or [""]


def _rows_as_fields(rows: Sequence[Row]) -> list[str]:
    """Return the first cell of each row, and below it the others with the heads of their
    columns."""
    (_, *heads), *others = rows
    lines = []
    for first, *cells in others:
        lines += wrap(first)
        fields = {}
        for head, cell in zip(heads, cells, strict=True):
            if cell:
                fields[head] = cell.replace(NO_BREAK_SPACE, " ")
        lines += format_fields(fields, GAP)
    return lines
