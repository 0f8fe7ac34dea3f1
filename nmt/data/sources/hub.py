"""English-German corpora on the Hugging Face Hub: parquet files, downloaded by `nmt.data.download`.

The validation split of a WMT corpus is the test set of the year before.

The listing of the Hub has the size and SHA-256 of every file, so that downloads are resumed and
verified. `$HF_ENDPOINT` sets another Hub, as in Hugging Face's tools.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from nmt.core.errors import DataError, DownloadError
from nmt.core.paths import data_dir
from nmt.data import download
from nmt.data.archives import SourceFile
from nmt.data.pairs import Pair
from nmt.data.sources.corpus import CorpusInfo, PairReader, SplitReaders
from nmt.data.sources.downloadable import DownloadableCorpus, RemoteFile
from nmt.data.tables import ColumnRequest
from nmt.data.tables.arrow import read_parquet_files

DIRECTORY = "de-en"
_SPLIT_PATTERN = re.compile(r"(?:^|[-_])(train|validation|test)\b")
_NUMBER_PATTERN = re.compile(r"-(\d+)-of-(\d+)\.")
_SPLIT_NAMES = {"train": "train", "validation": "valid", "test": "test"}


_WMT_LICENSE = "research; varies by source corpus (statmt.org)"
_REPOSITORIES = {
    "wmt14": ("wmt/wmt14", 4_514_788, 818_467_512, _WMT_LICENSE),
    "wmt16": ("wmt/wmt16", 4_554_053, 827_152_589, _WMT_LICENSE),
    "wmt17": ("wmt/wmt17", 5_912_187, 1_011_327_465, _WMT_LICENSE),
    # With ParaCrawl, without a test split.
    "wmt19": ("wmt/wmt19", 34_785_243, 4_600_000_000, _WMT_LICENSE),
    # A sample of OPUS (Zhang et al. 2020).
    "opus100": ("Helsinki-NLP/opus-100", 1_004_000, 116_680_890, "varies by source corpus"),
}
"""Repository, pairs, bytes and license of each corpus."""


def _source(name: str) -> Callable[[], DownloadableCorpus]:
    """Return a function that creates a translation corpus whose parquet files are in the directory
    `DIRECTORY` of a repository."""
    repository, pairs, num_bytes, license = _REPOSITORIES[name]
    page = f"https://huggingface.co/datasets/{repository}"
    return lambda: DownloadableCorpus(
        name=name,
        info=CorpusInfo(pairs, num_bytes, license, page),
        list_files=partial(_list_files, name, repository),
        find_splits=_find_splits,
        expected_files=f"a directory with the parquet files of {DIRECTORY}",
        packages=(download.CLIENT, "pyarrow"),
    )


SOURCES = {name: _source(name) for name in _REPOSITORIES}


def endpoint() -> str:
    """Return the address of the Hub."""
    return os.environ.get("HF_ENDPOINT", "").rstrip("/") or "https://huggingface.co"


def _list_files(name: str, repository: str) -> list[RemoteFile]:
    listing = data_dir() / "downloads" / name / "listing.json"
    listing.unlink(missing_ok=True)
    url = f"{endpoint()}/api/datasets/{repository}/tree/main/{DIRECTORY}"
    alternative = f"use local files: nmt data download {name} --from PATH"
    download.fetch(url, listing, alternative=alternative)
    try:
        entries = json.loads(listing.read_text(encoding="utf-8"))
        files = [
            _remote_file(entry, f"{endpoint()}/datasets/{repository}/resolve/main")
            for entry in entries
        ]
    except (ValueError, KeyError, TypeError, AttributeError):
        raise DownloadError(
            f"{url} is not a listing of files",
            alternative,
        ) from None
    finally:
        listing.unlink()
    return [file for file in files if _split_of(file.name)]


def _remote_file(entry: dict[str, object], base: str) -> RemoteFile:
    """Convert an entry of the listing; only files in Git LFS have a SHA-256."""
    path = str(entry["path"])
    lfs = entry.get("lfs")
    checksum = str(lfs["oid"]) if isinstance(lfs, dict) else None
    size = entry["size"] if isinstance(entry["size"], int) else None
    return RemoteFile(Path(path).name, f"{base}/{path}", checksum, size)


def _split_of(name: str) -> str:
    """Return the split of a parquet file, or "" for other files."""
    if name.startswith(".") or not name.endswith(".parquet"):
        return ""
    match = _SPLIT_PATTERN.search(name)
    return _SPLIT_NAMES[match[1]] if match else ""


def _find_splits(files: Sequence[SourceFile], errors: str) -> SplitReaders:
    paths_by_split: dict[str, list[Path]] = {}
    for file in sorted(files):
        split = _split_of(file.name)
        if split and file.member:
            raise DataError(f"{file} is in an archive", "extract it, and specify the directory")
        if split:
            paths_by_split.setdefault(split, []).append(file.path)
    for paths in paths_by_split.values():
        _check_complete(paths)
    readers: dict[str, PairReader] = {}
    for split, paths in paths_by_split.items():
        readers[split] = partial(_read_pairs, paths)
    return readers


def _check_complete(paths: Sequence[Path]) -> None:
    """Raise a DataError if a file NAME-00001-of-00003.parquet is missing."""
    counts = {}  # number of files, by the number of each file
    for path in paths:
        if match := _NUMBER_PATTERN.search(path.name):
            counts[int(match[1])] = int(match[2])
    first = paths[0]
    for number in range(max(counts.values(), default=0)):
        if number not in counts:
            count = next(iter(counts.values()))
            name = _NUMBER_PATTERN.sub(f"-{number:05}-of-{count:05}.", first.name)
            raise DataError(
                f"{first.parent / name} is missing", "a split is read from all of its files"
            )


def _read_pairs(files: Sequence[Path]) -> Iterator[Pair]:
    request = ColumnRequest(src="translation.en", tgt="translation.de")
    return read_parquet_files(files, request, "strict").pairs()
