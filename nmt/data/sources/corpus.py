"""What a corpus is to the rest of the program: named splits of pairs, each with a checksum."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from nmt.data.pairs import Pair

SPLITS = ("train", "valid", "test")

Text = Callable[[], Iterator[Pair]]
"""A text that can be read again and again."""

Texts = Mapping[str, Text]
"""The texts of a corpus by split."""


@dataclass(frozen=True)
class CorpusInfo:
    """What `nmt data list` says of a corpus; figures are approximate, None where they depend on the user."""

    pairs: int | None
    size: int | None
    """Bytes to download; 0 for what comes with nmt."""
    license: str
    source: str


@dataclass(frozen=True)
class Split:
    """One split of a corpus in the wanted direction."""

    name: str
    checksum: str
    """SHA-256 in hex that changes when the text changes."""
    text: Text
    count: Callable[[], int] | None = None
    """Tells about how many pairs there are, where that costs less than reading them."""
    files: tuple[Path, ...] = ()
    """The user's own files that are read."""

    def pairs(self) -> Iterator[Pair]:
        """Yield (source, target) from the start, each time it is called."""
        return self.text()


class Corpus(Protocol):
    """A corpus with its options bound; making one reads no file and opens no connection."""

    @property
    def name(self) -> str:
        """The name in messages and of the folder on disk."""

    @property
    def about(self) -> CorpusInfo:
        """What the list says."""

    @property
    def installed(self) -> bool:
        """Whether it can be read without a download."""

    def check(self) -> None:
        """Raise a ConfigError if the options make no sense."""

    def open(self, split: str, src: str, tgt: str) -> Split:
        """Return a split, put on disk first if need be."""


def digest(*parts: str) -> str:
    """Return one SHA-256 in hex for several strings."""
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def swapped(text: Text) -> Text:
    """Return the text with source and target exchanged."""
    return lambda: ((target, source) for source, target in text())
