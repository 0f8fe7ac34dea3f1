"""Input of the checks: parallel corpora, possibly with unequal numbers of lines."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from nmt.data.pairs import Pair, UnequalLineCountsError

if TYPE_CHECKING:
    from nmt.data.sources import Split


@dataclass
class TolerantReader:
    """Iterate over the pairs of a corpus up to the end of its shorter side."""

    corpus: Split
    line_count_error: str = ""
    """Error message if one side has more lines."""

    def __iter__(self) -> Iterator[Pair]:
        try:
            yield from self.corpus.pairs()
        except UnequalLineCountsError as error:
            self.line_count_error = error.message
