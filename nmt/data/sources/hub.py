"""Corpora that lie on the Hugging Face hub as parquet files: fetched like any other file, read through `datasets`.

The hub's listing names every file with size and SHA-256, so each is resumed after a break and verified.
`$HF_ENDPOINT` names another hub, as it does for Hugging Face's own tools.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from nmt.data import download
from nmt.data.pairs import Pair
from nmt.data.sources.corpus import CorpusInfo, Texts
from nmt.data.sources.published import DownloadableCorpus, Remote
from nmt.errors import DataError, DownloadError
from nmt.paths import data_dir

_SPLIT = re.compile(r"(?:^|[-_])(train|validation|test)\b")
_NAMES = {"train": "train", "validation": "valid", "test": "test"}


def hub(name: str, repository: str, about: CorpusInfo, config: str = "de-en") -> DownloadableCorpus:
    """Describe a translation data set whose parquet files lie in the folder `config` of a hub repository."""
    return DownloadableCorpus(
        name=name,
        about=about,
        remotes=partial(_remotes, name, repository, config),
        read=partial(_read, languages=("en", "de")),
        expects=f"a folder with the parquet files of {config}",
    )


def _remotes(name: str, repository: str, config: str) -> list[Remote]:
    endpoint = os.environ.get("HF_ENDPOINT", "").rstrip("/") or "https://huggingface.co"
    listing = data_dir() / "downloads" / name / "listing.json"
    listing.unlink(missing_ok=True)
    url = f"{endpoint}/api/datasets/{repository}/tree/main/{config}"
    download.fetch(url, listing, corpus=name)
    try:
        entries = json.loads(listing.read_text(encoding="utf-8"))
        found = [_remote(entry, f"{endpoint}/datasets/{repository}/resolve/main") for entry in entries]
    except (ValueError, KeyError, TypeError, AttributeError):
        raise DownloadError(
            f"{url} is not a listing of files", f"nmt data download {name} --from PATH takes files that you have"
        ) from None
    finally:
        listing.unlink()
    return [remote for remote in found if _split(remote.name)]


def _remote(entry: dict[str, object], base: str) -> Remote:
    """Read one entry of the listing; files kept in git itself have no SHA-256 there, large ones do."""
    path, large = str(entry["path"]), entry.get("lfs")
    checksum = str(large["oid"]) if isinstance(large, dict) else None
    size = entry["size"]
    return Remote(Path(path).name, f"{base}/{path}", checksum, size if isinstance(size, int) else None)


def _split(name: str) -> str:
    """Return the split that a parquet file belongs to, "" for another file."""
    match = _SPLIT.search(name) if name.endswith(".parquet") else None
    return _NAMES[match[1]] if match else ""


def _read(files: Sequence[Path], errors: str, *, languages: tuple[str, str]) -> Texts:
    parts: dict[str, list[Path]] = {}
    for path in sorted(files):
        if split := _split(path.name):
            parts.setdefault(split, []).append(path)
    return {split: partial(_rows, paths, languages) for split, paths in parts.items()}


def _rows(files: Sequence[Path], languages: tuple[str, str]) -> Iterator[Pair]:
    """Stream the column `translation` of parquet files, a thousand rows in memory at a time."""
    from datasets import load_dataset

    try:
        rows = load_dataset("parquet", data_files=[str(path) for path in files], split="train", streaming=True)
        for batch in rows.iter(batch_size=1000):
            for row in batch["translation"]:
                yield row[languages[0]] or "", row[languages[1]] or ""
    except (KeyError, TypeError):
        raise DataError(f"{files[0].name} has no column 'translation' with {' and '.join(languages)}") from None
    except Exception as error:  # pyarrow, fsspec and datasets each raise their own
        raise DataError(f"{files[0].parent}: damaged parquet file: {error}", "get the files again") from error
