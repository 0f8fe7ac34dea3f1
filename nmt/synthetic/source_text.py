"""The text that a teacher translates: plain text or the source side of corpora, cleaned and without
repetitions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any

from nmt.core.console import progress
from nmt.core.errors import DataError, UsageError
from nmt.core.paths import sha256
from nmt.data.clean import cleaning_pipeline
from nmt.data.pairs import Pair, count_lines, read_lines, write_pairs
from nmt.data.sources import open_split
from nmt.data.sources.corpus import PairReader
from nmt.text.language_identification import is_wrong_language
from nmt.translation.chunking import chunked

CLEANING = ("normalize", "length(max=200)", "dedup(by='source')")
"""Cleaning steps before the translation, so that no time is spent on lines that a filter drops."""
SOURCE, REFERENCE = "source", "reference"
"""Stems of the files with the text and its references."""
SAMPLE_SIZE, GROUP_SIZE = 1000, 10
"""Number of lines whose language is identified, and of lines that are identified together."""


@dataclass(frozen=True)
class SourceText:
    """Text to translate."""

    name: str
    language: str
    read: PairReader
    """Iterates over source sentences and references; the reference of plain text is the text
    itself."""
    checksums: list[dict[str, str]]
    num_lines: int | None = None

    @classmethod
    def from_file(cls, path: Path, language: str, errors: str) -> SourceText:
        """Return the lines of a plain or compressed text file.

        Raises:
            DataError: the file cannot be read.
        """

        def read() -> Iterator[Pair]:
            return ((line, line) for line in read_lines(path, errors))

        num_lines = count_lines(path)  # raises a DataError if the file cannot be read
        return cls(
            str(path), language, read, [{"name": path.name, "sha256": sha256(path)}], num_lines
        )

    @classmethod
    def from_corpora(cls, specs: Sequence[str], src: str, tgt: str) -> SourceText:
        """Return the source sentences of training corpora; see `nmt.data.sources.open_split` for
        the errors."""
        splits = [open_split(spec, "train", src, tgt) for spec in specs]

        def read() -> Iterator[Pair]:
            return chain.from_iterable(split.pairs() for split in splits)

        checksums = [{"name": split.name, "sha256": split.checksum} for split in splits]
        return cls(" and ".join(split.name for split in splits), src, read, checksums)

    def check_language(self, model: Path) -> None:
        """Raise a UsageError if most of the first lines are clearly in another language than the
        model reads."""
        lines = (line for line, _ in islice(self.read(), SAMPLE_SIZE))
        groups = [" ".join(group) for group in chunked(lines, GROUP_SIZE)]
        if 2 * sum(is_wrong_language(group, self.language) for group in groups) > len(groups):
            raise UsageError(
                f"{self.name} is not in the source language of {model}, '{self.language}'",
                "choose a model of the other direction, or another text",
            )

    def write(self, directory: Path) -> dict[str, Any]:
        """Write the cleaned text and its references; return the number of lines and those that each
        step dropped.

        Raises:
            DataError: nothing is left.
        """
        with progress(
            self.num_lines, "reading", " lines", unit_scale=True, iterable=self.read()
        ) as pairs:
            cleaned = cleaning_pipeline(pairs, CLEANING)
            num_lines = write_pairs(directory / SOURCE, directory / REFERENCE, cleaned)
        if not num_lines:
            raise DataError(
                f"{self.name} has no text to translate",
                "a line must have 1 to 200 words and at most 2,000 characters",
            )
        return {"lines": num_lines, "dropped": cleaned.dropped}
