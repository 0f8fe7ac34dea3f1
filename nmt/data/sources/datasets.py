"""Folders that `save_to_disk` of Hugging Face's package `datasets` writes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from nmt.core.errors import ConfigError, DataError
from nmt.data.sources.corpus import CorpusInfo
from nmt.data.sources.files import Files, FileSpec
from nmt.data.tables.arrow import SPLITS, STATE, folder_splits

SPLIT_NAMES = {
    "train": ("train",),
    "valid": ("validation", "valid", "val", "dev"),
    "test": ("test",),
}
"""Names that a split may have in a folder."""


@dataclass(frozen=True, kw_only=True)
class Datasets(Files):
    """A folder of `datasets.DatasetDict.save_to_disk` with splits, or one of
    `datasets.Dataset.save_to_disk`, which is training text. `train`, `valid` and `test` replace its
    splits."""

    path: str = ""
    """The folder."""
    name = "datasets"

    @property
    def splits(self) -> dict[str, FileSpec]:
        """The specified splits, and those of the folder."""
        folder = Path(self.path).expanduser()
        if (folder / STATE).is_file():
            return {"train": str(folder)} | super().splits
        if not folder.exists():
            raise DataError(
                f"no such folder: {folder}", f"relative paths are resolved against {Path.cwd()}"
            )
        if not (folder / SPLITS).is_file():
            file = folder if folder.is_file() else folder / "data.parquet"
            raise DataError(
                f"{folder} is not a folder of save_to_disk: it has no {STATE} or {SPLITS}",
                f"for single files, write files(train='{file}')",
            )
        names = folder_splits(folder)
        found: dict[str, FileSpec] = {}
        for split, candidates in SPLIT_NAMES.items():
            for name in candidates:
                if name in names:
                    found.setdefault(split, str(folder / name))
        return found | super().splits

    @property
    def info(self) -> CorpusInfo:
        """Return the description without reading the folder."""
        return CorpusInfo(None, 0, self.license, "datasets(path='my/folder')")

    def validate(self) -> None:
        """Raise a ConfigError if an option is invalid, without reading the folder."""
        if not self.path:
            raise ConfigError(
                "corpus 'datasets' has no path", "for example datasets(path='my/folder')"
            )
        self.check_options()

    def _corpus_name(self, spec: FileSpec, path: Path) -> str:
        return Path(self.path).expanduser().resolve().name
