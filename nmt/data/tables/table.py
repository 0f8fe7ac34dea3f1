"""Tables with a sentence and its translations in each row."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from nmt.core.console import counted, log_once
from nmt.core.errors import DataError
from nmt.data.pairs import InputFile, Pair, one_line
from nmt.text.decoding import EncodingError

Record = tuple[int, Sequence[Any]]
"""The number of a row or line, from 1, and its cells."""
Row = tuple[str, list[str]]
"""A source and its references, at least one, which may be blank."""
_KINDS = {bool: "true or false", int: "numbers", float: "numbers", dict: "objects", list: "lists"}


@dataclass(frozen=True)
class Table:
    """An open table, which can be read repeatedly."""

    path: InputFile
    unit: str
    """What is counted: line or row."""
    names: Sequence[str]
    """Names of the columns, or their numbers."""
    columns: Sequence[int]
    """Indices of the columns to read: the source, then the references."""
    read: Callable[[Sequence[int]], Iterator[Record]]
    """Yields the cells of these columns: text, UTF-8, None if the cell is missing, or a list of
    references."""
    num_rows: Callable[[], int] | None = None
    """Returns the number of rows of a file that is not text."""
    errors: str = "strict"
    """What happens to cells that are not UTF-8."""

    def rows(self) -> Iterator[Row]:
        """Yield the sources and their references. Line breaks in cells become spaces.

        Raises:
            DataError: the file is damaged, or a cell does not hold text.
        """
        num_breaks = 0
        for number, (source_cell, *cells) in self.read(self.columns):
            source = self._text(source_cell, number, 0)
            references = self._references(cells, number)
            # Most rows have no line breaks, and looking for them is faster than replacing them.
            if _has_break(source) or any(map(_has_break, references)):
                num_breaks += sum(map(_has_break, [source, *references]))
                source = one_line(source)
                references = list(map(one_line, references))
            yield source, references
        if num_breaks:
            cells_with_breaks = counted(num_breaks, "cell")
            log_once(f"{self.path}: line breaks in {cells_with_breaks} became spaces")

    def _references(self, cells: Sequence[Any], number: int) -> list[str]:
        """Return the references of a row that are not empty; one empty string if there is none."""
        if len(cells) == 1 and isinstance(cells[0], str):
            return list(cells)
        texts: list[str] = []
        for position, cell in enumerate(cells, 1):
            # Each element of a list is a reference.
            for each in cell if isinstance(cell, list) else [cell]:
                texts.append(self._text(each, number, position))
        return [text for text in texts if text] or [""]

    def pairs(self) -> Iterator[Pair]:
        """Yield each source with its first reference."""
        for source, references in self.rows():
            yield source, references[0]

    def all_pairs(self) -> Iterator[Pair]:
        """Yield each source with each of its references."""
        for source, references in self.rows():
            for reference in references:
                yield source, reference

    def references(self) -> Iterator[list[str]]:
        """Yield the references of each source."""
        for _, references in self.rows():
            yield references

    def _text(self, cell: Any, number: int, position: int) -> str:
        """Return the text of a cell, which is at a position of those that are read; empty if it is
        missing."""
        if isinstance(cell, str):
            return cell
        if cell is None:
            return ""
        if isinstance(cell, bytes):
            try:
                return cell.decode("utf-8", self.errors)
            except UnicodeDecodeError:
                raise EncodingError(
                    f"{self._place(position, number)} is not UTF-8",
                    "save it as UTF-8, or use errors='replace' in files(...)",
                ) from None
        kind = _KINDS.get(type(cell), "values that are not text")
        raise DataError(
            f"{self._place(position, number)} holds {kind}",
            "name the columns with the sentences: src='...', tgt='...'",
        )

    def _place(self, position: int, number: int) -> str:
        name = self.names[self.columns[position]]
        return f"{self.path}, {self.unit} {number}: column '{name}'"


def _has_break(text: str) -> bool:
    return "\n" in text or "\r" in text
