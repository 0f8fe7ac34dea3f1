"""Published corpora: downloaded or installed from the user's disk, and stored as aligned text.

data/corpora/NAME/train.{en,de}.zst        one sentence per line; plain text in earlier versions
                  {valid,test}.{en,de}
                  corpus.json              origin, license, checksums, counts, date
data/downloads/NAME/                       incomplete downloads and archives; deleted after the
                                           installation

Archives are read as streams, so an installation needs the space of the download and of the stored
files, and nothing else.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from nmt.core.console import log, progress
from nmt.core.errors import ConfigError, DataError, DownloadError, NMTError
from nmt.core.packages import require_package
from nmt.core.paths import clean_up, data_dir, locked, new_directory, sha256
from nmt.data import download
from nmt.data.archives import SourceFile, check_exists, list_files
from nmt.data.pairs import COMPRESSED, Pair, read_pairs, write_pairs
from nmt.data.sources import holdout
from nmt.data.sources.corpus import (
    RECORD,
    SPLITS,
    CorpusInfo,
    PairReader,
    Split,
    SplitReaders,
    count_pairs,
    hash_files,
    hash_strings,
    write_record,
)
from nmt.text.decoding import EncodingError

SplitFinder = Callable[[Sequence[SourceFile], str], SplitReaders]
"""Finds the splits of a corpus among files, given `errors`; returns no readers if they have another
format."""

_SPLIT_STEMS = {
    "train": ("train",),
    "valid": ("valid", "val", "validation", "dev"),
    "test": ("test",),
}


@dataclass(frozen=True)
class RemoteFile:
    """A file of a corpus on a server; checksums and size are None if they are unknown."""

    name: str
    url: str
    sha256: str | None = None
    size: int | None = None
    md5: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    """More headers of the request."""
    missing_hint: str = ""
    """Hint if the server does not have the file, or denies access."""


@dataclass(frozen=True)
class DownloadableCorpus:
    """A corpus that can be downloaded."""

    name: str
    info: CorpusInfo
    list_files: Callable[[], Sequence[RemoteFile]]
    """Returns the files to download; may access the network."""
    find_splits: SplitFinder
    expected_files: str
    """Description of the published files, for the error message when they are not found."""
    archive: str = ""
    """Name of the published archive, to find it in a directory."""
    needs_holdout: bool = False
    """Whether validation and test sets are held out from the corpus."""
    split_stems: Mapping[str, str] | None = None
    """Published file names of the splits, if a directory may have several."""
    languages: tuple[str, str] = ("en", "de")
    spec: str = ""
    """Spec string, if it is not the name."""
    required_split: str = "train"
    """Split that the published files must have."""
    languages_option: str = ""
    """Name of the corpus in a spec string, if other languages are an option of it."""
    packages: tuple[str, ...] = (download.CLIENT,)
    """Packages that the download needs."""

    def __post_init__(self) -> None:
        if len(set(self.languages)) == 1:
            raise ConfigError(
                f"corpus '{self.name}' has the same language on both sides: {self.languages[0]}",
                "name two languages",
            )

    @property
    def directory(self) -> Path:
        """Directory of the installed corpus."""
        return data_dir() / "corpora" / self.name

    @property
    def _word(self) -> str:
        """The spec string in a command line."""
        return f'"{self.spec}"' if self.spec else self.name

    def validate(self) -> None:
        """Do nothing: the options were validated when the corpus was created."""

    def open(self, split: str, src: str, tgt: str) -> Split:
        """Return a split in the given direction; download the corpus first if it is not
        installed."""
        if {src, tgt} != set(self.languages):
            hint = f"{self.languages_option}(languages=('{src}', '{tgt}'))"
            raise DataError(
                f"corpus '{self.name}' is {'-'.join(self.languages)}, not {src}-{tgt}",
                hint if self.languages_option else "",
            )
        self.install()
        entries = self._entries()
        sources = _stored_file(self.directory, entries, split, src)
        targets = _stored_file(self.directory, entries, split, tgt)
        if sources is None or targets is None:
            available = [
                name for name in SPLITS if _stored_file(self.directory, entries, name, src)
            ]
            raise DataError(
                f"corpus '{self.name}' has no {split} split", f"it has {', '.join(available)}"
            )
        return Split(
            f"{self.name}/{split}",
            hash_strings(*hash_files([sources, targets])),
            partial(read_pairs, sources, targets),
            partial(count_pairs, sources),
            (sources, targets),
        )

    def _entries(self) -> dict[str, dict[str, Any]]:
        """Return the entry of each file in the record."""
        command = f"nmt data download {self._word} --force"
        try:
            meta = json.loads((self.directory / RECORD).read_text(encoding="utf-8"))
            entries: dict[str, dict[str, Any]] = meta["files"]
            _ = [entry["sha256"] for entry in entries.values()]
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            raise DataError(f"{self.directory / RECORD} is corrupted", command) from None
        if self.needs_holdout and meta.get("held_out") not in ("", holdout.VERSION):
            log(
                f"the test set in {self.directory} was held out by another version of nmt; to"
                f" update it: {command}"
            )
        return entries

    @property
    def is_installed(self) -> bool:
        """Whether the corpus is on disk."""
        return (self.directory / RECORD).is_file()

    def install(
        self, source: Path | None = None, *, errors: str = "strict", force: bool = False
    ) -> Path:
        """Install the corpus from `source` (an archive or directory) or from the network, and
        return its directory.

        Raises:
            DownloadError: the corpus cannot be downloaded, or an archive is corrupted or unsafe.
            DataError: `source` does not have the corpus, or the text is corrupted.
            MissingPackageError: the download needs a package that is not installed.
        """
        if source:
            check_exists(source)
        clean_up(self.directory.parent)
        if self.is_installed and not force:
            return self.directory
        if source is None:  # before anything is created
            for package in self.packages:
                require_package(package, package, f"downloading {self.name}")
        lock = self.directory.with_name(f".{self.name}.lock")
        try:
            with locked(lock, lambda: log(f"another process is installing {self.name}; waiting")):
                try:
                    if self.is_installed and not force:  # by the other process
                        return self.directory
                    return (
                        self._install_from(source, errors)
                        if source
                        else self._download(errors, force)
                    )
                finally:
                    # Windows deletes the lock file when the lock is released.
                    with contextlib.suppress(OSError):
                        lock.unlink()
        except OSError as error:
            raise DataError(
                f"cannot install {self.name}: {error.filename or self.directory}: {error.strerror}",
                "check its permissions and the free disk space, or set NMT_DATA",
            ) from None

    def _install_from(self, source: Path, errors: str) -> Path:
        archive = source / self.archive
        is_in_directory = self.archive and archive.is_file()
        path = archive if is_in_directory else source
        return self._build([path], str(source), {}, errors)

    def _download(self, errors: str, force: bool) -> Path:
        downloads = data_dir() / "downloads" / self.name
        if force:
            shutil.rmtree(downloads, ignore_errors=True)
        log(f"downloading {self.name} ({self.info.license}) to {self.directory}")
        alternative = f"use a local file: nmt data download {self._word} --from PATH"
        try:
            checksums = {}
            for file in self.list_files():
                checksums[file.name] = download.fetch(
                    file.url,
                    downloads / file.name,
                    sha256=file.sha256,
                    md5=file.md5,
                    size=file.size,
                    headers=file.headers,
                    missing_hint=file.missing_hint,
                    alternative=alternative,
                )
        except NMTError:
            with contextlib.suppress(OSError):
                downloads.rmdir()  # only if it is empty
            raise
        try:
            sources = [downloads / name for name in checksums]
            directory = self._build(sources, self.info.source, checksums, errors)
        except EncodingError:  # the next command may have another `errors`
            raise
        except (DataError, DownloadError):
            # The downloaded files are bad; they are kept after a full disk or a killed process.
            shutil.rmtree(downloads)
            raise
        shutil.rmtree(downloads)
        return directory

    def _build(
        self, sources: Sequence[Path], origin: str, checksums: Mapping[str, str], errors: str
    ) -> Path:
        with new_directory(self.directory) as work:
            readers, is_held_out = self._readers(list_files(sources), errors, origin)
            lines: dict[str, int] = {}
            for split, read in readers.items():
                suffix = ".zst" if split == "train" else ""
                names = [f"{split}.{language}{suffix}" for language in self.languages]
                count = self._write(work, split, names, read)
                lines |= dict.fromkeys(names, count)
            if not checksums:
                checksums = {path.name: sha256(path) for path in sources if path.is_file()}
            write_record(
                work,
                self.name,
                origin,
                lines,
                archives=dict(checksums),
                held_out=holdout.VERSION if is_held_out else "",
                license=self.info.license,
            )
        return self.directory

    def _readers(
        self, files: Sequence[SourceFile], errors: str, origin: str
    ) -> tuple[SplitReaders, bool]:
        """Return the readers of the splits, and whether splits are held out from train."""
        readers = find_standard_splits(files, self.languages, self.split_stems or {}, errors)
        if self.required_split not in readers:
            readers = {**self.find_splits(files, errors), **readers}
        if self.required_split not in readers:
            src, tgt = [f"{self.required_split}.{language}" for language in self.languages]
            others = ", ".join(split for split in SPLITS if split != self.required_split)
            raise DataError(
                f"{origin} does not have corpus '{self.name}'",
                f"expected {self.expected_files}; or {src} and {tgt} (also {others}), plain or"
                " compressed",
            )
        is_held_out = self.needs_holdout and set(readers) == {"train"}
        return (holdout.hold_out(readers["train"]) if is_held_out else readers), is_held_out

    def _write(self, work: Path, split: str, names: Sequence[str], read: PairReader) -> int:
        src, tgt = [work / name for name in names]
        with progress(
            None, f"{self.name}/{split}", " pairs", unit_scale=True, iterable=read()
        ) as pairs:
            count = write_pairs(src, tgt, pairs)
        if not count:
            raise DataError(f"the {split} split of corpus '{self.name}' is empty")
        return count


def _stored_file(
    directory: Path, entries: Mapping[str, object], split: str, language: str
) -> Path | None:
    """Return a file of a corpus; None if the corpus does not have the split."""
    plain = f"{split}.{language}"
    for name in (f"{plain}.zst", plain):
        if name in entries:
            return directory / name
    return None


def find_named(
    files: Sequence[SourceFile],
    errors: str,
    *,
    names: Mapping[str, Sequence[str]],
    read: Callable[..., Iterator[Pair]],
) -> SplitReaders:
    """Return a reader for each split of which all files, given by name, are there."""
    by_name = {file.name: file for file in reversed(files)}
    readers: dict[str, PairReader] = {}
    for split, names_of_split in names.items():
        own = [by_name[name] for name in names_of_split if name in by_name]
        if len(own) == len(names_of_split):
            readers[split] = partial(read, *own, errors=errors)
    return readers


def find_standard_splits(
    files: Sequence[SourceFile],
    languages: tuple[str, str],
    split_stems: Mapping[str, str],
    errors: str,
) -> SplitReaders:
    """Find train, valid and test among files with names such as train.en.gz, val.de, test_2016.en.

    Raises:
        DataError: a split is ambiguous, or one of its two files is missing.
    """
    paths = group_by_prefix(files, languages)
    readers = {}
    for split in SPLITS:
        prefix = _find_prefix(paths, split, split_stems.get(split, ""))
        if not prefix:
            continue
        group = paths[prefix]
        for language in languages:
            if language not in group:
                raise DataError(
                    f"{prefix.name}.{'/'.join(group)} exists, but not {prefix.name}.{language}"
                )
        src, tgt = [group[language] for language in languages]
        readers[split] = partial(read_pairs, src, tgt, errors=errors)
    return readers


def find_parallel_files(
    files: Sequence[SourceFile], languages: Sequence[str]
) -> tuple[SourceFile, SourceFile] | None:
    """Return the files of the only prefix with both languages, such as CORPUS.de-en.de and
    CORPUS.de-en.en; None if there are none or several."""
    groups = group_by_prefix(files, languages).values()
    complete = [group for group in groups if len(group) == 2]
    if len(complete) != 1:
        return None
    return complete[0][languages[0]], complete[0][languages[1]]


def group_by_prefix(
    files: Sequence[SourceFile], languages: Sequence[str]
) -> dict[Path, dict[str, SourceFile]]:
    """Group files with names PREFIX.LANGUAGE, plain or compressed, by prefix and language."""
    language = "|".join(map(re.escape, languages))
    compression = "|".join(map(re.escape, COMPRESSED))
    suffix = re.compile(rf"\.({language})({compression})?$")
    groups: dict[Path, dict[str, SourceFile]] = {}
    for file in sorted(files):
        match = suffix.search(file.name)
        if match is None or file.name.startswith("."):
            continue
        prefix = Path(str(file)).with_name(file.name[: match.start()])
        group = groups.setdefault(prefix, {})
        group.setdefault(match[1], file)
    return groups


def _find_prefix(
    paths: Mapping[Path, Mapping[str, SourceFile]], split: str, published_stem: str
) -> Path | None:
    """Return the prefix of a split, preferably one with both languages."""
    stems = _SPLIT_STEMS[split]
    candidates = [
        [prefix for prefix in paths if prefix.name == stem] for stem in (*stems, published_stem)
    ]
    candidates.append([prefix for prefix in paths if prefix.name.startswith(stems)])
    prefixes = next(filter(None, candidates), [])  # of the first stem that a file has
    complete = [prefix for prefix in prefixes if len(paths[prefix]) == 2]
    if len(complete) > 1:
        parent = os.path.commonpath([prefix.parent for prefix in complete])
        names = ", ".join(prefix.relative_to(parent).as_posix() for prefix in complete)
        raise DataError(
            f"the {split} split is ambiguous: {names}", f"keep one of them and name it {stems[0]}"
        )
    return next(iter(complete or prefixes), None)
