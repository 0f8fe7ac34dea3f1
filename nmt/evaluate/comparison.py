"""Two systems on one test set: which is better, how surely, and where.

Significance is sacrebleu's: paired bootstrap resampling (Koehn 2004) and paired approximate randomization (Riezler and
Maxwell 2005). Single sentences are compared by chrF (Popović 2015), which BLEU is too coarse for.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from nmt.console import progress
from nmt.errors import DataError, UsageError
from nmt.evaluate.metrics import MAX_RESAMPLED
from nmt.evaluate.test_sets import TestSet

LENGTHS = (10, 20, 30, 50)
"""Source words up to which a sentence belongs to a bucket; the last is for all that are longer."""
COUNTS = (0, 10, 100, 1000)
"""How often the training text has a sentence's rarest word, up to which it belongs to a bucket."""
LEVEL = 0.05
"""Differences that chance makes with less than this probability are called significant."""


@dataclass(frozen=True)
class System:
    """A name and its translations of the test set."""

    name: str
    hypotheses: Sequence[str]


@dataclass(frozen=True)
class MetricResult:
    """One metric: both scores, and how probable a difference like theirs is by chance."""

    name: str
    first: float
    second: float
    first_confidence: float
    second_confidence: float
    bootstrap_p: float
    randomization_p: float
    signature: str

    @property
    def better(self) -> int:
        """0 or 1: the system that is better by both tests; -1: neither is."""
        if max(self.bootstrap_p, self.randomization_p) >= LEVEL or self.first == self.second:
            return -1
        return int((self.second > self.first) != (self.name == "TER"))


@dataclass(frozen=True)
class Bucket:
    """The sentences of a kind: how many, both systems' chrF over them, and whose single sentences are better."""

    name: str
    sentences: int
    first: float
    second: float
    first_wins: int
    second_wins: int


@dataclass(frozen=True)
class Difference:
    """A sentence, both translations and their chrF."""

    line: int
    source: str
    references: list[str]
    first: str
    second: str
    first_score: float
    second_score: float


@dataclass(frozen=True)
class Comparison:
    """All that is known of two systems on a test set."""

    test: str
    first: str
    second: str
    metrics: list[MetricResult]
    overall: Bucket
    by_length: list[Bucket]
    by_rarity: list[Bucket]
    """Empty where no training text is known."""
    differences: list[Difference]
    """Where the second is most better, then where it is most worse."""

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON has it; `better` is 0 for the first system, 1 for the second, -1 where neither is."""
        found = asdict(self)
        for entry, metric in zip(found["metrics"], self.metrics, strict=True):
            entry["better"] = metric.better
        return found

    def page(self) -> str:
        """Return it as an HTML page that needs nothing else."""
        from nmt.templates import render

        return render("compare.html", comparison=self.as_dict())


def compare(
    first: System,
    second: System,
    test: TestSet,
    metrics: Sequence[str] = ("bleu", "chrf"),
    *,
    resamples: int = 1000,
    shown: int = 10,
    counts: Counter[str] | None = None,
) -> Comparison:
    """Compare two systems.

    Args:
        first: the baseline.
        second: what is compared with it.
        test: sources and references.
        metrics: bleu, chrf, ter.
        resamples: draws of the bootstrap; the randomization makes ten times as many trials, as sacrebleu does.
        shown: sentences to show in each direction.
        counts: how often the training text has each source word.

    Raises:
        DataError: a system has not as many lines as the test set.
        UsageError: too many draws for the memory they take.
    """
    for system in (first, second):
        if len(system.hypotheses) != len(test.sources):
            lines = f"{system.name} has {len(system.hypotheses):,} lines and {test.name} {len(test.sources):,}"
            raise DataError(lines, "line n must be the translation of line n")
    most = MAX_RESAMPLED // 2 // len(test.sources)  # 95 bytes for each line drawn
    if resamples > most:
        raise UsageError(
            f"{resamples:,} draws of {len(test.sources):,} lines take too much memory",
            f"--resamples {most}" if most >= 100 else "compare them on a smaller test set",
        )
    scores = [_sentence_scores(system.hypotheses, test.references) for system in (first, second)]

    def bucket(name: str, numbers: Sequence[int]) -> Bucket:
        both = [_corpus_chrf([system.hypotheses[i] for i in numbers], test.references, numbers)
                for system in (first, second)]  # fmt: skip
        wins = [sum(scores[mine][i] > scores[1 - mine][i] for i in numbers) for mine in (0, 1)]
        return Bucket(name, len(numbers), both[0], both[1], wins[0], wins[1])

    words = [source.split() for source in test.sources]
    lengths = _buckets(map(len, words), LENGTHS, "words")
    rarities = _buckets((min((counts[word] for word in line), default=0) for line in words), COUNTS, "times") \
        if counts is not None else {}  # fmt: skip
    order = sorted(range(len(words)), key=lambda i: scores[0][i] - scores[1][i])
    extremes = [i for i in order[:shown] if scores[1][i] > scores[0][i]]
    extremes += [i for i in reversed(order[-shown:]) if scores[1][i] < scores[0][i]] if shown else []
    return Comparison(
        test.name, first.name, second.name, _significance(first, second, test, metrics, resamples),
        bucket("all", range(len(words))),
        [bucket(name, numbers) for name, numbers in lengths.items()],
        [bucket(name, numbers) for name, numbers in rarities.items()],
        [
            Difference(
                i + 1, test.sources[i], [stream[i] for stream in test.references], first.hypotheses[i],
                second.hypotheses[i], scores[0][i], scores[1][i],
            )
            for i in extremes
        ],
    )  # fmt: skip


def word_counts(lines: Iterable[str], wanted: Collection[str]) -> Counter[str]:
    """Count some words in a training text, split at white space as the test set's are."""
    counts: Counter[str] = Counter()
    for line in lines:
        counts.update(word for word in line.split() if word in wanted)
    return counts


def _buckets(values: Iterable[int], limits: Sequence[int], unit: str) -> dict[str, list[int]]:
    """Return the numbers of the sentences of each bucket, empty ones left out."""
    spans = zip((0, *(limit + 1 for limit in limits)), limits, strict=False)
    names = [f"{low} to {high} {unit}" if low < high else f"{high} {unit}" for low, high in spans]
    found: dict[str, list[int]] = {name: [] for name in (*names, f"more than {limits[-1]} {unit}")}
    for number, value in enumerate(values):
        place = next((i for i, limit in enumerate(limits) if value <= limit), len(limits))
        found[[*found][place]].append(number)
    return {name: numbers for name, numbers in found.items() if numbers}


def _sentence_scores(hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> list[float]:
    from sacrebleu.metrics.chrf import CHRF

    metric = CHRF()
    streams = zip(*references, strict=True)
    return [metric.sentence_score(text, list(refs)).score for text, refs in zip(hypotheses, streams, strict=True)]


def _corpus_chrf(hypotheses: Sequence[str], references: Sequence[Sequence[str]], numbers: Sequence[int]) -> float:
    from nmt.evaluate.metrics import chrf

    return chrf(hypotheses, [[stream[i] for i in numbers] for stream in references]).value


def _significance(
    first: System, second: System, test: TestSet, names: Sequence[str], resamples: int
) -> list[MetricResult]:
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF
    from sacrebleu.metrics.ter import TER
    from sacrebleu.significance import PairedTest

    logging.getLogger("sacrebleu").setLevel(logging.WARNING)
    same = list(first.hypotheses) == list(second.hypotheses)
    makers: dict[str, Callable[[], Any]] = {"bleu": BLEU, "chrf": CHRF, "ter": TER}
    references = [list(stream) for stream in test.references]
    systems: list[tuple[str, Sequence[str]]] = [("A", list(first.hypotheses)), ("B", list(second.hypotheses))]

    def tested(name: str, kind: str, samples: int) -> tuple[str, Any, list[Any]]:
        test = PairedTest(systems, {name: makers[name]()}, references, test_type=kind, n_samples=samples)
        signatures, found = test()
        ((called, signature),) = signatures.items()
        return called, signature, found[called]

    found = []
    with progress(2 * len(names), "testing significance", " tests") as bar:
        for name in names:
            called, signature, (one, other) = tested(name, "bs", resamples)
            bar.update()
            *_, (_, swapped) = tested(name, "ar", 10 * resamples)
            bar.update()
            # Of equal systems sacrebleu finds every draw as extreme as theirs, and says the opposite.
            p_values = (1.0, 1.0) if same else (float(other.p_value), float(swapped.p_value))
            found.append(
                MetricResult(
                    called, float(one.score), float(other.score), float(one.ci), float(other.ci),
                    *p_values, str(signature),
                )
            )  # fmt: skip
    return found
