"""Scores of sentence pairs in noisy corpora, learned from the corpus itself, without labels.

    pairs = sample_pairs(corpus)
    scorers = fit_scorers(pairs)
    columns = {name: scorer.score(pairs) for name, scorer in scorers.items()}
    combination = Combination.fit(columns)
    save(path, scorers, combination)

A high score is good. `alignment` finds pairs that do not translate each other, `language` text in
the language of the other side, `length` and `ending` targets that are cut off. `combine` of a
`Combination` returns one score, also with columns of other scorers, such as `dual`.
"""

from nmt.data.filter.alignment import AlignmentScorer
from nmt.data.filter.combination import Combination
from nmt.data.filter.ending import EndingScorer
from nmt.data.filter.language import LanguageScorer
from nmt.data.filter.length import LengthScorer
from nmt.data.filter.sampling import sample_pairs
from nmt.data.filter.scorer import PairScorer
from nmt.data.filter.storage import SCORERS, fit_scorers, load, save

__all__ = [
    "SCORERS",
    "AlignmentScorer",
    "Combination",
    "EndingScorer",
    "LanguageScorer",
    "LengthScorer",
    "PairScorer",
    "fit_scorers",
    "load",
    "sample_pairs",
    "save",
]
