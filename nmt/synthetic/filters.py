"""Filters of translated text. Each pair that is dropped is counted under the name of the filter
that dropped it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from nmt.core.errors import DataError
from nmt.data.check.checks import BITS, CHECKS
from nmt.data.check.run import repair, run_checks
from nmt.data.clean import cleaning_pipeline
from nmt.data.pairs import Pair, read_lines, read_pairs, write_pairs
from nmt.data.sources import Split
from nmt.evaluate.metrics import SENTENCE_METRICS
from nmt.text.numbers import equivalent_pattern
from nmt.translation import content
from nmt.translation.checks import find_problems
from nmt.translation.segments import FixedSpan, Line, protected_spans

PROBLEMS = (
    "missing",
    "repeated",
    "misplaced",
    "empty",
    "repetition",
    "too-short",
    "too-long",
    "untranslated",
    "wrong-language",
    "lost-negation",
    "replacement-characters",
    *content.NAMES,
)
"""Problems that `nmt.translation.checks.find_problems` reports without a glossary."""
LOW_SCORE = "low-score"
UNSUITABLE_CHECKS = ("misaligned", "unequal-line-counts")
"""Checks that do not apply to translated lines."""
NAMES = (
    *dict.fromkeys(
        (*PROBLEMS, *(check.name for check in CHECKS if check.name not in UNSUITABLE_CHECKS))
    ),
)
"""Names of the filters that can be switched off."""
CLEANING = ("length(max=200)", "ratio(max=3.0)", "drop_identical")


@dataclass(frozen=True)
class Candidate:
    """A translation and, if it is needed, its log-probability per token, in nats."""

    text: str
    score: float | None


@dataclass(frozen=True)
class Filters:
    """Options of the filters."""

    languages: tuple[str, str]
    """Source and target language of the teacher."""
    is_reversed: bool
    """Whether the translations are the source side of the corpus, as in back-translation."""
    select: str = ""
    """Keep only the candidate that is closest to the reference by this metric; empty: all of
    them."""
    min_score: float | None = None
    """Minimum log-probability per token."""
    clean: tuple[str, ...] = CLEANING
    """Cleaning steps."""
    ignore: tuple[str, ...] = ()
    """Filters of `NAMES` that are switched off."""

    @property
    def corpus_languages(self) -> tuple[str, str]:
        """Source and target language of the corpus."""
        return self.languages[::-1] if self.is_reversed else self.languages

    def apply(
        self,
        sources: Path,
        references: Path,
        candidates: Path,
        outputs: tuple[Path, Path],
        tests: Sequence[tuple[str, Sequence[Pair]]] = (),
    ) -> tuple[int, Counter[str]]:
        """Write the pairs that pass all filters; return their number and the pairs that each filter
        dropped.

        Args:
            sources: file with the text that was translated.
            references: file with its references.
            candidates: file with a line of `format_candidates` for each line of the text.
            outputs: files for the source and the target side of the corpus.
            tests: name and pairs of each test set that the corpus must not overlap with.

        Raises:
            DataError: no pair is left.
        """
        dropped: Counter[str] = Counter()
        cleaned = cleaning_pipeline(
            self._pairs(sources, references, candidates, dropped), self.clean
        )
        draft = (
            outputs[0].with_name(f"{outputs[0].name}.draft"),
            outputs[1].with_name(f"{outputs[1].name}.draft"),
        )
        num_pairs = write_pairs(*draft, cleaned)
        dropped.update(cleaned.dropped)
        if num_pairs:
            num_pairs = self._check(draft, outputs, tests, dropped)
        for path in draft:
            path.unlink()
        if not num_pairs:
            names = ", ".join(f"{name} {count:,}" for name, count in dropped.most_common() if count)
            raise DataError(
                f"no pair is left after filtering; dropped: {names}",
                "change --clean or --min-score, or leave out a filter with --ignore, and continue"
                " with --resume",
            )
        return num_pairs, +dropped

    def _pairs(
        self, sources: Path, references: Path, candidates: Path, dropped: Counter[str]
    ) -> Iterator[Pair]:
        """Yield the pairs without problems in the direction of the corpus."""
        lines = zip(
            read_lines(sources), read_lines(references), read_lines(candidates), strict=True
        )
        for source, reference, line in lines:
            n_best = [Candidate(*each) for each in json.loads(line)]
            for candidate in [closest(n_best, reference, self.select)] if self.select else n_best:
                if problem := self._problem(source, candidate):
                    dropped[problem] += 1
                else:
                    yield (candidate.text, source) if self.is_reversed else (source, candidate.text)

    def _problem(self, source: str, candidate: Candidate) -> str:
        """Return the name of the first filter that drops a translation, or an empty string."""
        if self.min_score is not None and (
            candidate.score is None or candidate.score < self.min_score
        ):
            return LOW_SCORE
        spans = tuple(
            span for span in protected_spans(source) if not _is_reformatted(span, candidate.text)
        )
        problems = find_problems(Line(source, fixed=spans), candidate.text, self.languages)
        names = (problem.partition(":")[0] for problem in problems)
        return next((name for name in names if name not in self.ignore), "")

    def _check(
        self,
        draft: tuple[Path, Path],
        outputs: tuple[Path, Path],
        tests: Sequence[tuple[str, Sequence[Pair]]],
        dropped: Counter[str],
    ) -> int:
        """Write the pairs that `nmt data check --fix` keeps, and count the others by their most
        severe problem."""
        corpus = Split(str(draft[0]), "", partial(read_pairs, *draft))
        ignore = (*UNSUITABLE_CHECKS, *self.ignore)
        report = run_checks([corpus], tests, self.corpus_languages, ignore=ignore, max_examples=0)
        remaining_N = report.dropped_N
        for check in CHECKS:
            if check.fix == "drop" and check.name in BITS:
                is_dropped_N = remaining_N & (report.problems_N & BITS[check.name] > 0)
                dropped[check.name] += int(is_dropped_N.sum())
                remaining_N = remaining_N & ~is_dropped_N
        return write_pairs(*outputs, repair([corpus], report))


def format_candidates(candidates: Iterable[Candidate]) -> str:
    """Return a line of JSON with the candidates of a sentence, best first."""
    return json.dumps([[each.text, each.score] for each in candidates], ensure_ascii=False)


def closest(candidates: Sequence[Candidate], reference: str, metric: str) -> Candidate:
    """Return the candidate that is closest to the reference (Kim and Rush 2016, section 3.3)."""
    sentence_metric = SENTENCE_METRICS[metric]
    scores = sentence_metric([each.text for each in candidates], [[reference] * len(candidates)])
    return candidates[scores.index(max(scores))]


def _is_reformatted(span: FixedSpan, text: str) -> bool:
    """Return whether a translation has a number in another format, such as 1.000 for 1,000."""
    pattern = equivalent_pattern(span.translation)
    return bool(pattern and pattern.search(text))
