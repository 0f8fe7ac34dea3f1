"""Ending score: whether the target ends as the source does, so that nothing is cut off.

Shape suffixes: N pairs, E endings.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from nmt.data.arrays import Floats
from nmt.data.filter.scorer import Arrays
from nmt.data.pairs import Pair
from nmt.text.normalization import is_mark

MAX_ENDINGS = 64
"""Maximum number of endings; rarer ones are one class."""
SMOOTHING = 0.5


class EndingScorer:
    """The log-likelihood of the last punctuation mark of the target given that of the source,
    relative to that of the most likely one."""

    def __init__(self, endings: Sequence[str], score_EE: Floats) -> None:
        self.endings = endings
        self.score_EE = score_EE
        # The first row and column are for rare endings.
        self._indices = {ending: index for index, ending in enumerate(endings, 1)}

    @classmethod
    def fit(cls, pairs: Sequence[Pair]) -> EndingScorer:
        """Count the endings of both sides."""
        counts = Counter[str]()
        for pair in pairs:
            counts.update(map(find_ending, pair))
        endings = [ending for ending, _ in counts.most_common(MAX_ENDINGS)]
        size = len(endings) + 1
        count_EE = np.full((size, size), SMOOTHING)
        unknown_EE = np.zeros((size, size), np.float32)
        scorer = cls(endings, unknown_EE)
        np.add.at(count_EE, scorer._find(pairs), 1)
        most_E1 = count_EE.max(1, keepdims=True)
        score_EE = np.log(count_EE / most_E1)
        return cls(endings, score_EE.astype(np.float32))

    def score(self, pairs: Sequence[Pair]) -> Floats:
        """Return the log-likelihood of each pair, [N], at most 0."""
        score_N: Floats = self.score_EE[self._find(pairs)]
        return score_N

    @classmethod
    def from_arrays(cls, arrays: Arrays) -> EndingScorer:
        """Return the scorer with these parameters."""
        endings = arrays["endings"]
        return cls(endings.tolist(), arrays["score"])

    def to_arrays(self) -> Arrays:
        """Return the parameters."""
        endings = np.array(self.endings, "<U1")
        return {"endings": endings, "score": self.score_EE}

    def _index(self, text: str) -> int:
        ending = find_ending(text)
        return self._indices.get(ending, 0)

    def _find(self, pairs: Sequence[Pair]) -> tuple[list[int], list[int]]:
        """Return the indices of the endings of both sides."""
        sources = [self._index(source) for source, _ in pairs]
        targets = [self._index(target) for _, target in pairs]
        return sources, targets


def find_ending(text: str) -> str:
    """Return the last character if it is a punctuation mark or a symbol, or an empty string."""
    last = text.rstrip()[-1:]
    if not last or last.isalnum() or not last.isprintable() or is_mark(last):
        return ""
    return last
