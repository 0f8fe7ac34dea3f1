"""Tables in the formats of terminals, documents and spreadsheets."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Sequence

from nmt.core.console import format_table

Rows = Sequence[Sequence[str]]
"""A table; the first row is its head."""
LATEX_CHARACTERS = {"\\": r"\textbackslash{}", "±": r"$\pm$", "~": r"\textasciitilde{}"} | {
    character: f"\\{character}" for character in "&%$#_{}"
}


def _text(rows: Rows, num_labels: int) -> str:
    return "\n".join(format_table(rows, range(num_labels, len(rows[0]))))


def _markdown(rows: Rows, num_labels: int) -> str:
    num_columns = len(rows[0])
    rule = ["---"] * num_labels + ["---:"] * (num_columns - num_labels)
    lines = [[cell.replace("|", "\\|") for cell in row] for row in rows]
    lines.insert(1, rule)
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _latex(rows: Rows, num_labels: int) -> str:
    """Format a table for the package booktabs."""
    columns = "l" * num_labels + "r" * (len(rows[0]) - num_labels)
    head, *body = [" & ".join(map(_escape_latex, row)) + r" \\" for row in rows]
    start = [rf"\begin{{tabular}}{{{columns}}}", r"\toprule", head, r"\midrule"]
    return "\n".join([*start, *body, r"\bottomrule", r"\end{tabular}"])


def _escape_latex(cell: str) -> str:
    escaped = "".join(LATEX_CHARACTERS.get(character, character) for character in cell)
    # A bracket after the end of a row would be its argument.
    return re.sub(r"^(\[|\*)", r"{\1}", escaped)


def _csv(rows: Rows, num_labels: int) -> str:
    file = io.StringIO()
    csv.writer(file, lineterminator="\n").writerows(rows)
    return file.getvalue().rstrip("\n")


TABLE_FORMATS: dict[str, Callable[[Rows, int], str]] = {
    "text": _text,
    "md": _markdown,
    "latex": _latex,
    "csv": _csv,
}
"""Functions of the rows and the number of columns with labels, which are left-aligned."""
