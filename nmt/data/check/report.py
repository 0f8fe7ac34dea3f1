"""The report of a check, as data and as an HTML page."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nmt.data.arrays import Bools
from nmt.data.check.checks import CHECKS, Check, Severity, bits_with_fix


@dataclass(frozen=True)
class Example:
    """A pair with a problem; `line` is its line in the corpus, from 1."""

    corpus: str
    line: int
    source: str = ""
    target: str = ""
    detail: str = ""


@dataclass
class Finding:
    """The number of pairs with a problem, and the first of them."""

    check: Check
    count: int = 0
    examples: list[Example] = field(default_factory=list)


@dataclass
class Report:
    """The results of all checks. Shape suffix: N pairs of all corpora."""

    corpora: list[tuple[str, int]]
    """Name and number of pairs of each corpus."""
    test_sets: list[tuple[str, int]]
    languages: tuple[str, str]
    findings: list[Finding]
    """In the order of `CHECKS`; checks without problems are omitted."""
    problems_N: NDArray[np.uint16]
    """Bits of the problems of each pair."""
    misaligned_N: Bools
    ignored: Container[str] = ()
    """Names of the checks that were skipped."""

    @property
    def severity(self) -> Severity | None:
        """Highest severity, or None if there are no problems."""
        return max((finding.check.severity for finding in self.findings), default=None)

    @property
    def dropped_N(self) -> Bools:
        """Mask of the pairs that `repair` drops."""
        return self.misaligned_N | self._has_problem_N(bits_with_fix("drop"))

    def fix_counts(self) -> dict[str, int]:
        """Return the numbers of pairs that `repair` drops or rewrites per check; a pair may have
        several problems."""
        counts = {}
        for finding in self.findings:
            check = finding.check
            is_fixed_N = (
                self.misaligned_N if check.is_corpus_level else self._has_problem_N(check.bit)
            )
            if check.fix == "rewrite":
                is_fixed_N = is_fixed_N & ~self.dropped_N
            count = int(is_fixed_N.sum())
            if count and check.fix in ("drop", "rewrite"):
                counts[check.name] = count
        return counts

    def _has_problem_N(self, bits: int) -> Bools:
        has_problem_N = self.problems_N & np.uint16(bits) > 0
        return has_problem_N

    def to_dict(self) -> dict[str, Any]:
        """Return the report as a JSON object with all checks, including those without problems."""
        severity = self.severity.name.lower() if self.severity is not None else "none"
        found = {finding.check: finding for finding in self.findings}
        findings = [found.get(check, Finding(check)) for check in CHECKS]
        return {
            "corpora": _sizes(self.corpora),
            "test_sets": _sizes(self.test_sets),
            "languages": list(self.languages),
            "severity": severity,
            "findings": list(map(_finding_to_dict, findings)),
        }

    def to_html(self) -> str:
        """Return the report as a self-contained HTML page."""
        from nmt.core.templates import render

        return render("check.html", report=self.to_dict())


def _sizes(corpora: Sequence[tuple[str, int]]) -> list[dict[str, object]]:
    return [{"name": name, "pairs": pairs} for name, pairs in corpora]


def _finding_to_dict(finding: Finding) -> dict[str, Any]:
    return {
        "check": finding.check.name,
        "severity": finding.check.severity.name.lower(),
        "description": finding.check.description,
        "count": finding.count,
        "examples": list(map(asdict, finding.examples)),
    }
