"""Tables with a sentence and its translations in each row. A new format is a function in a module
of this package and an entry of `FORMATS`."""

from __future__ import annotations

from collections.abc import Callable

from nmt.data.pairs import InputFile
from nmt.data.tables.arrow import open_folder, open_parquet
from nmt.data.tables.columns import ColumnName, ColumnRequest
from nmt.data.tables.delimited import open_csv, open_tsv
from nmt.data.tables.json_lines import open_json_lines
from nmt.data.tables.table import Table

__all__ = ["FORMATS", "SUFFIXES", "ColumnName", "ColumnRequest", "Table"]

FORMATS: dict[str, Callable[[InputFile, ColumnRequest, str], Table]] = {
    "tsv": open_tsv,
    "csv": open_csv,
    "jsonl": open_json_lines,
    "parquet": open_parquet,
    "folder": open_folder,
}
"""Opens a table, by format: the file, the columns to read, and what happens to invalid UTF-8."""
SUFFIXES = {
    "tsv": "tsv",
    "csv": "csv",
    "jsonl": "jsonl",
    "json": "jsonl",
    "ndjson": "jsonl",
    "parquet": "parquet",
}
"""Format by suffix of the file name, without compression."""
