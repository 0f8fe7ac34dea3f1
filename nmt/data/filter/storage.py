"""Fitting, saving and loading all scorers that are learned from a corpus."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nmt.core.errors import DataError
from nmt.core.paths import new_file
from nmt.data.filter.alignment import AlignmentScorer
from nmt.data.filter.combination import Combination
from nmt.data.filter.ending import EndingScorer
from nmt.data.filter.language import LanguageScorer
from nmt.data.filter.length import LengthScorer
from nmt.data.filter.scorer import FittedScorer
from nmt.data.pairs import Pair

SCORERS: dict[str, type[FittedScorer]] = {
    "alignment": AlignmentScorer,
    "language": LanguageScorer,
    "length": LengthScorer,
    "ending": EndingScorer,
}
"""Scorers that are learned from a corpus, by name."""
COMBINATION = "combination"
SEPARATOR = "."
"""Between the name of a scorer and that of one of its arrays."""
_READ_ERRORS = (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile, zlib.error)


def fit_scorers(pairs: Sequence[Pair]) -> dict[str, FittedScorer]:
    """Learn all scorers from a sample of the corpus, such as that of `sample_pairs`.

    Raises:
        DataError: there are no pairs.
    """
    if not pairs:
        raise DataError("there are no sentence pairs to learn from", "check both files")
    return {name: scorer.fit(pairs) for name, scorer in SCORERS.items()}


def save(path: Path, scorers: Mapping[str, FittedScorer], combination: Combination) -> None:
    """Write scorers and their combination to an .npz file; an existing file is replaced."""
    arrays: dict[str, NDArray[Any]] = {}
    models: dict[str, FittedScorer | Combination] = {**scorers, COMBINATION: combination}
    for name, model in models.items():
        for key, array in model.to_arrays().items():
            arrays[f"{name}{SEPARATOR}{key}"] = array
    with new_file(path) as work, work.open("wb") as file:
        np.savez_compressed(file, allow_pickle=False, **arrays)


def load(path: Path) -> tuple[dict[str, FittedScorer], Combination]:
    """Return the scorers and their combination.

    Raises:
        DataError: the file is missing, or `save` has not written it.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {key: file[key] for key in file.files}
        scorers = {}
        for name, scorer in SCORERS.items():
            selected = _select(arrays, name)
            if selected:
                scorers[name] = scorer.from_arrays(selected)
        combination = Combination.from_arrays(_select(arrays, COMBINATION))
        return scorers, combination
    except FileNotFoundError:
        raise DataError(f"no such file: {path}") from None
    except _READ_ERRORS:
        raise DataError(f"{path} is not a file of fitted scores", "fit them again") from None


def _select(arrays: Mapping[str, NDArray[Any]], name: str) -> dict[str, NDArray[Any]]:
    """Return the arrays of a scorer by their own names."""
    selected = {}
    for key, array in arrays.items():
        owner, _, own_name = key.partition(SEPARATOR)
        if owner == name:
            selected[own_name] = array
    return selected
