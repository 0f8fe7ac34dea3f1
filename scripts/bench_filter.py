#!/usr/bin/env python
"""Make a noisy corpus from a clean one, and measure how well the scores of `nmt.data.filter` and
`nmt.jobs.dual_scorer` separate good pairs from bad ones.

    scripts/bench_filter.py europarl.en.gz europarl.de.gz
    scripts/bench_filter.py corpus.en corpus.de --forward en-de --reverse de-en --dual-pairs 3000

A cell is the probability that a good pair has a higher score than a bad one of this kind (AUC). The
scorers learn from the noisy corpus, without labels. Pairs per second are those of one core: the
number of pairs divided by the CPU time of this process, with OMP_NUM_THREADS=1.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np

import benchmark
from command_errors import error_messages
from nmt.data.arrays import Bools, Doubles, Floats
from nmt.data.filter import Combination, PairScorer, fit_scorers, sample_pairs
from nmt.data.pairs import Pair, read_pairs
from nmt.jobs.dual_scorer import DualScorer

MIN_PART = 0.3
MAX_PART = 0.7
"""Minimum and maximum part of the words of a truncated target."""


@dataclass(frozen=True)
class NoisyPair:
    """A pair and the kind of its noise; empty if it is good."""

    pair: Pair
    kind: str


class NoiseMaker:
    """Makes bad pairs from good ones."""

    def __init__(self, pairs: Sequence[Pair], seed: int) -> None:
        self.pairs = pairs
        self.rng = random.Random(seed)
        self.kinds: dict[str, Callable[[Pair], Pair]] = {
            "shuffled": self.shuffled,
            "truncated": self.truncated,
            "copied": self.copied,
            "half-translated": self.half_translated,
        }

    def make(self, share: float) -> list[NoisyPair]:
        """Return all pairs, of which a share is bad, with all kinds in equal parts.

        A target of a single word can be neither truncated nor half translated.
        """
        noisy = []
        for pair in self.pairs:
            kind = ""
            if self.rng.random() < share:
                is_long = len(pair[1].split()) > 1
                kinds = list(self.kinds) if is_long else ["shuffled", "copied"]
                kind = self.rng.choice(kinds)
                pair = self.kinds[kind](pair)
            noisy.append(NoisyPair(pair, kind))
        return noisy

    def shuffled(self, pair: Pair) -> Pair:
        """Return the source with a random target."""
        index = self.rng.randrange(len(self.pairs))
        return pair[0], self.pairs[index][1]

    def truncated(self, pair: Pair) -> Pair:
        """Return the source with the first words of the target."""
        words = pair[1].split()
        part = self.rng.uniform(MIN_PART, MAX_PART)
        length = round(part * len(words))
        length = min(max(length, 1), len(words) - 1)
        return pair[0], " ".join(words[:length])

    def copied(self, pair: Pair) -> Pair:
        """Return the source twice."""
        return pair[0], pair[0]

    def half_translated(self, pair: Pair) -> Pair:
        """Return the source with the first half of the target and the second half of the source."""
        source_words = pair[0].split()
        target_words = pair[1].split()
        source_middle = len(source_words) // 2
        target_middle = len(target_words) // 2
        words = target_words[:target_middle] + source_words[source_middle:]
        return pair[0], " ".join(words)


def read_shuffled(src: Path, tgt: Path, seed: int, max_pairs: int | None) -> list[Pair]:
    """Return a random selection of the pairs of which no side is blank."""
    corpus = []
    for source, target in read_pairs(src, tgt):
        if source.strip() and target.strip():
            corpus.append((source, target))
    rng = random.Random(seed)
    rng.shuffle(corpus)
    return corpus[:max_pairs]


def auc(good: Floats, bad: Floats) -> float:
    """Return the probability that a good score is higher than a bad one, from the ranks (Mann and
    Whitney 1947). Equal scores have their mean rank."""
    scores = np.concatenate([good, bad])
    _, group_N, count_G = np.unique(scores, return_inverse=True, return_counts=True)
    last_rank_G = np.cumsum(count_G)
    mean_rank_G = last_rank_G - (count_G - 1) / 2
    rank_N = mean_rank_G[group_N]
    num_good = len(good)
    min_rank_sum = num_good * (num_good + 1) / 2
    wins: Doubles = rank_N[:num_good].sum() - min_rank_sum
    return float(wins / (num_good * len(bad)))


def main() -> None:
    """Make the corpus, fit the scorers and print the table."""
    parser = benchmark.parser(__doc__)
    parser.add_argument("src", type=Path)
    parser.add_argument("tgt", type=Path)
    parser.add_argument("--pairs", type=int, help="Maximum number of pairs.")
    parser.add_argument("--noise", type=float, default=0.3, help="Share of bad pairs.")
    parser.add_argument("--forward", help="Model from the source to the target language.")
    parser.add_argument("--reverse", help="Model from the target to the source language.")
    parser.add_argument(
        "--dual-pairs", type=int, default=3000, help="Number of pairs to score with the models."
    )
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    corpus = read_shuffled(arguments.src, arguments.tgt, arguments.seed, arguments.pairs)
    noisy = NoiseMaker(corpus, arguments.seed).make(arguments.noise)
    pairs = [each.pair for each in noisy]
    start = time.process_time()
    scorers: dict[str, PairScorer] = {**fit_scorers(sample_pairs(pairs))}
    seconds = time.process_time() - start
    print(f"{len(pairs):,} pairs, {arguments.noise:.0%} bad; fitted in {seconds:.1f} s\n")
    benchmark.print_head("score", *NoiseMaker([], 0).kinds, "all", "pairs/s")
    columns = _print_scores(noisy, scorers)
    _print_combination("combined", noisy, columns)
    if arguments.forward and arguments.reverse:
        noisy = list(islice(noisy, arguments.dual_pairs))
        dual = {"dual": DualScorer.load(arguments.forward, arguments.reverse)}
        first_columns = {name: score_N[: len(noisy)] for name, score_N in columns.items()}
        columns = first_columns | _print_scores(noisy, dual)
        _print_combination("combined with dual", noisy, columns)


def _print_scores(
    noisy: Sequence[NoisyPair], scorers: Mapping[str, PairScorer]
) -> dict[str, Floats]:
    """Print a row for each score, and return the scores."""
    pairs = [each.pair for each in noisy]
    columns = {}
    for name, scorer in scorers.items():
        start = time.process_time()
        columns[name] = scorer.score(pairs)
        seconds = time.process_time() - start
        _print_row(name, noisy, columns[name], f"{len(pairs) / seconds:,.0f}")
    return columns


def _print_combination(
    name: str, noisy: Sequence[NoisyPair], columns: Mapping[str, Floats]
) -> None:
    combination = Combination.fit(columns)
    _print_row(name, noisy, combination.combine(columns), "")


def _print_row(name: str, noisy: Sequence[NoisyPair], score_N: Floats, speed: str) -> None:
    kind_N = np.array([each.kind for each in noisy])
    good = score_N[kind_N == ""]
    cells = [name]
    for kind in NoiseMaker([], 0).kinds:
        cells.append(_cell(good, score_N, kind_N == kind))
    cells.append(_cell(good, score_N, kind_N != ""))
    benchmark.print_row([*cells, speed])


def _cell(good: Floats, score_N: Floats, is_bad_N: Bools) -> str:
    return f"{auc(good, score_N[is_bad_N]):.4f}" if is_bad_N.any() else ""


if __name__ == "__main__":
    with error_messages():
        main()
