"""Tables in the formats of terminals, documents and spreadsheets."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Sequence

from nmt.core.layout import format_table

Rows = Sequence[Sequence[str]]
"""A table; the first row is its head."""
LATEX_CHARACTERS = {"\\": r"\textbackslash{}", "±": r"$\pm$", "~": r"\textasciitilde{}"} | {
    character: f"\\{character}" for character in "&%$#_{}"
}


def _text(rows: Rows, num_labels: int) -> str:
    numbers = range(num_labels, len(rows[0]))
    return "\n".join(format_table(rows, numbers))


def _markdown(rows: Rows, num_labels: int) -> str:
    head, *body = [[cell.replace("|", "\\|") for cell in row] for row in rows]
    num_numbers = len(head) - num_labels
    rule = ["---"] * num_labels + ["---:"] * num_numbers
    lines = []
    for cells in [head, rule, *body]:
        joined = " | ".join(cells)
        lines.append(f"| {joined} |")
    return "\n".join(lines)


def _latex(rows: Rows, num_labels: int) -> str:
    """Format a table for the package booktabs."""
    num_numbers = len(rows[0]) - num_labels
    alignment = "l" * num_labels + "r" * num_numbers
    lines = []
    for row in rows:
        cells = " & ".join(map(_escape_latex, row))
        lines.append(rf"{cells} \\")
    head, *body = lines
    start = rf"\begin{{tabular}}{{{alignment}}}"
    end = r"\end{tabular}"
    return "\n".join([start, r"\toprule", head, r"\midrule", *body, r"\bottomrule", end])


def _escape_latex(cell: str) -> str:
    escaped = "".join(LATEX_CHARACTERS.get(character, character) for character in cell)
    # At the start of a row, they would be arguments of the end of the previous one.
    return re.sub(r"^([\[*])", r"{\1}", escaped)


def _csv(rows: Rows, num_labels: int) -> str:
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerows(rows)
    return file.getvalue().rstrip("\n")


TABLE_FORMATS: dict[str, Callable[[Rows, int], str]] = {
    "text": _text,
    "md": _markdown,
    "latex": _latex,
    "csv": _csv,
}
"""Functions of the rows and the number of columns with labels, which are left-aligned."""
