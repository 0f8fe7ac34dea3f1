"""What all scorers of sentence pairs have in common."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, Self

from numpy.typing import NDArray

from nmt.data.arrays import Floats
from nmt.data.pairs import Pair

Arrays = Mapping[str, NDArray[Any]]
"""The parameters of a fitted model by name."""


class PairScorer(Protocol):
    """Scores sentence pairs. The score of a pair depends only on the pair and on the model."""

    def score(self, pairs: Sequence[Pair]) -> Floats:
        """Return the score of each pair, [N]; a high score is good."""


class FittedScorer(PairScorer, Protocol):
    """A scorer that is learned from a corpus, and can be stored."""

    @classmethod
    def fit(cls, pairs: Sequence[Pair]) -> Self:
        """Learn the model from a sample of the corpus."""

    @classmethod
    def from_arrays(cls, arrays: Arrays) -> Self:
        """Return the model with these parameters."""

    def to_arrays(self) -> Arrays:
        """Return the parameters."""
