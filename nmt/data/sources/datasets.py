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
        found: dict[str, FileSpec] = {}
        for split, name in _known_splits(folder_splits(folder)).items():
            found[split] = str(folder / name)
        return found | super().splits

    @property
    def other_splits(self) -> list[Path]:
        """The folders of splits that are neither training text nor a validation or test set."""
        folder = Path(self.path).expanduser()
        if not (folder / SPLITS).is_file():
            return []
        names = folder_splits(folder)
        known = _known_splits(names).values()
        return [folder / name for name in names if name not in known]

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

    def _check_held_out(self, split: str) -> None:
        if "train" in self.splits:
            super()._check_held_out(split)
            return
        names = folder_splits(Path(self.path).expanduser())
        example = [*(each.name for each in self.other_splits), *names][0]
        raise DataError(
            f"{self.path} has no {split} split, only {', '.join(names)}",
            f"name one: datasets(path='{self.path}', {split}='{Path(self.path) / example}')",
        )

    def _corpus_name(self, spec: FileSpec, path: Path) -> str:
        return Path(self.path).expanduser().resolve().name


def _known_splits(names: list[str]) -> dict[str, str]:
    """Return the name of each split in a folder with these names."""
    found: dict[str, str] = {}
    for split, candidates in SPLIT_NAMES.items():
        for name in candidates:
            if name in names:
                found.setdefault(split, name)
    return found
