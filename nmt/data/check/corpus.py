"""Input of the checks: parallel corpora, possibly with unequal numbers of lines."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from nmt.data.pairs import Pair, UnequalLineCountsError


@dataclass(frozen=True)
class ParallelCorpus:
    """A corpus to check; `pairs` reads it from the beginning, and `count` is None if the number of pairs is unknown."""

    name: str
    pairs: Callable[[], Iterator[Pair]]
    count: int | None = None
    files: tuple[Path, ...] = ()
    """The files that are read."""


class TolerantReader:
    """Iterate over the pairs of a corpus up to the end of its shorter side."""

    def __init__(self, corpus: ParallelCorpus) -> None:
        self.corpus = corpus
        self.line_count_error = ""
        """Error message if one side has more lines."""

    def __iter__(self) -> Iterator[Pair]:
        try:
            yield from self.corpus.pairs()
        except UnequalLineCountsError as error:
            self.line_count_error = error.message
