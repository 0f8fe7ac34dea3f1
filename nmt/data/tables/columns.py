"""Which columns of a table have the sources and the references, and whether its first row has their
names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nmt.core.errors import DataError, suggest
from nmt.text.language_codes import GERMAN_NAMES, NAMES, base_language

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
        if self.src is not None:
            return [self.src]
        roles = TARGET_NAMES if self._is_swapped else SOURCE_NAMES
        return _default_names(self.languages[0], roles)

    @property
    def target_names(self) -> list[ColumnName]:
        """Names that the target column may have; those of all references if the user names
        them."""
        if isinstance(self.tgt, tuple | list):
            return list(self.tgt)
        if self.tgt is not None:
            return [self.tgt]
        roles = SOURCE_NAMES if self._is_swapped else TARGET_NAMES
        return _default_names(self.languages[1], roles)

    @property
    def language_hint(self) -> str:
        """Begin of the hint of an error, if the languages are unknown: only commands that have
        these options read such a table."""
        return "" if any(self.languages) else "set --src-lang and --tgt-lang, or "

    @property
    def _is_swapped(self) -> bool:
        """Whether the language of the target comes first."""
        for name in self.names:
            if name in self.languages:
                return name == self.languages[1]
        return False

    def is_header(self, cells: Sequence[str]) -> bool | None:
        """Return whether the cells of a first row are the names of columns; None if nothing tells
        it."""
        if self.header is not None:
            return self.header
        has_columns = self.are_in(cells)
        if self.names:
            return has_columns or list(self.names) == list(cells)
        asked: list[ColumnName] = []
        if self.src is not None:
            asked += self.source_names
        if self.tgt is not None:
            asked += self.target_names
        has_names = not all(map(_is_number, asked))
        return has_names or has_columns or None

    def are_in(self, names: Sequence[str]) -> bool:
        """Return whether columns of these names have a source and a target, at least one of them
        by name."""
        has_names = False
        for wanted in (self.source_names, self.target_names):
            if _find(names, wanted):
                has_names = True
            elif not _find_numbers(len(names), wanted):
                return False
        return has_names

    def find(self, path: object, names: Sequence[str], *, has_names: bool = True) -> list[int]:
        """Return the indices of the columns to read: the source, then the references.

        Args:
            path: the file, for error messages.
            names: names of its columns, or their numbers.
            has_names: whether it names its columns. In one that does not, the source is in the
                first column and the target in the second one.

        Raises:
            DataError: there is no such column, or source and target are the same.
        """
        if not has_names and self.src is None and self.tgt is None:
            return [0, 1]
        source, *others = self._find_side(path, names, "src")
        name = names[source]
        if others:
            raise DataError(
                f"{path} has {1 + len(others)} columns named '{name}'",
                f"write the number of the source column: src={source + 1}",
            )
        references = self._find_side(path, names, "tgt")
        if source in references:
            raise DataError(
                f"{path}: the source and the target are both column '{name}'",
                f"name two columns; it has {_listed(names)}",
            )
        return [source, *references]

    def _find_side(self, path: object, names: Sequence[str], option: str) -> list[int]:
        """Return the columns of the source or of all references."""
        is_source = option == "src"
        wanted = self.source_names if is_source else self.target_names
        asked = self.src if is_source else self.tgt
        if asked is not None:
            indices: list[int] = []
            for name in wanted:
                indices += _find_asked(path, names, name)
            return indices
        found = _find(names, wanted)
        if not found:
            side = "source" if is_source else "target"
            plain = [str(name) for name in wanted if "." not in str(name)]
            raise DataError(
                f"{path} has no column for the {side} ({', '.join(plain)})",
                f"{self.language_hint}name it: {option}='...'; it has {_listed(names)}",
            )
        return found


def _find_asked(path: object, names: Sequence[str], name: ColumnName) -> list[int]:
    """Return the columns of one name or number that the user has written."""
    found = _find(names, [name]) or _find_numbers(len(names), [name])
    if not found:
        choices = [_shorten(each) for each in names[:MAX_LISTED]]
        raise DataError(f"{path} has no column '{name}'", suggest(_shorten(str(name)), choices))
    return found


def _default_names(language: str, roles: Sequence[str]) -> list[ColumnName]:
    """Return the names that a column may have: a language code, an English or a German
    name, or a role."""
    base = base_language(language)
    underscored = language.replace("-", "_")
    full_names = (NAMES.get(base, ""), GERMAN_NAMES.get(base, ""))
    candidates = [language, underscored, base, *full_names, *roles]
    plain = list(dict.fromkeys(filter(None, candidates)))
    nested = [f"{STRUCT}.{name}" for name in plain]
    return [*plain, *nested]


def _is_number(name: ColumnName) -> bool:
    return isinstance(name, int) or name.isdecimal()


def _find(names: Sequence[str], wanted: Sequence[ColumnName]) -> list[int]:
    """Return the indices of all columns with the first wanted name that there is: as it is written,
    else in any case."""
    folded_names = [name.strip().casefold() for name in names]
    for name in wanted:
        folded = str(name).casefold()
        indices = [i for i, each in enumerate(names) if each == name]
        indices = indices or [i for i, each in enumerate(folded_names) if each == folded]
        if indices:
            return indices
    return []


def _find_numbers(num_columns: int, wanted: Sequence[ColumnName]) -> list[int]:
    """Return the indices of columns that are wanted by number."""
    numbers = [int(name) for name in wanted if _is_number(name)]
    return [number - 1 for number in numbers if 1 <= number <= num_columns]


def _listed(names: Sequence[str]) -> str:
    shown = [_shorten(name) for name in names[:MAX_LISTED]]
    if len(names) > MAX_LISTED:
        shown.append("...")
    return ", ".join(shown) or "none"


def _shorten(name: str) -> str:
    return name if len(name) <= MAX_NAME else f"{name[: MAX_NAME - 1]}…"
