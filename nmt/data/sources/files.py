"""The user's parallel text: two files, a TSV file or a translation memory (TMX) per split, plain,
compressed or in an archive."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePath

from nmt.core.errors import ConfigError, DataError
from nmt.data.archives import SourceFile, is_archive, list_members
from nmt.data.pairs import COMPRESSED, read_pairs, read_tsv
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
from nmt.data.tmx import read_tmx

MAX_LISTED = 10
"""Maximum number of files in an error message."""
FileSpec = str | tuple[str, str]


@dataclass(frozen=True, kw_only=True)
class Files:
    """Your files. A split is a prefix ('my/corpus': my/corpus.en, my/corpus.de), a TSV or TMX file,
    or two files."""

    train: FileSpec | None = None
    """The training text."""
    valid: FileSpec | None = None
    """The validation text; default: sentences held out from train."""
    test: FileSpec | None = None
    """The test text; default: sentences held out from train."""
    columns: tuple[str, ...] | None = None
    """Names of the columns of a TSV file, of which two are languages, or languages of two files;
    default (src, tgt)."""
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

    @property
    def info(self) -> CorpusInfo:
        """Return the description without reading the files."""
        return CorpusInfo(
            None, 0, self.license, "files(train='my/corpus', valid='my/dev', test='my/test')"
        )

    def validate(self) -> None:
        """Raise a ConfigError if no split is specified or `errors` is invalid."""
        if not self.splits:
            raise ConfigError("corpus 'files' has no split", "for example files(train='my/corpus')")
        if self.errors not in ("strict", "replace"):
            raise ConfigError(
                f"corpus 'files': errors must be 'strict' or 'replace', got '{self.errors}'"
            )

    def open(self, split: str, src: str, tgt: str) -> Split:
        """Return a split that is specified or held out from train."""
        self.validate()
        if split not in self.splits:
            self._check_held_out(split)
        paths, name, checksums = self._files(split, src, tgt)
        read = self._reader(paths, src, tgt)
        checksum = hash_strings(src, tgt, str(self.columns), self.errors, *checksums)
        missing = [held_out for held_out in ("valid", "test") if held_out not in self.splits]
        if self.hold_out and missing and split in ("train", *missing):
            sides = holdout.sides(src, tgt)
            checksum = hash_strings(holdout.VERSION, *sides, split, *missing, checksum)
            # The sentences of the same language are held out in both directions.
            is_swapped = sides != (src, tgt)
            if is_swapped:
                read = swap_sides(read)
            read = holdout.hold_out(read, missing)[split]
            if is_swapped:
                read = swap_sides(read)
        has_lines = pair_format(paths[0]) != "tmx" and not is_archive(paths[0])
        count = partial(count_pairs, paths[0]) if has_lines else None
        return Split(f"{name}/{split}", checksum, read, count, paths)

    def _check_held_out(self, split: str) -> None:
        """Raise a DataError if a split cannot be held out from train."""
        has_train = "train" in self.splits
        if has_train and self.hold_out:
            return
        names = ", ".join(self.splits)
        hint = f"add {split}='my/{split}'"
        if has_train:
            hint += ", or leave out hold_out=False"
        raise DataError(f"corpus 'files' has no {split} split, only {names}", hint)

    def _files(self, split: str, src: str, tgt: str) -> tuple[tuple[Path, ...], str, list[str]]:
        """Return the files of a split, or those it is held out from, the name of the corpus, and
        the checksums."""
        spec = self.splits.get(split, self.splits.get("train", ""))
        try:
            paths = _resolve_paths(spec, src, tgt)
            return paths, _name(spec, paths[0]), hash_files(paths)
        except DataError as error:
            if self.build_command:
                error.hint = f"create it with {self.build_command}"
            raise

    def _reader(self, paths: tuple[Path, ...], src: str, tgt: str) -> PairReader:
        """Return a reader of (source, target)."""
        if is_archive(paths[0]):
            return self._file_reader(_files_in_archive(paths[0], src, tgt), src, tgt)
        return self._file_reader(paths, src, tgt)

    def _file_reader(
        self, paths: tuple[Path, ...] | tuple[SourceFile, ...], src: str, tgt: str
    ) -> PairReader:
        """Return a reader of (source, target); the languages are in the TMX file, the suffixes or
        `columns`."""
        if pair_format(paths[0]) == "tmx":
            return partial(read_tmx, paths[0], src, tgt, self.errors)
        suffixes = tuple(map(language_suffix, paths))
        languages = self.columns or (src, tgt)
        if set(suffixes) == {src, tgt}:
            languages = suffixes
        if len(paths) == 1:
            columns = _find_columns(paths[0], languages, src, tgt)
            return partial(read_tsv, paths[0], self.errors, columns=columns)
        if sorted(languages) != sorted((src, tgt)):
            found = "-".join(languages)
            raise DataError(f"{paths[0]} is {found}, not {src}-{tgt}")
        if not self.columns:
            _check_suffixes(paths, suffixes, (src, tgt))
        read = partial(read_pairs, *paths, errors=self.errors)
        return read if tuple(languages) == (src, tgt) else swap_sides(read)


def _files_in_archive(archive: Path, src: str, tgt: str) -> tuple[SourceFile, ...]:
    """Return the two files with language suffixes in an archive, as in those of OPUS, or its only
    TSV or TMX file."""
    members = list_members(archive)
    if parallel := find_parallel_files(members, (src, tgt)):
        return parallel
    tables = tuple(member for member in members if pair_format(member))
    if len(tables) != 1:
        names = ", ".join(member.member for member in members[:MAX_LISTED]) or "nothing"
        raise DataError(
            f"{archive} has no two files in {src} and {tgt}, nor one TSV or TMX file",
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


def _name(spec: FileSpec, path: Path) -> str:
    """Return the name of a corpus: that of its first file, or of the directory of a corpus that nmt
    wrote."""
    first_file = spec if isinstance(spec, str) else spec[0]
    name = Path(first_file).name
    if name in SPLITS and (path.parent / RECORD).is_file():
        return Path(os.path.abspath(path)).parent.name
    return name


def _find_columns(
    path: Path | SourceFile, names: tuple[str, ...], src: str, tgt: str
) -> tuple[int, int]:
    """Return the indices of the source and the target column; columns with other names are
    ignored."""
    for language in (src, tgt):
        count = names.count(language)
        if count != 1:
            raise DataError(
                f"{path} has {count or 'no'} columns named '{language}' in columns={names}",
                f"name each column of a line, for example columns=('id', '{src}', '{tgt}')",
            )
    return names.index(src), names.index(tgt)


def _resolve_paths(spec: FileSpec, src: str, tgt: str) -> tuple[Path, ...]:
    """Return the TSV or TMX file or the two files of a split."""
    if not isinstance(spec, str):
        paths = tuple(Path(os.path.expanduser(name)) for name in spec)
        for path in paths:
            if pair_format(path) == "tmx":
                raise DataError(
                    f"{path} has both languages", f"specify one file: files(train='{path}')"
                )
        return paths
    path = Path(os.path.expanduser(spec))  # leaves unknown users unchanged
    if pair_format(path) or is_archive(path):
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
    raise DataError(
        f"no such file: {plain} (nor with {', '.join(COMPRESSED)})",
        "specify a prefix ('my/corpus' for my/corpus.en and my/corpus.de), a .tsv or .tmx file, an"
        " archive (.zip), or ('a.txt', 'b.txt')",
    )


def pair_format(path: Path | SourceFile) -> str:
    """Return "tsv" or "tmx" for a file name of these formats, which have both languages; otherwise
    an empty string."""
    suffix = language_suffix(path).lower()
    return suffix if suffix in ("tsv", "tmx") else ""


def language_suffix(path: Path | SourceFile) -> str:
    """Return the suffix of a file name without compression: "en" for a.en.gz."""
    name = PurePath(path.name)
    if name.suffix in COMPRESSED:
        name = name.with_suffix("")
    return name.suffix[1:]
