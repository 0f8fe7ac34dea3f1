"""Findings of all checks, from the records of the pairs. Shape suffix: N pairs of all corpora."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from nmt.core.console import counted
from nmt.data.arrays import Bools
from nmt.data.check import checks
from nmt.data.check.checks import CHECKS, Check
from nmt.data.check.corpus import TolerantReader
from nmt.data.check.duplicates import Repetition, find_duplicates
from nmt.data.check.encoding import repair_pair
from nmt.data.check.feature_files import Features
from nmt.data.check.misalignment import Region
from nmt.data.check.overlap_index import OverlapIndex
from nmt.data.check.report import Example, Finding
from nmt.data.pairs import Pair

if TYPE_CHECKING:
    from nmt.data.sources import Split

PART_SIZE = 1 << 20
"""Pairs that are searched for examples at a time."""
DUPLICATE_CHECKS = frozenset(
    check.name for check in (checks.DUPLICATE, checks.NEAR_DUPLICATE, checks.MULTIPLE_TARGETS)
)
MAX_EXAMPLE_CHARS = 200
"""Maximum length of a side of an example."""


@dataclass(frozen=True)
class CheckedCorpus:
    """A corpus and the place of its pairs, which are indexed consecutively over all corpora."""

    split: Split
    start: int
    end: int
    line_count_error: str
    """Error message if one side has more lines than the other."""
    misaligned: Sequence[Region]
    """The misaligned regions."""

    @property
    def name(self) -> str:
        """Name of the corpus."""
        return self.split.name

    def __len__(self) -> int:
        return self.end - self.start

    def line(self, i: int) -> int:
        """Return the line of a pair, from 1."""
        return i - self.start + 1

    def read(self, indices: Sequence[int]) -> Iterator[tuple[int, Pair]]:
        """Yield the pairs of these indices that are in this corpus, up to the last one."""
        remaining = {i for i in indices if self.start <= i < self.end}
        if not remaining:
            return
        for i, pair in enumerate(TolerantReader(self.split), self.start):
            if i in remaining:
                yield i, pair
                remaining.remove(i)
                if not remaining:
                    return


@dataclass
class FindingCollector:
    """Detects problems that involve several pairs and collects the findings of all checks."""

    features: Features
    corpora: Sequence[CheckedCorpus]
    overlap_index: OverlapIndex
    ignored: frozenset[str]
    max_examples: int
    scratch: Path
    """Path of a temporary database."""

    def __post_init__(self) -> None:
        self.problems_N = np.array(self.features["problems"])
        self.misaligned_N = np.zeros(len(self.problems_N), bool)
        self.repetitions: dict[Check, Repetition] = {}
        """For each check for duplicates, the pairs that repeat earlier ones."""

    def collect(self) -> list[Finding]:
        """Return the findings of all checks."""
        if not self.ignored >= DUPLICATE_CHECKS:
            self._mark_duplicates()
        for check in CHECKS:
            if check.name in self.ignored:
                self.problems_N &= np.uint16(~check.bit & 0xFFFF)
        findings = [*self._unequal_line_counts(), *self._misaligned(), *self._pair_findings()]
        return [
            finding
            for finding in findings
            if finding.count and finding.check.name not in self.ignored
        ]

    def _unequal_line_counts(self) -> Iterator[Finding]:
        finding = Finding(checks.UNEQUAL_LINE_COUNTS)
        for corpus in self.corpora:
            if corpus.line_count_error:
                finding.count += 1
                finding.examples.append(
                    Example(corpus.name, len(corpus) + 1, detail=corpus.line_count_error)
                )
        yield finding

    def _misaligned(self) -> Iterator[Finding]:
        """Mark the misaligned regions of each corpus in `misaligned_N`."""
        finding = Finding(checks.MISALIGNED)
        for corpus in self.corpora:
            is_misaligned_N = self.misaligned_N[corpus.start : corpus.end]
            for region in corpus.misaligned:
                is_misaligned_N[region.start : region.end] = True
                first_line = region.start + 1
                detail = (
                    f"from line {first_line:,} to {region.end:,} {_describe_shift(region.shift)}"
                )
                finding.examples.append(Example(corpus.name, first_line, detail=detail))
        finding.count = int(self.misaligned_N.sum())
        yield finding

    def _mark_duplicates(self) -> None:
        mask_N = self.problems_N & checks.BLANK.bit == 0
        self.repetitions = find_duplicates(self.features, mask_N, self.ignored, self.scratch)
        for check, repetition in self.repetitions.items():
            self.problems_N[repetition.pair_M] |= check.bit

    def _pair_findings(self) -> list[Finding]:
        """Count the problems of single pairs, and read the first pairs of each check again as
        examples."""
        findings = []
        findings_of_pair: dict[int, list[Finding]] = {}
        for check in CHECKS:
            has_problem_N = self.problems_N & check.bit > 0
            finding = Finding(check, int(has_problem_N.sum()))
            findings.append(finding)
            for i in _first_true(has_problem_N, self.max_examples):
                findings_of_pair.setdefault(i, []).append(finding)
        for corpus in self.corpora:
            for i, pair in corpus.read(list(findings_of_pair)):
                source, target = [side[:MAX_EXAMPLE_CHARS] for side in pair]
                for finding in findings_of_pair[i]:
                    detail = self._detail(finding.check, i, pair)
                    finding.examples.append(
                        Example(corpus.name, corpus.line(i), source, target, detail)
                    )
        return findings

    def _detail(self, check: Check, i: int, pair: Pair) -> str:
        """Return the place that a pair is equal or similar to, or an empty string for other
        checks."""
        if check in (checks.TEST_OVERLAP, checks.NEAR_TEST_OVERLAP):
            repaired = repair_pair(pair, int(self.problems_N[i]), self.ignored)
            return self.overlap_index.place(repaired)
        if check not in self.repetitions:
            return ""
        earlier = self.repetitions[check].first(i)
        [corpus] = [corpus for corpus in self.corpora if corpus.start <= earlier < corpus.end]
        line = f"see line {corpus.line(earlier):,}"
        return f"{line} of {corpus.name}" if len(self.corpora) > 1 else line


def _first_true(is_true_N: Bools, max_number: int) -> list[int]:
    """Return the first indices that are true."""
    found: list[int] = []
    for start in range(0, len(is_true_N), PART_SIZE):
        if len(found) >= max_number:
            break
        inside = np.flatnonzero(is_true_N[start : start + PART_SIZE])
        found += (start + inside).tolist()
    return found[:max_number]


def _describe_shift(shift: int | None) -> str:
    if shift is None:
        return "no target fits its source"
    direction = "below" if shift > 0 else "above"
    return f"the target is {counted(abs(shift), 'line')} {direction} its source"
