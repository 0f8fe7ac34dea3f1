"""Comparison of two systems on one test set.

sacreBLEU tests significance: paired bootstrap resampling (Koehn 2004) and paired approximate
randomization (Riezler and Maxwell 2005). Sentences are compared with chrF (Popović 2015), because
BLEU is not meaningful for single sentences.
"""

from __future__ import annotations

import math
import operator
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from nmt.core.console import counted, format_p, progress
from nmt.core.errors import DataError, UsageError
from nmt.core.registry import parse
from nmt.evaluate.line_metrics import paired_tests, score_lines, signature
from nmt.evaluate.metrics import (
    LOWER_IS_BETTER,
    MAX_RESAMPLED_LINES,
    SACREBLEU_METRICS,
    reference_lists,
)
from nmt.evaluate.test_sets import TestSet
from nmt.text.normalization import words, words_without_punctuation

LENGTH_LIMITS = (10, 20, 30, 50)
"""Upper limits of the source length buckets, in words. A last bucket has all longer sentences."""
COUNT_LIMITS = (0, 10, 100, 1000)
"""Upper limits of the buckets by training frequency of a sentence's rarest word."""
SIGNIFICANCE_LEVEL = 0.05
HUMAN_AGREEMENT = {"BLEU": (0.88333, 0.96639), "chrF2": (0.93, 1.11427)}
"""Maximum and slope of the logistic function of Kocmi et al. (2024, Navigating the Metrics Maze),
which maps the difference of two systems to the share of such pairs of systems that people rank as
the metric does. These are the values of the package mt-thresholds 1.0.4, which has none for TER."""
CHANCE = 0.5
Systems = list[tuple[str, Sequence[str]]]
"""Names and translations, as sacreBLEU reads them."""


@dataclass(frozen=True)
class System:
    """The name of a system and its translations of the test set."""

    name: str
    hypotheses: Sequence[str]


@dataclass(frozen=True)
class MetricResult:
    """Scores of both systems, and the p-values of their difference."""

    name: str
    first_score: float
    second_score: float
    first_half_interval: float
    second_half_interval: float
    bootstrap_p: float
    randomization_p: float
    signature: str

    @property
    def p(self) -> float:
        """The larger of the p-values of the two tests."""
        return max(self.bootstrap_p, self.randomization_p)

    @property
    def human_agreement(self) -> float | None:
        """How often people prefer the system with the better score, if two systems differ as much:
        a share of pairs of systems. None for a metric without an estimate and for equal scores."""
        difference = abs(self.second_score - self.first_score)
        if self.name not in HUMAN_AGREEMENT or not difference:
            return None
        maximum, slope = HUMAN_AGREEMENT[self.name]
        agreement = maximum / (1 + math.exp(-slope * difference))
        return max(agreement, CHANCE)  # the function is below chance where the data has few pairs

    @property
    def better(self) -> int:
        """Index of the system that is significantly better by both tests, or -1."""
        if self.p >= SIGNIFICANCE_LEVEL or self.first_score == self.second_score:
            return -1
        return int((self.second_score > self.first_score) != (self.name in LOWER_IS_BETTER))

    def as_dict(self) -> dict[str, Any]:
        """Return the result as JSON data; see `Comparison.as_dict`."""
        derived = {"better": self.better, "human_agreement": self.human_agreement}
        return asdict(self) | derived


@dataclass(frozen=True)
class Bucket:
    """Corpus chrF of both systems on a group of sentences, and their numbers of sentence-level
    wins."""

    name: str
    sentences: int
    first_score: float
    second_score: float
    first_wins: int
    second_wins: int


@dataclass(frozen=True)
class Difference:
    """Both translations of a sentence and their chrF."""

    line: int
    source: str
    references: list[str]
    first_translation: str
    second_translation: str
    first_score: float
    second_score: float


@dataclass(frozen=True)
class Comparison:
    """The results of comparing two systems on a test set."""

    test: str
    first_name: str
    second_name: str
    metrics: list[MetricResult]
    overall: Bucket
    by_length: list[Bucket]
    by_rarity: list[Bucket]
    """Empty if there are no training counts."""
    differences: list[Difference]
    """Sentences with the largest gains of the second system, then those with its largest losses."""

    def as_dict(self) -> dict[str, Any]:
        """Return the comparison as JSON data. `better` is 0 for the first system, 1 for the second,
        -1 for neither; `human_agreement` is null where it is unknown."""
        return asdict(self) | {"metrics": [metric.as_dict() for metric in self.metrics]}

    def page(self) -> str:
        """Return the comparison as a self-contained HTML page."""
        from nmt.core.templates import render

        return render("compare.html", comparison=self.as_dict(), format_p=format_p)


def compare(
    first: System,
    second: System,
    test: TestSet,
    metrics: Sequence[str] = ("bleu", "chrf"),
    *,
    resamples: int = 1000,
    num_examples: int = 10,
    counts: Counter[str] | None = None,
) -> Comparison:
    """Compare two systems.

    Args:
        first: the baseline.
        second: the system to compare with the baseline.
        test: sources and references.
        metrics: spec strings of the metrics to test.
        resamples: number of bootstrap resamples. Like sacreBLEU, the randomization test uses ten
            times as many trials.
        num_examples: number of sentences to list in each direction.
        counts: frequency of each source word in the training data.

    Raises:
        DataError: a system and the test set have different numbers of lines.
        UsageError: the resamples need too much memory.
    """
    for system in (first, second):
        if len(system.hypotheses) != len(test.sources):
            raise DataError(
                f"{system.name} has {counted(len(system.hypotheses), 'line')} and {test.name}"
                f" {len(test.sources):,}",
                "each line must be the translation of the source line with the same number",
            )
    check_resamples(resamples, test)
    sentences = _Sentences(first, second, test)
    lengths = [len(words(source)) for source in test.sources]
    by_rarity = []
    if counts is not None:
        rarest = [_rarest_count(source, counts) for source in test.sources]
        by_rarity = sentences.buckets(rarest, COUNT_LIMITS, "times")
    return Comparison(
        test.name,
        first.name,
        second.name,
        significance(first, second, test, metrics, resamples),
        sentences.bucket("all", range(len(lengths))),
        sentences.buckets(lengths, LENGTH_LIMITS, "words"),
        by_rarity,
        sentences.differences(num_examples),
    )


class _Sentences:
    """The chrF of both translations of each sentence, and of groups of sentences."""

    def __init__(self, first: System, second: System, test: TestSet) -> None:
        self.streams = (first.hypotheses, second.hypotheses)
        self.test = test
        self.chrf = SACREBLEU_METRICS["chrf"]()
        # Counting n-grams takes nearly all of the time; a group only adds the counts up.
        references = reference_lists(test.references)
        self.statistics = [
            self.chrf._extract_corpus_statistics(stream, references) for stream in self.streams
        ]
        self.scores = [[self._score([each]) for each in counts] for counts in self.statistics]
        self.gains = [after - before for before, after in zip(*self.scores, strict=True)]

    def _score(self, counts: list[Any]) -> float:
        return float(self.chrf._aggregate_and_compute(counts).score)

    def bucket(self, name: str, indices: Sequence[int]) -> Bucket:
        scores = [self._score([counts[i] for i in indices]) for counts in self.statistics]
        gains = [self.gains[i] for i in indices]
        losses = sum(gain < 0 for gain in gains)
        wins = sum(gain > 0 for gain in gains)
        return Bucket(name, len(indices), scores[0], scores[1], losses, wins)

    def buckets(self, values: Iterable[int], limits: Sequence[int], unit: str) -> list[Bucket]:
        groups = group(values, limits, unit)
        return [self.bucket(name, indices) for name, indices in groups.items()]

    def differences(self, num_examples: int) -> list[Difference]:
        """Return the largest gains, then the largest losses, of the second system."""
        order = sorted(range(len(self.gains)), key=lambda i: -self.gains[i])
        gains = [i for i in order[:num_examples] if self.gains[i] > 0]
        losses = [i for i in order[::-1][:num_examples] if self.gains[i] < 0]
        return [self._difference(i) for i in (*gains, *losses)]

    def _difference(self, i: int) -> Difference:
        streams = self.test.references
        references = [text for stream in streams if (text := stream[i]) is not None]
        before, after = (stream[i] for stream in self.streams)
        scores = (self.scores[0][i], self.scores[1][i])
        return Difference(i + 1, self.test.sources[i], references, before, after, *scores)


def _rarest_count(source: str, counts: Counter[str]) -> int:
    return min((counts[word] for word in words_without_punctuation(source)), default=0)


def check_resamples(resamples: int, test: TestSet) -> None:
    """Raise a UsageError if the resamples of a test set need too much memory."""
    max_resamples = MAX_RESAMPLED_LINES // 2 // len(test.sources)  # two systems
    if resamples > max_resamples:
        raise UsageError(
            f"{resamples:,} resamples of {len(test.sources):,} lines need too much memory",
            f"--resamples {max_resamples}" if max_resamples >= 100 else "use a smaller test set",
        )


def group(values: Iterable[int], limits: Sequence[int], unit: str) -> dict[str, list[int]]:
    """Map the name of each nonempty bucket to the indices of its values."""
    names = []
    low = 0
    for high in limits:
        names.append(f"{low} to {high} {unit}" if low < high else f"{high} {unit}")
        low = high + 1
    names.append(f"more than {limits[-1]} {unit}")
    buckets: dict[str, list[int]] = {name: [] for name in names}
    for i, value in enumerate(values):
        buckets[names[bisect_left(limits, value)]].append(i)
    return {name: indices for name, indices in buckets.items() if indices}


def significance(
    first: System, second: System, test: TestSet, names: Sequence[str], resamples: int
) -> list[MetricResult]:
    """Score two systems and test the significance of the differences; see `compare` for the
    arguments."""
    references = reference_lists(test.references)
    systems: Systems = [
        ("A", list(first.hypotheses)),
        ("B", list(second.hypotheses)),
    ]
    with progress(2 * len(names), "testing significance", " tests") as bar:
        results = []
        for name in names:
            if name in SACREBLEU_METRICS:
                results.append(_test_metric(name, systems, references, resamples, bar))
            else:
                results.append(_test_line_metric(name, first, second, test, resamples))
                bar.update(2)
        return results


def _test_line_metric(
    spec: str, first: System, second: System, test: TestSet, resamples: int
) -> MetricResult:
    first_N, second_N = (
        score_lines(spec, test.sources, system.hypotheses, test.references)
        for system in (first, second)
    )
    scores = float(first_N.mean()), float(second_N.mean())
    tests = paired_tests(first_N, second_N, resamples)
    return MetricResult(parse(spec)[0], *scores, *tests, signature(spec))


def _count_different(name: str, systems: Systems, references: list[list[Any]]) -> int:
    """Return the number of sentences whose statistics differ between two systems."""
    metric = SACREBLEU_METRICS[name]()
    first, second = (metric._extract_corpus_statistics(lines, references) for _, lines in systems)
    return sum(map(operator.ne, first, second))


def _test_metric(
    name: str,
    systems: Systems,
    references: list[list[Any]],
    resamples: int,
    bar: Any,
) -> MetricResult:
    from sacrebleu.significance import PairedTest

    def run(test_type: str, n_samples: int) -> Any:
        metrics = {name: SACREBLEU_METRICS[name]()}
        test = PairedTest(systems, metrics, references, test_type=test_type, n_samples=n_samples)
        bar.update()
        return test()

    signatures, bootstrap = run("bs", resamples)
    randomization = run("ar", 10 * resamples)[1]
    ((label, signature),) = signatures.items()
    a, b = bootstrap[label]
    p_values = (1.0, 1.0)
    if a.score != b.score:
        # Exchanging all or none of the sentences that count gives the observed difference again.
        # sacreBLEU counts only larger ones, so its p-value approaches 0 if few sentences count.
        num_different = _count_different(name, systems, references)
        randomization_p = float(randomization[label][1].p_value) + 2.0 ** (1 - num_different)
        p_values = (float(b.p_value), min(1.0, randomization_p))
    scores = (float(a.score), float(b.score), float(a.ci), float(b.ci))
    return MetricResult(label, *scores, *p_values, str(signature))
