"""What a check found, as data, as a table and as a page."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nmt.data.check.checks import BITS, KINDS, Kind, Severity, bits
from nmt.data.pairs import Pair


@dataclass(frozen=True)
class Text:
    """A parallel text: its name, how to read it from the start, and its pairs where that is known."""

    name: str
    pairs: Callable[[], Iterator[Pair]]
    count: int | None = None
    files: tuple[Path, ...] = ()
    """The user's own files that are read."""


@dataclass(frozen=True)
class Example:
    """A pair with a fault; `line` counts from 1 in the text."""

    text: str
    line: int
    source: str
    target: str
    note: str = ""


@dataclass
class Finding:
    """A kind of fault, how many pairs have it, and the first of them."""

    kind: Kind
    count: int
    examples: list[Example] = field(default_factory=list)


@dataclass
class Report:
    """What a check found. Letter: N pairs of all texts."""

    texts: list[tuple[str, int]]
    """Each text with its pairs."""
    tests: list[tuple[str, int]]
    languages: tuple[str, str]
    findings: list[Finding]
    """In the order of `KINDS`; a kind that was not found has none."""
    faults_N: NDArray[np.uint32]
    """Of each pair, the bits of its faults."""
    misaligned_N: NDArray[np.bool_]

    @property
    def severity(self) -> Severity | None:
        """The gravest fault found; None: there is none."""
        return max((finding.kind.severity for finding in self.findings), default=None)

    @property
    def dropped_N(self) -> NDArray[np.bool_]:
        """Which pairs mending drops."""
        found: NDArray[np.bool_] = (self.faults_N & np.uint32(bits("drop")) > 0) | self.misaligned_N
        return found

    def mending(self) -> dict[str, int]:
        """Return how many pairs are dropped or rewritten for each kind of fault; one may go for several."""
        found = {}
        for finding in self.findings:
            kind = finding.kind
            if kind.whole:
                count = int(self.misaligned_N.sum()) if kind.mend == "drop" else 0
            else:
                has_N = self.faults_N & np.uint32(BITS[kind.name]) > 0
                count = int((has_N & ~self.dropped_N if kind.mend == "rewrite" else has_N).sum())
            if count and kind.mend != "keep":
                found[kind.name] = count
        return found

    def as_dict(self) -> dict[str, Any]:
        """Return the report as JSON has it; every kind is in it, found or not."""
        found = {finding.kind.name: finding for finding in self.findings}
        nothing = {kind.name: Finding(kind, 0) for kind in KINDS}
        return {
            "texts": [{"name": name, "pairs": pairs} for name, pairs in self.texts],
            "tests": [{"name": name, "pairs": pairs} for name, pairs in self.tests],
            "languages": list(self.languages),
            "severity": self.severity.name.lower() if self.severity is not None else "none",
            "faults": [
                {
                    "kind": name,
                    "severity": finding.kind.severity.name.lower(),
                    "meaning": finding.kind.meaning,
                    "count": finding.count,
                    "examples": [asdict(example) for example in finding.examples],
                }
                for name, finding in (nothing | found).items()
            ],
        }

    def page(self) -> str:
        """Return the report as an HTML page that needs nothing else."""
        from nmt.templates import render

        return render("check.html", report=self.as_dict())
