"""The user's parallel text: two files, a table or a translation memory (TMX) per split, plain,
compressed or in an archive."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePath

from nmt.core.errors import ConfigError, DataError
from nmt.data.archives import SourceFile, is_archive, list_members
from nmt.data.pairs import COMPRESSED, read_pairs
from nmt.data.sources import holdout
from nmt.data.sources.corpus import (
    RECORD,
    SPLITS,
    CorpusInfo,
    PairReader,
    Split,
    count_pairs,
    hash_files,
    hash_strings,
    swap_sides,
)
from nmt.data.sources.downloadable import find_parallel_files
from nmt.data.tables import FORMATS, SUFFIXES, ColumnName, ColumnRequest, Table
from nmt.data.tables.arrow import SPLITS as FOLDER_SPLITS
from nmt.data.tables.arrow import STATE, folder_files
from nmt.data.tmx import read_tmx

MAX_LISTED = 10
"""Maximum number of files in an error message."""
FileSpec = str | tuple[str, str]


@dataclass(frozen=True, kw_only=True)
class Files:
    """Your files. A split is a prefix ('my/corpus': my/corpus.en, my/corpus.de), a table, a TMX
    file, or two files."""

    train: FileSpec | None = None
    """The training text."""
    valid: FileSpec | None = None
    """The validation text; default: sentences held out from train."""
    test: FileSpec | None = None
    """The test text; default: sentences held out from train."""
    src: ColumnName | None = None
    """Name or number of the source column of a table; default: the language, or `source`."""
    tgt: ColumnName | tuple[ColumnName, ...] | None = None
    """Name or number of the target column; several are references of the same source."""
    header: bool | None = None
    """Whether the first row of a CSV or TSV file has the names; default: found by the names."""
    delimiter: str = ""
    """What separates the columns of a CSV file; default: found."""
    columns: tuple[str, ...] | None = None
    """Names of the columns of a CSV or TSV file without names, of which two are languages, or
    languages of two files; default (src, tgt)."""
    hold_out: bool = True
    """False keeps all of train for training when valid or test are in another corpus."""
    errors: str = "strict"
    """`strict` raises an error for text that is not UTF-8, `replace` decodes invalid bytes as
    U+FFFD."""
    license: str = "not specified"
    """License of the text for the model card."""
    build_command: str = ""
    """Command that creates the files, for the error message when they are missing."""
    name = "files"
    is_installed = True

    @property
    def splits(self) -> dict[str, FileSpec]:
        """The specified splits."""
        specs = {"train": self.train, "valid": self.valid, "test": self.test}
        return {split: spec for split, spec in specs.items() if spec is not None}

    def is_table(self, split: str) -> bool:
        """Return whether a specified split is a table, not named by languages."""
        spec = self.splits.get(split)
        return isinstance(spec, str) and pair_format(Path(spec)) in FORMATS

    @property
    def info(self) -> CorpusInfo:
        """Return the description without reading the files."""
        return CorpusInfo(
            None, 0, self.license, "files(train='my/corpus', valid='my/dev', test='my/test')"
        )

    def validate(self) -> None:
        """Raise a ConfigError if no split is specified or an option is invalid."""
        if not self.splits:
            raise ConfigError("corpus 'files' has no split", "for example files(train='my/corpus')")
        self.check_options()

    def check_options(self) -> None:
        """Raise a ConfigError if an option is invalid."""
        kind = f"corpus '{self.name}'"
        if self.errors not in ("strict", "replace"):
            raise ConfigError(f"{kind}: errors must be 'strict' or 'replace', got '{self.errors}'")
        if len(self.delimiter) > 1 or self.delimiter in ('"', "\n", "\r"):
            raise ConfigError(
                f"{kind}: delimiter must be one character, got {self.delimiter!r}",
                "for example delimiter=';'",
            )
        if self.columns and (self.src, self.tgt) != (None, None):
            raise ConfigError(
                f"{kind}: columns excludes src and tgt", "columns=('en', 'de') names all columns"
            )
        if self.tgt == ():
            raise ConfigError(f"{kind}: tgt has no column", "for example tgt='de'")

    def open(self, split: str, src: str, tgt: str) -> Split:
        """Return a split that is specified or held out from train."""
        self.validate()
        is_specified = split in self.splits
        if not is_specified:
            self._check_held_out(split)
        spec = self.splits[split if is_specified else "train"]
        paths, files, checksums = self._files(spec, src, tgt)
        text = self._open_text(paths, src, tgt)
        checksum = self._checksum(src, tgt, checksums)
        name = f"{self._corpus_name(spec, paths[0])}/{split}"
        count = _pair_counter(text, paths[0])
        if isinstance(text, Table) and is_specified and split != "train":
            return Split(name, checksum, text.pairs, count, files, text.references)
        read = text.all_pairs if isinstance(text, Table) else text
        missing = self._missing
        if self.hold_out and missing and split in ("train", *missing):
            sides = holdout.sides(src, tgt)
            checksum = hash_strings(holdout.VERSION, *sides, split, *missing, checksum)
            read = _hold_out(read, missing, split, is_swapped=sides != (src, tgt))
        return Split(name, checksum, read, count, files)

    @property
    def _missing(self) -> list[str]:
        """The splits that are held out."""
        return [split for split in ("valid", "test") if split not in self.splits]

    def _checksum(self, src: str, tgt: str, checksums: Sequence[str]) -> str:
        """Return the checksum of the text in files with these checksums."""
        checksum = hash_strings(src, tgt, str(self.columns), self.errors, *checksums)
        layout = (self.src, self.tgt, self.header, self.delimiter)
        if layout == (None, None, None, ""):
            return checksum
        return hash_strings(str(layout), checksum)

    def _check_held_out(self, split: str) -> None:
        """Raise a DataError if a split cannot be held out from train."""
        has_train = "train" in self.splits
        if has_train and self.hold_out:
            return
        names = ", ".join(self.splits)
        hint = f"add {split}='my/{split}'"
        if has_train:
            hint += ", or leave out hold_out=False"
        raise DataError(f"corpus '{self.name}' has no {split} split, only {names}", hint)

    def _corpus_name(self, spec: FileSpec, path: Path) -> str:
        """Return the name of the corpus: that of its first file, or of the directory of a corpus
        that nmt wrote."""
        first_file = spec if isinstance(spec, str) else spec[0]
        name = Path(first_file).name
        if name in SPLITS and (path.parent / RECORD).is_file():
            return Path(os.path.abspath(path)).parent.name
        return name

    def _files(
        self, spec: FileSpec, src: str, tgt: str
    ) -> tuple[tuple[Path, ...], tuple[Path, ...], list[str]]:
        """Return what a split names, the files that are read, and their checksums."""
        try:
            paths = _resolve_paths(spec, src, tgt)
            is_folder = pair_format(paths[0]) == "folder"
            files = tuple(folder_files(paths[0])) if is_folder else paths
            return paths, files, hash_files(files)
        except DataError as error:
            if self.build_command:
                error.hint = f"create it with {self.build_command}"
            raise

    def _open_text(self, paths: tuple[Path, ...], src: str, tgt: str) -> Table | PairReader:
        """Return the table, or a reader of (source, target)."""
        if is_archive(paths[0]):
            return self._open_files(_files_in_archive(paths[0], src, tgt), src, tgt)
        return self._open_files(paths, src, tgt)

    def _open_files(
        self, paths: tuple[Path, ...] | tuple[SourceFile, ...], src: str, tgt: str
    ) -> Table | PairReader:
        """Return the table, or a reader; the languages are in the TMX file, the suffixes or
        `columns`."""
        path_format = pair_format(paths[0])
        if path_format == "tmx":
            return partial(read_tmx, paths[0], src, tgt, self.errors)
        if len(paths) == 1:
            request = self._column_request(paths[0], src, tgt)
            return FORMATS[path_format](paths[0], request, self.errors)
        suffixes = tuple(map(language_suffix, paths))
        languages = self.columns or (src, tgt)
        if set(suffixes) == {src, tgt}:
            languages = suffixes
        if sorted(languages) != sorted((src, tgt)):
            found = "-".join(languages)
            raise DataError(f"{paths[0]} is {found}, not {src}-{tgt}")
        if not self.columns:
            _check_suffixes(paths, suffixes, (src, tgt))
        read = partial(read_pairs, *paths, errors=self.errors)
        return read if tuple(languages) == (src, tgt) else swap_sides(read)

    def _column_request(self, path: Path | SourceFile, src: str, tgt: str) -> ColumnRequest:
        names = self.columns or ()
        for language in (src, tgt) if names else ():
            count = names.count(language)
            if count != 1:
                raise DataError(
                    f"{path} has {count or 'no'} columns named '{language}' in columns={names}",
                    f"name each column of a line, for example columns=('id', '{src}', '{tgt}')",
                )
        return ColumnRequest(
            languages=(src, tgt),
            src=self.src,
            tgt=self.tgt,
            names=names,
            header=self.header,
            delimiter=self.delimiter,
        )


def _hold_out(
    read: PairReader, missing: Sequence[str], split: str, *, is_swapped: bool
) -> PairReader:
    """Return a reader of a split. The sentences of the same language are held out in both
    directions, of which one is swapped."""
    if is_swapped:
        return swap_sides(holdout.hold_out(swap_sides(read), missing)[split])
    return holdout.hold_out(read, missing)[split]


def _pair_counter(text: Table | PairReader, path: Path) -> Callable[[], int] | None:
    """Return a function that counts the pairs of a file faster than reading them; None if there is
    none."""
    if isinstance(text, Table) and text.unit == "row":
        return text.num_rows
    has_lines = pair_format(path) != "tmx" and not is_archive(path)
    return partial(count_pairs, path) if has_lines else None


def _files_in_archive(archive: Path, src: str, tgt: str) -> tuple[SourceFile, ...]:
    """Return the two files with language suffixes in an archive, as in those of OPUS, or its only
    table or TMX file."""
    members = list_members(archive)
    if parallel := find_parallel_files(members, (src, tgt)):
        return parallel
    # A .json file is the description of the others.
    tables = tuple(each for each in members if pair_format(each) and each.suffix != ".json")
    if len(tables) != 1:
        names = ", ".join(member.member for member in members[:MAX_LISTED]) or "nothing"
        raise DataError(
            f"{archive} has no two files in {src} and {tgt}, nor one table or TMX file",
            f"it has {names}",
        )
    return tables


def _check_suffixes(
    paths: tuple[Path, ...] | tuple[SourceFile, ...],
    suffixes: tuple[str, ...],
    languages: tuple[str, ...],
) -> None:
    """Check that no file has the suffix of the other language."""
    if set(suffixes) == set(languages):
        return
    for path, suffix, language in zip(paths, suffixes, languages, strict=True):
        if suffix != language and suffix in languages:
            have_suffixes = len(set(suffixes)) > 1
            names = languages[::-1] if have_suffixes else languages
            hint = f"swap the files, or name their languages: columns={names}"
            raise DataError(f"{path} would be read as language {language}", hint)


def _resolve_paths(spec: FileSpec, src: str, tgt: str) -> tuple[Path, ...]:
    """Return the table, the TMX file or the two files of a split."""
    if not isinstance(spec, str):
        paths = tuple(Path(os.path.expanduser(name)) for name in spec)
        for path in paths:
            if pair_format(path) != "tsv" and has_both_languages(path):
                raise DataError(
                    f"{path} has both languages", f"specify one file: files(train='{path}')"
                )
        return paths
    path = Path(os.path.expanduser(spec))  # leaves unknown users unchanged
    if has_both_languages(path):
        return (path,)
    return find_language_file(path, src), find_language_file(path, tgt)


def find_language_file(prefix: Path, language: str) -> Path:
    """Return PREFIX.LANGUAGE, plain or compressed.

    Raises:
        DataError: the file does not exist.
    """
    plain = Path(f"{prefix}.{language}")
    for suffix in ("", *COMPRESSED):
        path = plain.with_name(plain.name + suffix)
        if path.is_file():
            return path
    formats = ", ".join(f".{suffix}" for suffix in (*SUFFIXES, "tmx", "zip"))
    if prefix.is_file():
        raise DataError(
            f"{prefix} has a format that nmt does not read",
            f"files with both languages end in {formats}; save a spreadsheet as CSV (UTF-8)",
        )
    raise DataError(
        f"no such file: {plain} (nor with {', '.join(COMPRESSED)})",
        "specify a prefix ('my/corpus' for my/corpus.en and my/corpus.de), ('a.txt', 'b.txt'), or a"
        f" file with both languages ({formats})",
    )


def has_both_languages(path: Path) -> bool:
    """Return whether a file or folder has both languages, by its name: a table, a TMX file or an
    archive with one of them."""
    return bool(pair_format(path)) or is_archive(path)


def pair_format(path: Path | SourceFile) -> str:
    """Return "tmx" or a format of `nmt.data.tables.FORMATS` for a file or folder that has both
    languages; otherwise an empty string."""
    suffix = language_suffix(path).lower()
    if suffix == "tmx":
        return suffix
    if suffix not in SUFFIXES and isinstance(path, Path):
        is_folder = (path / STATE).is_file() or (path / FOLDER_SPLITS).is_file()
        return "folder" if is_folder else ""
    return SUFFIXES.get(suffix, "")


def language_suffix(path: Path | SourceFile) -> str:
    """Return the suffix of a file name without compression: "en" for a.en.gz."""
    name = PurePath(path.name)
    if name.suffix in COMPRESSED:
        name = name.with_suffix("")
    return name.suffix[1:]
