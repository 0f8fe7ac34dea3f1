"""Corpora that others publish: fetched once, or taken from the user's disk, and kept as plain aligned text.

data/corpora/NAME/{train,valid,test}.{en,de}   one sentence a line
                  corpus.json                  origin, license, checksums, counts, date
data/downloads/NAME/                           archives on their way; gone once the corpus stands
"""

from __future__ import annotations

import contextlib
import datetime
import json
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from nmt import __version__
from nmt.console import log, progress, with_progress
from nmt.data import download
from nmt.data.pairs import COMPRESSED, count_lines, read_pairs, write_pairs
from nmt.data.sources import holdout
from nmt.data.sources.corpus import SPLITS, CorpusInfo, Split, Text, Texts, digest, swapped
from nmt.errors import DataError, NMTError
from nmt.paths import data_dir, new_directory, sha256, write_text

Reader = Callable[[Sequence[Path], str], Texts]
"""Finds a corpus's own files among others, given `errors`; returns no text where there are none."""

_STEMS = {"train": ("train",), "valid": ("valid", "val", "validation", "dev"), "test": ("test",)}


@dataclass(frozen=True)
class Remote:
    """One file of a corpus on a server, with what is known of it."""

    name: str
    url: str
    sha256: str | None = None
    size: int | None = None


@dataclass(frozen=True)
class DownloadableCorpus:
    """A corpus that can be downloaded."""

    name: str
    about: CorpusInfo
    remotes: Callable[[], Sequence[Remote]]
    """Lists what to fetch; may ask the server."""
    read: Reader
    expects: str
    """The corpus's own files, for the message when none is found."""
    archive: str = ""
    """The published archive's name, to know it inside a folder."""
    hold_out: bool = False
    """Whether validation and test sets have to be held out of it."""
    stems: Mapping[str, str] | None = None
    """The published names of splits, where a folder may hold several."""
    languages: tuple[str, str] = ("en", "de")
    spec: str = ""
    """How to ask for it on the command line, where that is not the name."""

    @property
    def folder(self) -> Path:
        """Where the corpus lies, or will lie."""
        return data_dir() / "corpora" / self.name

    def check(self) -> None:
        """Nothing can be wrong: the options were checked when the corpus was made."""

    def open(self, split: str, src: str, tgt: str) -> Split:
        """Return a split in the wanted direction; the corpus is downloaded first if it is not there."""
        if {src, tgt} != set(self.languages):
            raise DataError(f"corpus '{self.name}' holds {'-'.join(self.languages)}, not {src}-{tgt}")
        self.install()
        sums = self._sums()
        if f"{split}.{src}" not in sums:
            held = [name for name in SPLITS if f"{name}.{src}" in sums]
            raise DataError(f"corpus '{self.name}' has no {split} split", f"it has {', '.join(held)}")
        first, second = (self.folder / f"{split}.{language}" for language in self.languages)
        text: Text = partial(read_pairs, first, second)
        checksum = digest(sums[f"{split}.{src}"], sums[f"{split}.{tgt}"])
        text = text if src == self.languages[0] else swapped(text)
        return Split(f"{self.name}/{split}", checksum, text, partial(count_lines, first))

    def _sums(self) -> dict[str, str]:
        again = f"nmt data download {self.spec or self.name} --force"
        try:
            meta = json.loads((self.folder / "corpus.json").read_text(encoding="utf-8"))
            sums = {name: entry["sha256"] for name, entry in meta["files"].items()}
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            raise DataError(f"{self.folder / 'corpus.json'} is damaged", again) from None
        if self.hold_out and meta.get("held_out") not in ("", holdout.VERSION):
            log(f"{self.folder} was divided into train and test as an older nmt did; to divide it anew: {again}")
        return sums

    @property
    def installed(self) -> bool:
        """Whether the corpus is on disk."""
        return (self.folder / "corpus.json").is_file()

    def install(self, source: Path | None = None, *, errors: str = "strict", force: bool = False) -> Path:
        """Put the corpus on disk, from `source` (an archive or folder) or from the network, and return its folder.

        Raises:
            DownloadError: it cannot be fetched, or an archive is not to be trusted.
            DataError: `source` does not hold the corpus, or the text is damaged.
        """
        if self.installed and not force:
            return self.folder
        try:
            return self._take(source, errors) if source else self._download(errors, force)
        except OSError as error:
            raise DataError(
                f"cannot write {self.folder}: {error.strerror}", "free some space, or set NMT_DATA"
            ) from None

    def _take(self, source: Path, errors: str) -> Path:
        inside = source / self.archive
        return self._build([inside if self.archive and inside.is_file() else source], str(source), {}, errors)

    def _download(self, errors: str, force: bool) -> Path:
        store = data_dir() / "downloads" / self.name
        if force:
            shutil.rmtree(store, ignore_errors=True)
        log(f"downloading {self.name} ({self.about.license}) to {self.folder}")
        try:
            sums = {remote.name: self._fetch(remote, store / remote.name) for remote in self.remotes()}
        except NMTError:
            with contextlib.suppress(OSError):
                store.rmdir()  # only if nothing came at all
            raise
        try:
            folder = self._build([store / name for name in sums], self.about.source, sums, errors)
        except NMTError:  # complete, and bad: it would be as bad next time; after a full disk (OSError) it stays
            shutil.rmtree(store)
            raise
        shutil.rmtree(store)
        return folder

    def _fetch(self, remote: Remote, path: Path) -> str:
        return download.fetch(remote.url, path, sha256=remote.sha256, size=remote.size, corpus=self.spec or self.name)

    def _build(self, sources: Sequence[Path], origin: str, sums: Mapping[str, str], errors: str) -> Path:
        with new_directory(self.folder) as work, download.unpacked(sources, near=self.folder.parent) as files:
            texts, held_out = self._texts(files, errors, origin)
            counts = {split: self._write(work, split, text) for split, text in texts.items()}
            archives = sums or {path.name: sha256(path) for path in sources if path.is_file()}
            write_text(work / "corpus.json", self._meta(work, origin, archives, counts, held_out))
        return self.folder

    def _meta(
        self, work: Path, origin: str, archives: Mapping[str, str], counts: Mapping[str, int], held_out: bool
    ) -> str:
        names = [(f"{split}.{language}", count) for split, count in counts.items() for language in self.languages]
        meta = {
            "name": self.name,
            "origin": origin,
            "archives": dict(archives),
            "files": {name: {"sha256": sha256(work / name), "lines": count} for name, count in names},
            "held_out": holdout.VERSION if held_out else "",
            "license": self.about.license,
            "nmt": __version__,
            "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        }
        return json.dumps(meta, indent=2, ensure_ascii=False) + "\n"

    def _texts(self, files: Sequence[Path], errors: str, origin: str) -> tuple[Texts, bool]:
        """Return the texts, and whether some were held out of the training text."""
        texts = standard(files, self.languages, self.stems or {}, errors) or self.read(files, errors)
        if not texts:
            raise DataError(
                f"nothing of corpus '{self.name}' in {origin}",
                f"it must be {self.expects}; or hold train.en and train.de (valid, test likewise), plain or compressed",
            )
        whole = self.hold_out and set(texts) == {"train"}
        return (holdout.hold_out(texts["train"]) if whole else texts), whole

    def _write(self, work: Path, split: str, text: Text) -> int:
        first, second = (work / f"{split}.{language}" for language in self.languages)
        with progress(None, f"{self.name}/{split}", " pairs", unit_scale=True) as bar:
            count = write_pairs(first, second, with_progress(text(), bar.update))
        if not count:
            raise DataError(f"the {split} split of corpus '{self.name}' is empty")
        return count


def standard(files: Sequence[Path], languages: tuple[str, str], stems: Mapping[str, str], errors: str) -> Texts:
    """Find train, valid and test among files named like train.en.gz, val.de, test_2016.en.

    Raises:
        DataError: several texts could be a split, or one side of a text is missing.
    """
    sides = by_prefix(files, languages)
    texts: dict[str, Text] = {}
    for split in SPLITS:
        found = _of_split(sides, split, stems.get(split, ""))
        if not found:
            continue
        for language in languages:
            if language not in sides[found]:
                raise DataError(f"{found.name}.{'/'.join(sides[found])} has no {found.name}.{language} beside it")
        texts[split] = partial(read_pairs, *(sides[found][language] for language in languages), errors=errors)
    return texts


def by_prefix(files: Sequence[Path], languages: Sequence[str]) -> dict[Path, dict[str, Path]]:
    """Group files named PREFIX.LANGUAGE, plain or compressed, by prefix and language."""
    ending = re.compile(rf"\.({'|'.join(map(re.escape, languages))})({'|'.join(map(re.escape, COMPRESSED))})?$")
    sides: dict[Path, dict[str, Path]] = {}
    for path in sorted(files):
        if match := ending.search(path.name):
            sides.setdefault(path.with_name(path.name[: match.start()]), {}).setdefault(match[1], path)
    return sides


def _of_split(sides: Mapping[Path, object], split: str, published: str) -> Path | None:
    for name in (*_STEMS[split], published):
        if exact := [prefix for prefix in sides if prefix.name == name]:
            return exact[0]
    close = [prefix for prefix in sides if prefix.name.startswith(_STEMS[split])]
    if len(close) > 1:
        names = ", ".join(prefix.name for prefix in close)
        raise DataError(f"several texts could be the {split} split: {names}", f"name the right one {_STEMS[split][0]}")
    return close[0] if close else None
