"""The faults that a check knows, and how grave each is."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum


class Severity(IntEnum):
    """How grave a fault is; the exit code of `nmt data check` tells the worst one found."""

    NOTE = 0
    """Worth knowing; often intended."""
    WARNING = 1
    """Pairs that teach a model something wrong."""
    ERROR = 2
    """What makes a training or its test results worthless."""


@dataclass(frozen=True)
class Kind:
    """One kind of fault."""

    name: str
    severity: Severity
    meaning: str
    mend: str
    """What `--fix` does about a pair of this kind: drop, rewrite or keep."""
    whole: bool = False
    """A fault of a whole text, without a bit of its own."""


BLANK = Kind("blank", Severity.WARNING, "a side with nothing visible in it", "drop")
COPIED = Kind("untranslated", Severity.WARNING, "the target is the source, or nearly so", "drop")
LANGUAGE = Kind("wrong-language", Severity.WARNING, "a side in another language", "drop")
RATIO = Kind("length-ratio", Severity.WARNING, "one side far longer than its like elsewhere in the text", "drop")
MOJIBAKE = Kind("mojibake", Severity.WARNING, "text that was decoded with the wrong encoding", "rewrite")
LOST = Kind("replacement-characters", Severity.WARNING, "U+FFFD, which stands for what could not be decoded", "drop")
CONTROL = Kind("control-characters", Severity.WARNING, "control characters in the text", "rewrite")
ENTITIES = Kind("escaped-entities", Severity.WARNING, "HTML entities such as &quot; left in the text", "rewrite")
DUPLICATE = Kind("duplicate", Severity.NOTE, "the same pair as an earlier one", "drop")
NEAR_DUPLICATE = Kind("near-duplicate", Severity.NOTE, "almost the same pair as an earlier one", "keep")
MANY_TARGETS = Kind("multiple-targets", Severity.NOTE, "a source with another target than before", "keep")
OVERLAP = Kind("test-overlap", Severity.ERROR, "a pair of a test set, or one side of it", "drop")
NEAR_OVERLAP = Kind("near-test-overlap", Severity.WARNING, "a side almost the same as in a test set", "drop")
UNEQUAL = Kind("unequal-lengths", Severity.ERROR, "sides with different numbers of lines", "keep", whole=True)
MISALIGNED = Kind("misaligned", Severity.ERROR, "targets that translate another line or none", "drop", whole=True)

KINDS = (
    UNEQUAL, MISALIGNED, OVERLAP, NEAR_OVERLAP, BLANK, COPIED, LANGUAGE, RATIO, LOST, MOJIBAKE, CONTROL, ENTITIES,
    DUPLICATE, NEAR_DUPLICATE, MANY_TARGETS,
)  # fmt: skip
BITS = {kind.name: 1 << place for place, kind in enumerate(kind for kind in KINDS if not kind.whole)}
"""Each kind's bit in a pair's `faults`."""


def bits(mend: str) -> int:
    """Return the bits of all kinds that are mended in one way."""
    return sum(BITS[kind.name] for kind in KINDS if not kind.whole and kind.mend == mend)
