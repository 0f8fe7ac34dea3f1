"""Your own parallel text: two files a split, or one TSV, plain or compressed; any pair of languages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from nmt.data.pairs import COMPRESSED, Pair, count_lines, open_text, read_pairs, read_tsv
from nmt.data.sources import holdout
from nmt.data.sources.corpus import CorpusInfo, Split, Text, digest, swapped
from nmt.errors import ConfigError, DataError
from nmt.paths import sha256

Where = str | tuple[str, str]


def files(
    *,
    train: Where | None = None,
    valid: Where | None = None,
    test: Where | None = None,
    columns: tuple[str, str] | None = None,
    hold_out: bool = True,
    errors: str = "strict",
    license: str = "yours",
    build_command: str = "",
) -> Files:
    """Text of your own, each split a prefix ('my/corpus' for my/corpus.en and my/corpus.de), a TSV or a pair of files.

    Args:
        train: the training text.
        valid: the validation text; held out of train by source sentence if not named.
        test: the test text, likewise.
        columns: the languages of a TSV's columns, or of two files whose suffixes do not say; default (source, target).
        hold_out: False keeps all of train for training when valid or test come from elsewhere.
        errors: "strict" refuses text that is not UTF-8, "replace" goes on with U+FFFD.
        license: what the model card says of it.
        build_command: the command that makes the text, for whoever has not got it yet.
    """
    named = {"train": train, "valid": valid, "test": test}
    given = {split: where for split, where in named.items() if where is not None}
    return Files(given, columns, hold_out, errors, license, build_command)


@dataclass(frozen=True)
class Files:
    """The corpus that a user has in files."""

    named: Mapping[str, Where]
    columns: tuple[str, str] | None
    hold_out: bool
    errors: str
    license: str
    build_command: str
    name = "files"
    installed = True

    @property
    def about(self) -> CorpusInfo:
        """Return what is known without looking into them."""
        return CorpusInfo(None, 0, self.license, "files(train='my/corpus', valid='my/dev', test='my/test')")

    def check(self) -> None:
        """Raise a ConfigError where no text is named or `errors` is misspelled."""
        if not self.named:
            raise ConfigError("corpus 'files' names no text", "for example files(train='my/corpus')")
        if self.errors not in ("strict", "replace"):
            raise ConfigError(f"corpus 'files': errors must be 'strict' or 'replace', got '{self.errors}'")

    def open(self, split: str, src: str, tgt: str) -> Split:
        """Return a split that is named, or held out of train."""
        self.check()
        missing = [name for name in ("valid", "test") if name not in self.named]
        if split not in self.named and ("train" not in self.named or not self.hold_out):
            raise DataError(f"corpus 'files' names no {split} text", f"it names {', '.join(self.named)}")
        where = self.named.get(split, self.named.get("train", ""))
        name = f"{Path(where if isinstance(where, str) else where[0]).name}/{split}"
        try:
            paths = _find(where, src, tgt)
            checksums = _checksums(paths)
        except DataError as error:
            if self.build_command:
                error.hint = f"{self.build_command} makes it"
            raise
        text = self._text(paths, src, tgt)
        checksum = digest(src, tgt, str(self.columns), self.errors, *checksums)
        if self.hold_out and missing and (split == "train" or split in missing):
            text = holdout.hold_out(text, missing)[split]
            checksum = digest(holdout.VERSION, split, *missing, checksum)
        return Split(name, checksum, text, partial(count_lines, paths[0]), paths)

    def _text(self, paths: tuple[Path, ...], src: str, tgt: str) -> Text:
        """Read one TSV or two files, in the order that suffixes or `columns` give, as (source, target)."""
        languages = _suffixes(paths) if set(_suffixes(paths)) == {src, tgt} else self.columns or (src, tgt)
        if sorted(languages) != sorted((src, tgt)):
            raise DataError(f"{paths[0]} holds {'-'.join(languages)}, not {src}-{tgt}")

        def text() -> Iterator[Pair]:
            return read_tsv(paths[0], self.errors) if len(paths) == 1 else read_pairs(*paths, errors=self.errors)

        return text if tuple(languages) == (src, tgt) else swapped(text)


def _find(where: Where, src: str, tgt: str) -> tuple[Path, ...]:
    """Return the one TSV or the two files that a user's word stands for."""
    if not isinstance(where, str):
        return tuple(Path(name).expanduser() for name in where)
    path = Path(where).expanduser()
    if ".tsv" in path.suffixes[-2:]:
        return (path,)
    return beside(path, src), beside(path, tgt)


def beside(prefix: Path, language: str) -> Path:
    """Return PREFIX.LANGUAGE, plain or compressed.

    Raises:
        DataError: there is none.
    """
    plain = prefix.with_name(f"{prefix.name}.{language}")
    for path in (plain, *(plain.with_name(plain.name + suffix) for suffix in COMPRESSED)):
        if path.is_file():
            return path
    raise DataError(
        f"no such text: {plain} (nor with {', '.join(COMPRESSED)})",
        "give a prefix ('my/corpus' for my/corpus.en and my/corpus.de), a .tsv file, or ('a.txt', 'b.txt')",
    )


def _suffixes(paths: tuple[Path, ...]) -> tuple[str, ...]:
    """Return the languages that file names end in: ("en", "de") for a.en.gz and a.de."""
    return tuple(map(language_of, paths))


def language_of(path: Path) -> str:
    """Return what a file's name ends in, compression aside: "en" for a.en.gz."""
    return (path.with_suffix("") if path.suffix in COMPRESSED else path).suffix[1:]


def _checksums(paths: tuple[Path, ...]) -> list[str]:
    for path in paths:
        open_text(path).close()  # names what is wrong with the file, if anything
    with ThreadPoolExecutor() as pool:  # hashing lets other threads run
        return list(pool.map(sha256, paths))
