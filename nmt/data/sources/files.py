"""The user's parallel text: two files, a TSV file or a translation memory (TMX) per split, plain or compressed."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from nmt.data.pairs import COMPRESSED, count_lines, read_pairs, read_tsv
from nmt.data.sources import holdout
from nmt.data.sources.corpus import RECORD, SPLITS, CorpusInfo, PairReader, Split, hash_files, hash_strings, swap_sides
from nmt.data.tmx import read_tmx
from nmt.errors import ConfigError, DataError

FileSpec = str | tuple[str, str]


@dataclass(frozen=True, kw_only=True)
class Files:
    """Your files. A split is a prefix ('my/corpus': my/corpus.en, my/corpus.de), a TSV or TMX file, or two files."""

    train: FileSpec | None = None
    """The training text."""
    valid: FileSpec | None = None
    """The validation text; default: sentences held out from train."""
    test: FileSpec | None = None
    """The test text; default: sentences held out from train."""
    columns: tuple[str, ...] | None = None
    """Names of the columns of a TSV file, of which two are languages, or languages of two files; default (src, tgt)."""
    hold_out: bool = True
    """False keeps all of train for training when valid or test are in another corpus."""
    errors: str = "strict"
    """`strict` raises an error for text that is not UTF-8, `replace` decodes invalid bytes as U+FFFD."""
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
        return CorpusInfo(None, 0, self.license, "files(train='my/corpus', valid='my/dev', test='my/test')")

    def validate(self) -> None:
        """Raise a ConfigError if no split is specified or `errors` is invalid."""
        if not self.splits:
            raise ConfigError("corpus 'files' has no split", "for example files(train='my/corpus')")
        if self.errors not in ("strict", "replace"):
            raise ConfigError(f"corpus 'files': errors must be 'strict' or 'replace', got '{self.errors}'")

    def open(self, split: str, src: str, tgt: str) -> Split:
        """Return a split that is specified or held out from train."""
        self.validate()
        missing = [name for name in ("valid", "test") if name not in self.splits]
        if split not in self.splits and ("train" not in self.splits or not self.hold_out):
            raise DataError(
                f"corpus 'files' has no {split} split, only {', '.join(self.splits)}",
                f"add {split}='my/{split}'{', or leave out hold_out=False' * ('train' in self.splits)}",
            )
        spec = self.splits.get(split, self.splits.get("train", ""))
        name = Path(spec if isinstance(spec, str) else spec[0]).name
        try:
            paths = _resolve_paths(spec, src, tgt)
            if name in SPLITS and (paths[0].parent / RECORD).is_file():  # a corpus written by nmt
                name = Path(os.path.abspath(paths[0])).parent.name
            checksums = hash_files(paths)
        except DataError as error:
            if self.build_command:
                error.hint = f"create it with {self.build_command}"
            raise
        read = self._reader(paths, src, tgt)
        checksum = hash_strings(src, tgt, str(self.columns), self.errors, *checksums)
        if self.hold_out and missing and (split == "train" or split in missing):
            sides = holdout.sides(src, tgt)
            swap = swap_sides if sides == (tgt, src) else lambda reader: reader
            read = swap(holdout.hold_out(swap(read), missing)[split])
            checksum = hash_strings(holdout.VERSION, *sides, split, *missing, checksum)
        count = None if pair_format(paths[0]) == "tmx" else partial(count_lines, paths[0])
        return Split(f"{name}/{split}", checksum, read, count, paths)

    def _reader(self, paths: tuple[Path, ...], src: str, tgt: str) -> PairReader:
        """Return a reader of (source, target); the languages are in the TMX file, the suffixes or `columns`."""
        if pair_format(paths[0]) == "tmx":
            return partial(read_tmx, paths[0], src, tgt, self.errors)
        suffixes = tuple(map(language_suffix, paths))
        languages = suffixes if set(suffixes) == {src, tgt} else self.columns or (src, tgt)
        is_table = len(paths) == 1
        if is_table:
            return partial(read_tsv, paths[0], self.errors, columns=_find_columns(paths[0], languages, src, tgt))
        if sorted(languages) != sorted((src, tgt)):
            raise DataError(f"{paths[0]} is {'-'.join(languages)}, not {src}-{tgt}")
        for path, suffix, language in zip(paths, suffixes, languages, strict=True):
            if suffix != language and suffix in languages and not self.columns:
                languages_of_files = (tgt, src) if {*suffixes} > {suffix} else (src, tgt)
                hint = f"swap the files, or name their languages: columns={languages_of_files}"
                raise DataError(f"{path} would be read as language {language}", hint)
        read = partial(read_pairs, *paths, errors=self.errors)
        return read if tuple(languages) == (src, tgt) else swap_sides(read)


def _find_columns(path: Path, names: tuple[str, ...], src: str, tgt: str) -> tuple[int, int]:
    """Return the indices of the source and the target column; columns with other names are ignored."""
    for language in (src, tgt):
        if names.count(language) != 1:
            raise DataError(
                f"{path} has {names.count(language) or 'no'} columns named '{language}' in columns={names}",
                f"name each column of a line, for example columns=('id', '{src}', '{tgt}')",
            )
    return names.index(src), names.index(tgt)


def _resolve_paths(spec: FileSpec, src: str, tgt: str) -> tuple[Path, ...]:
    """Return the TSV or TMX file or the two files of a split."""
    if not isinstance(spec, str):
        paths = tuple(Path(os.path.expanduser(name)) for name in spec)
        if memories := [path for path in paths if pair_format(path) == "tmx"]:
            raise DataError(f"{memories[0]} has both languages", f"specify one file: files(train='{memories[0]}')")
        return paths
    path = Path(os.path.expanduser(spec))  # leaves unknown users unchanged
    if pair_format(path):
        return (path,)
    return find_language_file(path, src), find_language_file(path, tgt)


def find_language_file(prefix: Path, language: str) -> Path:
    """Return PREFIX.LANGUAGE, plain or compressed.

    Raises:
        DataError: the file does not exist.
    """
    plain = Path(f"{prefix}.{language}")
    for path in (plain, *(plain.with_name(plain.name + suffix) for suffix in COMPRESSED)):
        if path.is_file():
            return path
    raise DataError(
        f"no such file: {plain} (nor with {', '.join(COMPRESSED)})",
        "specify a prefix ('my/corpus' for my/corpus.en and my/corpus.de), a .tsv or .tmx file, or ('a.txt', 'b.txt')",
    )


def pair_format(path: Path) -> str:
    """Return "tsv" or "tmx" for a file name of these formats, which have both languages; otherwise an empty string."""
    suffix = language_suffix(path).lower()
    return suffix if suffix in ("tsv", "tmx") else ""


def language_suffix(path: Path) -> str:
    """Return the suffix of a file name without compression: "en" for a.en.gz."""
    return (path.with_suffix("") if path.suffix in COMPRESSED else path).suffix[1:]
