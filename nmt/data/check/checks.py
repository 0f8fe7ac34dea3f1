"""The checks, their severities and their fixes."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from functools import cache


class Severity(IntEnum):
    """Severity of a problem; the highest one determines the exit code of `nmt data check`."""

    NOTE = 0
    """Worth knowing, and often intended."""
    WARNING = 1
    """The pair teaches a model something wrong, or may inflate test scores."""
    ERROR = 2
    """Training would fail or learn from wrong translations, or test scores would be invalid."""


@dataclass(frozen=True)
class Check:
    """A check for one kind of problem."""

    name: str
    severity: Severity
    description: str
    fix: str
    """What `--fix` does: drop or rewrite the pair, truncate the longer side, or keep the pair."""
    is_corpus_level: bool = False
    """Whether the check concerns a whole corpus, not single pairs."""

    @property
    def bit(self) -> int:
        """The bit of the check in a pair's `problems`; 0 for a check of a whole corpus."""
        return BITS.get(self.name, 0)


BLANK = Check("blank", Severity.WARNING, "a side has no visible characters", "drop")
UNTRANSLATED = Check(
    "untranslated", Severity.WARNING, "the target is a copy of the source, or nearly so", "drop"
)
WRONG_LANGUAGE = Check("wrong-language", Severity.WARNING, "a side is in another language", "drop")
LENGTH_RATIO = Check(
    "length-ratio", Severity.WARNING, "the length ratio is unusual for this corpus", "drop"
)
MOJIBAKE = Check(
    "mojibake", Severity.WARNING, "text was decoded with the wrong encoding", "rewrite"
)
REPLACEMENT_CHARACTERS = Check(
    "replacement-characters",
    Severity.WARNING,
    "U+FFFD in place of bytes that could not be decoded",
    "drop",
)
CONTROL_CHARACTERS = Check(
    "control-characters", Severity.WARNING, "control characters in the text", "rewrite"
)
ESCAPED_ENTITIES = Check(
    "escaped-entities", Severity.WARNING, "HTML entities such as &quot; in the text", "rewrite"
)
DUPLICATE = Check("duplicate", Severity.NOTE, "the pair is equal to an earlier one", "drop")
NEAR_DUPLICATE = Check(
    "near-duplicate", Severity.NOTE, "the pair is almost equal to an earlier one", "keep"
)
MULTIPLE_TARGETS = Check(
    "multiple-targets", Severity.NOTE, "the source has another target earlier", "keep"
)
TEST_OVERLAP = Check(
    "test-overlap", Severity.ERROR, "the pair, or one side of it, is in a test set", "drop"
)
NEAR_TEST_OVERLAP = Check(
    "near-test-overlap", Severity.WARNING, "a side is almost equal to one in a test set", "drop"
)
NEAR_DUPLICATE_CHECKS = frozenset((NEAR_DUPLICATE.name, MULTIPLE_TARGETS.name))
"""Names of the checks that need near duplicates: a near duplicate is not another target."""
UNEQUAL_LINE_COUNTS = Check(
    "unequal-line-counts",
    Severity.ERROR,
    "the sides have different numbers of lines",
    "truncate",
    is_corpus_level=True,
)
MISALIGNED = Check(
    "misaligned",
    Severity.ERROR,
    "targets are translations of other lines or of none",
    "drop",
    is_corpus_level=True,
)

CHECKS = (
    UNEQUAL_LINE_COUNTS,
    MISALIGNED,
    TEST_OVERLAP,
    NEAR_TEST_OVERLAP,
    BLANK,
    UNTRANSLATED,
    WRONG_LANGUAGE,
    LENGTH_RATIO,
    REPLACEMENT_CHARACTERS,
    MOJIBAKE,
    CONTROL_CHARACTERS,
    ESCAPED_ENTITIES,
    DUPLICATE,
    NEAR_DUPLICATE,
    MULTIPLE_TARGETS,
)
_PAIR_CHECKS = [check for check in CHECKS if not check.is_corpus_level]
BITS = {check.name: 1 << i for i, check in enumerate(_PAIR_CHECKS)}
"""The bit of each check of pairs in a pair's `problems`."""


@cache
def bits_with_fix(fix: str) -> int:
    """Return the bits of all checks with a given fix."""
    return sum(check.bit for check in CHECKS if check.fix == fix)
