"""Splits, options and records of a corpus."""

from __future__ import annotations

import datetime
import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from nmt.core.paths import sha256, write_json
from nmt.core.ranges import Range
from nmt.core.untrusted_files import JsonObject, read_record
from nmt.core.version import __version__
from nmt.data.pairs import Pair, estimate_lines, open_text

RECORD = "corpus.json"
SPLITS = ("train", "valid", "test")

PairReader = Callable[[], Iterator[Pair]]
"""Iterates over sentence pairs; each call starts from the beginning."""

SplitReaders = Mapping[str, PairReader]
"""Readers of a corpus by split."""


@dataclass(frozen=True, kw_only=True)
class CorpusOptions:
    """Options that every training corpus has."""

    weight: Annotated[
        float,
        Range(
            above=0,
            maximum=1000,
            hint="0.5 uses half of its pairs in each epoch, 2 uses each pair twice",
        ),
    ] = 1.0
    """How often an epoch has each pair; see `nmt.data.mixing`."""
    tag: bool = False
    """Whether sources begin with a tag, as for back-translated text (Caswell et al. 2019)."""


@dataclass(frozen=True)
class CorpusInfo:
    """Description of a corpus for `nmt data list`. Numbers are approximate, or None if they depend
    on the user."""

    pairs: int | None
    download_bytes: int | None
    """Download size in bytes; 0 if nothing is downloaded."""
    license: str
    source: str


@dataclass(frozen=True)
class Split:
    """A split of a corpus in one translation direction."""

    name: str
    checksum: str
    """SHA-256 that changes whenever the text changes."""
    pairs: PairReader
    """Iterates over (source, target) from the beginning."""
    count: Callable[[], int] | None = None
    """Returns the approximate number of pairs, if that is faster than reading them."""
    files: tuple[Path, ...] = ()
    """The files that are read, unless they are part of nmt."""
    references: Callable[[], Iterator[list[str]]] | None = None
    """Iterates over all references of each source, in the order of `pairs`, which has the first
    one; None if there is one each."""


def total_pairs(splits: Iterable[Split]) -> int | None:
    """Return the approximate number of pairs of several splits; None if that of one is not
    known."""
    total = 0
    for split in splits:
        if split.count is None:
            return None
        total += split.count()
    return total


def translators_of(split: Split) -> list[JsonObject]:
    """Return the records of the models that translated a corpus of `nmt backtranslate` or `nmt
    distill`."""
    origin = read_record(split.files[0].parent / RECORD).get("origin") if split.files else None
    models = origin.get("model") if isinstance(origin, dict) else None
    return models if isinstance(models, list) else []


def write_record(
    directory: Path, name: str, origin: object, lines: Mapping[str, int], **entries: object
) -> None:
    """Write the record of an installed corpus: `entries`, and the checksums of its files.

    Args:
        directory: the directory with the files.
        name: name of the corpus.
        origin: origin of the text.
        lines: number of lines of each file.
        entries: more entries.
    """
    record = {
        "name": name,
        "origin": origin,
        **entries,
        "files": {
            file: {
                "sha256": sha256(directory / file),
                "lines": count,
                "mtime_ns": (directory / file).stat().st_mtime_ns,
            }
            for file, count in lines.items()
        },
        "nmt": __version__,
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }
    write_json(directory / RECORD, record)


def hash_files(paths: Sequence[Path]) -> list[str]:
    """Return the SHA-256 of each file in hex.

    Raises:
        DataError: a file is missing or cannot be read.
    """
    for path in paths:
        open_text(path).close()  # raises the DataError
    with ThreadPoolExecutor() as pool:  # hashing releases the GIL
        return list(pool.map(_hash_file, paths))


def _hash_file(path: Path) -> str:
    recorded = _recorded_entry(path).get("sha256")
    return recorded if isinstance(recorded, str) else sha256(path)


def count_pairs(path: Path) -> int:
    """Return the approximate number of lines of a file, without reading it to the end if it is
    large or its corpus has a record."""
    recorded = _recorded_entry(path).get("lines")
    return recorded if isinstance(recorded, int) else estimate_lines(path)


def _recorded_entry(path: Path) -> JsonObject:
    """Return the entry of a file in the record of its directory; empty if there is none, or if the
    file has changed since."""
    record = path.parent / RECORD
    if not record.is_file():
        return {}
    entries = read_record(record).get("files")
    entry = entries.get(path.name) if isinstance(entries, dict) else None
    if not isinstance(entry, dict) or entry.get("mtime_ns") != path.stat().st_mtime_ns:
        return {}
    return entry


def hash_strings(*strings: str) -> str:
    """Return the SHA-256 of several strings in hex."""
    return hashlib.sha256("\n".join(strings).encode()).hexdigest()


def swap_sides(read: PairReader) -> PairReader:
    """Return a reader with source and target exchanged."""
    return lambda: ((target, source) for source, target in read())
