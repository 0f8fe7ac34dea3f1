"""The report of a check, as data and as an HTML page."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nmt.data.check.checks import BITS, CHECKS, Check, Severity, bits_with_fix


@dataclass(frozen=True)
class Example:
    """A pair with a problem; `line` is its line in the corpus, from 1."""

    corpus: str
    line: int
    source: str
    target: str
    detail: str = ""


@dataclass
class Finding:
    """The number of pairs with a problem, and the first of them."""

    check: Check
    count: int
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
    problems_N: NDArray[np.uint32]
    """Bits of the problems of each pair."""
    misaligned_N: NDArray[np.bool_]
    ignored: Container[str] = ()
    """Names of the checks that were skipped."""

    @property
    def severity(self) -> Severity | None:
        """Highest severity, or None if there are no problems."""
        return max((finding.check.severity for finding in self.findings), default=None)

    @property
    def dropped_N(self) -> NDArray[np.bool_]:
        """Mask of the pairs that `repair` drops."""
        is_dropped_N: NDArray[np.bool_] = (self.problems_N & np.uint32(bits_with_fix("drop")) > 0) | self.misaligned_N
        return is_dropped_N

    def fix_counts(self) -> dict[str, int]:
        """Return the numbers of pairs that `repair` drops or rewrites per check; a pair may have several problems."""
        counts = {}
        for finding in self.findings:
            check = finding.check
            if check.is_corpus_level:
                count = int(self.misaligned_N.sum()) if check.fix == "drop" else 0
            else:
                has_N = self.problems_N & np.uint32(BITS[check.name]) > 0
                count = int((has_N & ~self.dropped_N if check.fix == "rewrite" else has_N).sum())
            if count and check.fix != "keep":
                counts[check.name] = count
        return counts

    def to_dict(self) -> dict[str, Any]:
        """Return the report as a JSON object with all checks, including those without problems."""
        findings = {finding.check.name: finding for finding in self.findings}
        empty = {check.name: Finding(check, 0) for check in CHECKS}
        return {
            "corpora": [{"name": name, "pairs": pairs} for name, pairs in self.corpora],
            "test_sets": [{"name": name, "pairs": pairs} for name, pairs in self.test_sets],
            "languages": list(self.languages),
            "severity": self.severity.name.lower() if self.severity is not None else "none",
            "findings": [
                {
                    "check": name,
                    "severity": finding.check.severity.name.lower(),
                    "description": finding.check.description,
                    "count": finding.count,
                    "examples": [asdict(example) for example in finding.examples],
                }
                for name, finding in (empty | findings).items()
            ],
        }

    def to_html(self) -> str:
        """Return the report as a self-contained HTML page."""
        from nmt.templates import render

        return render("check.html", report=self.to_dict())
