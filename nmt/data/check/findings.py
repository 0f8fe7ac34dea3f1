"""Findings of all checks, from the records of the pairs. Shape suffix: N pairs of all corpora."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from nmt.data.check import checks
from nmt.data.check.checks import BITS, CHECKS
from nmt.data.check.corpus import TolerantReader
from nmt.data.check.duplicates import find_duplicates
from nmt.data.check.features import Records
from nmt.data.check.lengths import length_deviations
from nmt.data.check.misalignment import find_misaligned_regions
from nmt.data.check.overlap_index import OverlapIndex
from nmt.data.check.report import Example, Finding
from nmt.data.pairs import Pair

if TYPE_CHECKING:
    from nmt.data.sources import Split

MIN_FACTOR, MIN_DEVIATIONS = 1.5, 4.0
"""A length ratio is unusual if it differs from the median of pairs of similar length by more than this factor and by
more than this number of standard deviations."""
MAX_EXAMPLE_CHARS = 200
"""Maximum length of a side of an example."""


class FindingCollector:
    """Detects problems that involve several pairs and collects the findings of all checks.

    Pairs are indexed consecutively over all corpora.
    """

    def __init__(
        self,
        records: Records,
        corpora: Sequence[Split],
        sizes: Sequence[int],
        overlap_index: OverlapIndex,
        *,
        ignore: Iterable[str],
        max_examples: int,
    ) -> None:
        self.records, self.corpora, self.sizes, self.overlap_index = records, corpora, sizes, overlap_index
        self.ignore, self.max_examples = set(ignore), max_examples
        self.starts = [0, *itertools.accumulate(sizes)]
        self.problems_N = np.array(records["problems"])
        self.misaligned_N = np.zeros(len(records), bool)
        self.details: dict[str, Callable[[int], str]] = {}
        """For each check, a function from a pair index to the detail of an example."""

    def collect(self, line_count_errors: Sequence[str]) -> list[Finding]:
        """Return the findings of all checks; `line_count_errors` has an error message or "" for each corpus."""
        for start, end in pairwise(self.starts):
            _mark_length_ratios(self.records[start:end], self.problems_N[start:end])
        self._mark_duplicates()
        for check in (checks.TEST_OVERLAP, checks.NEAR_TEST_OVERLAP):
            self.details[check.name] = lambda i: self.overlap_index.places[int(self.records["test"][i])]
        for name in self.ignore & BITS.keys():
            self.problems_N &= np.uint32(~BITS[name] & 0xFFFFFFFF)
        findings = []
        if checks.UNEQUAL_LINE_COUNTS.name not in self.ignore:
            findings += self._unequal_line_counts(line_count_errors)
        if checks.MISALIGNED.name not in self.ignore:
            findings += self._misaligned()
        return findings + self._pair_findings()

    def _unequal_line_counts(self, messages: Sequence[str]) -> list[Finding]:
        corpora = zip(self.corpora, self.sizes, messages, strict=True)
        examples = [Example(corpus.name, size + 1, "", "", message) for corpus, size, message in corpora if message]
        return [Finding(checks.UNEQUAL_LINE_COUNTS, len(examples), examples)] if examples else []

    def _misaligned(self) -> list[Finding]:
        """Find the misaligned regions of each corpus and mark them in `misaligned_N`."""
        examples = []
        for corpus, (start, end) in zip(self.corpora, pairwise(self.starts), strict=True):
            for region in find_misaligned_regions(self.records[start:end]):
                self.misaligned_N[start + region.start : start + region.end] = True
                detail = f"from line {region.start + 1:,} to {region.end:,} {_describe_shift(region.shift)}"
                examples.append(Example(corpus.name, region.start + 1, "", "", detail))
        return [Finding(checks.MISALIGNED, int(self.misaligned_N.sum()), examples)] if examples else []

    def _mark_duplicates(self) -> None:
        duplicates = find_duplicates(self.records, self.problems_N & BITS[checks.BLANK.name] == 0)
        for check, earlier_N in (
            (checks.DUPLICATE, duplicates.exact_N),
            (checks.NEAR_DUPLICATE, duplicates.near_N),
            (checks.MULTIPLE_TARGETS, duplicates.same_source_N),
        ):
            self.problems_N[earlier_N >= 0] |= BITS[check.name]
            self.details[check.name] = lambda i, earlier_N=earlier_N: f"see {self._describe(int(earlier_N[i]))}"  # type: ignore[misc]

    def _describe(self, i: int) -> str:
        corpus = bisect.bisect_right(self.starts, i) - 1
        line = f"line {i - self.starts[corpus] + 1:,}"
        return f"{line} of {self.corpora[corpus].name}" if len(self.corpora) > 1 else line

    def _pair_findings(self) -> list[Finding]:
        """Count the problems of single pairs, and read the first pairs of each check again as examples."""
        findings = []
        findings_of_pair: dict[int, list[Finding]] = {}
        for check in CHECKS:
            indices = np.flatnonzero(self.problems_N & BITS[check.name]) if not check.is_corpus_level else ()
            if len(indices):
                findings.append(Finding(check, len(indices)))
                for i in indices[: self.max_examples]:
                    findings_of_pair.setdefault(int(i), []).append(findings[-1])
        for corpus, (start, end) in zip(self.corpora, pairwise(self.starts), strict=True):
            for i, (source, target) in _read_pairs(corpus, start, {i for i in findings_of_pair if start <= i < end}):
                sides = source[:MAX_EXAMPLE_CHARS], target[:MAX_EXAMPLE_CHARS]
                for finding in findings_of_pair[i]:
                    detail = self.details[finding.check.name](i) if finding.check.name in self.details else ""
                    finding.examples.append(Example(corpus.name, i - start + 1, *sides, detail))
        return findings


def _describe_shift(shift: int | None) -> str:
    if shift is None:
        return "no target fits its source"
    lines = "1 line" if abs(shift) == 1 else f"{abs(shift)} lines"
    return f"the target is {lines} {'below' if shift > 0 else 'above'} its source"


def _mark_length_ratios(records: Records, problems_N: NDArray[np.uint32]) -> None:
    if not len(records):
        return
    mask_N = problems_N & BITS[checks.BLANK.name] == 0
    deviation_N, spread_N = length_deviations(records["chars"], mask_N if mask_N.any() else ~mask_N)
    is_unusual_N = np.abs(deviation_N) > np.maximum(np.log(MIN_FACTOR), MIN_DEVIATIONS * spread_N)
    problems_N[mask_N & is_unusual_N] |= BITS[checks.LENGTH_RATIO.name]


def _read_pairs(corpus: Split, start: int, indices: set[int]) -> Iterator[tuple[int, Pair]]:
    """Yield the pairs with the given indices, where `start` is the index of the first pair; stop after the last one."""
    remaining = set(indices)
    for i, pair in enumerate(TolerantReader(corpus), start):
        if not remaining:
            return
        if i in remaining:
            remaining.remove(i)
            yield i, pair
