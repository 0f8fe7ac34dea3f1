"""Which columns of a table have the sources and the references, and whether its first row has their
names."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from nmt.core.errors import DataError, suggest
from nmt.text.language_codes import NAMES, base_language

MAX_LISTED = 20
"""Maximum number of columns in an error message."""
MAX_NAME = 40
"""Maximum length of the name of a column in an error message."""
SOURCE_NAMES = ("source", "src")
TARGET_NAMES = ("target", "tgt")
STRUCT = "translation"
"""Column of most translation datasets of Hugging Face, with a field for each language."""

ColumnName = str | int
"""Name of a column, also a path such as `translation.en`, or its number from 1."""


@dataclass(frozen=True)
class Columns:
    """Indices of the columns to read, from 0."""

    source: int
    references: tuple[int, ...]
    """The target column, and those of other references."""


@dataclass(frozen=True, kw_only=True)
class ColumnRequest:
    """What the user says about a table."""

    languages: tuple[str, str] = ("", "")
    """Codes of source and target, which may be empty."""
    src: ColumnName | None = None
    tgt: ColumnName | tuple[ColumnName, ...] | None = None
    names: tuple[str, ...] = ()
    """Names of all columns of a table without them, of which two are the languages. The first one
    is the language of a column named `source`."""
    header: bool | None = None
    """Whether the first row has the names; None if it is to be found."""
    delimiter: str = ""
    """What separates the cells of a CSV file; empty if it is to be found."""

    @property
    def source_names(self) -> list[ColumnName]:
        """Names that the source column may have."""
        roles = TARGET_NAMES if self._is_swapped else SOURCE_NAMES
        return _default_names(self.languages[0], roles) if self.src is None else [self.src]

    @property
    def target_names(self) -> list[ColumnName]:
        """Names that the target column may have; those of all references if the user names
        them."""
        if self.tgt is None:
            roles = SOURCE_NAMES if self._is_swapped else TARGET_NAMES
            return _default_names(self.languages[1], roles)
        return list(self.tgt) if isinstance(self.tgt, tuple | list) else [self.tgt]

    @property
    def language_hint(self) -> str:
        """Begin of the hint of an error, if the languages are unknown: only commands that have
        these options read such a table."""
        return "" if any(self.languages) else "set --src-lang and --tgt-lang, or "

    @property
    def _is_swapped(self) -> bool:
        """Whether the language of the target comes first."""
        first = next((name for name in self.names if name in self.languages), "")
        return bool(first) and first == self.languages[1]

    def is_header(self, cells: Sequence[str]) -> bool | None:
        """Return whether the cells of a first row are the names of columns; None if nothing tells
        it."""
        if self.header is not None:
            return self.header
        if self.names:
            return list(self.names) == list(cells) or self.are_in(cells)
        asked = [] if self.src is None else self.source_names
        asked += [] if self.tgt is None else self.target_names
        has_names = any(not _is_number(name) for name in asked)
        return has_names or self.are_in(cells) or None

    def are_in(self, names: Sequence[str]) -> bool:
        """Return whether columns of these names have a source and a target, at least one of them
        by name."""
        sources = _find(names, self.source_names)
        targets = _find(names, self.target_names)
        has_source = sources or _find_numbers(len(names), self.source_names)
        has_target = targets or _find_numbers(len(names), self.target_names)
        return bool(has_source and has_target and (sources or targets))

    def find(self, path: object, names: Sequence[str], *, has_names: bool = True) -> Columns:
        """Return the columns to read.

        Args:
            path: the file, for error messages.
            names: names of its columns, or their numbers.
            has_names: whether it names its columns. In one that does not, the source is in the
                first column and the target in the second one.

        Raises:
            DataError: there is no such column, or source and target are the same.
        """
        if not has_names and self.src is None and self.tgt is None:
            return Columns(0, (1,))
        sources = self._find_side(path, names, self.source_names, "src")
        if len(sources) > 1:
            number = sources[0] + 1
            raise DataError(
                f"{path} has {len(sources)} columns named '{names[sources[0]]}'",
                f"write the number of the source column: src={number}",
            )
        if self.tgt is None:
            references = self._find_side(path, names, self.target_names, "tgt")
        else:
            references = []
            for name in self.target_names:
                references += self._find_side(path, names, [name], "tgt")
        source = sources[0]
        if source in references:
            raise DataError(
                f"{path}: the source and the target are both column '{names[source]}'",
                f"name two columns; it has {_listed(names)}",
            )
        return Columns(source, tuple(references))

    def _find_side(
        self, path: object, names: Sequence[str], wanted: Sequence[ColumnName], option: str
    ) -> list[int]:
        found = _find(names, wanted) or _find_numbers(len(names), wanted)
        if found:
            return found
        asked = self.src if option == "src" else self.tgt
        if asked is not None:
            name = str(wanted[0])
            hint = suggest(_shorten(name), map(_shorten, names[:MAX_LISTED]))
            raise DataError(f"{path} has no column '{name}'", hint)
        side = "source" if option == "src" else "target"
        expected = [str(name) for name in wanted if "." not in str(name)]
        raise DataError(
            f"{path} has no column for the {side} ({', '.join(expected)})",
            f"{self.language_hint}name it: {option}='...'; it has {_listed(names)}",
        )


def _default_names(language: str, roles: Iterable[str]) -> list[ColumnName]:
    """Return the names that a column may have: a language code, an English name or a role."""
    base = base_language(language)
    codes = [language, language.replace("-", "_"), base, NAMES.get(base, "")]
    names = list(dict.fromkeys(name for name in [*codes, *roles] if name))
    return [*names, *(f"{STRUCT}.{name}" for name in names)]


def _is_number(name: ColumnName) -> bool:
    return isinstance(name, int) or name.isdecimal()


def _find(names: Sequence[str], wanted: Iterable[ColumnName]) -> list[int]:
    """Return the indices of all columns with the first wanted name that there is: as it is written,
    else in any case."""
    folded = [name.strip().casefold() for name in names]
    for name in wanted:
        exact = [i for i, each in enumerate(names) if each == name]
        if exact:
            return exact
        same = [i for i, each in enumerate(folded) if each == str(name).casefold()]
        if same:
            return same
    return []


def _find_numbers(num_columns: int, wanted: Iterable[ColumnName]) -> list[int]:
    """Return the indices of columns that are wanted by number."""
    indices = [int(name) - 1 for name in wanted if _is_number(name)]
    return [index for index in indices if 0 <= index < num_columns]


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(map(_shorten, names[:MAX_LISTED])) or "none"
    return shown if len(names) <= MAX_LISTED else f"{shown}, ..."


def _shorten(name: str) -> str:
    return name if len(name) <= MAX_NAME else f"{name[: MAX_NAME - 1]}…"
