"""The phrase book that comes with nmt: no download, so the quickstart works on a machine without a network."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from nmt.data.sources.corpus import CorpusInfo, Split, Text, digest, swapped
from nmt.errors import DataError


def phrasebook() -> Phrasebook:
    """Everyday English-German sentences made by nmt's own grammar."""
    return Phrasebook()


@dataclass(frozen=True)
class Phrasebook:
    """The corpus in `nmt.data.sources.phrasebook`, imported when it is opened."""

    name = "phrasebook"
    about = CorpusInfo(38_168, 0, "Apache-2.0", "comes with nmt")
    installed = True

    def check(self) -> None:
        """Nothing can be wrong: there are no options."""

    def open(self, split: str, src: str, tgt: str) -> Split:
        """Return a split; the checksum covers the version and the code and word lists that make the text."""
        if {src, tgt} != {"en", "de"}:
            raise DataError(f"corpus 'phrasebook' holds en-de, not {src}-{tgt}")
        from nmt.data.sources import phrasebook as made

        files = sorted(path for path in Path(str(made.__file__)).parent.rglob("*") if _is_source(path))
        sums = [hashlib.sha256(path.read_bytes()).hexdigest() for path in files]
        text: Text = partial(made.pairs, split)
        return Split(
            f"phrasebook/{split}", digest(str(made.VERSION), split, src, *sums), text if src == "en" else swapped(text)
        )


def _is_source(path: Path) -> bool:
    return path.is_file() and "__pycache__" not in path.parts
