"""Cleaning of training pairs: a pipeline of steps in the order of the config, with statistics per
step.

Pairs with a blank side are always dropped first, because they teach a model to hallucinate or to
output nothing.
"""

from __future__ import annotations

import functools
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated

from nmt.core.errors import ConfigError, suggest
from nmt.core.plugins import Components
from nmt.core.ranges import Range
from nmt.core.registry import parse, resolve
from nmt.data.pairs import Pair, hash_pair, hash_text
from nmt.text import normalization

BLANK = "blank"
"""Name of the step that drops pairs with a blank side."""
Cleaner = Callable[..., Iterator[Pair]]
"""Keeps, changes or drops each pair before it reads the next one."""


def normalize(pairs: Iterator[Pair]) -> Iterator[Pair]:
    """Apply Unicode NFC, collapse whitespace, strip, and remove control characters."""
    for source, target in pairs:
        source = normalization.normalize(source)
        target = normalization.normalize(target)
        yield source, target


def length(
    pairs: Iterator[Pair], *, max: int = 200, min: int = 1, max_chars: int = 2000
) -> Iterator[Pair]:
    """Keep pairs whose sides have `min` to `max` words (see `count_words`) and at most `max_chars`
    characters."""
    if not 0 <= min <= max:
        raise ConfigError(f"cleaning step 'length': min ({min}) must be between 0 and max ({max})")
    for source, target in pairs:
        if len(source) > max_chars or len(target) > max_chars:
            continue
        has_source = min <= normalization.count_words(source) <= max
        if has_source and min <= normalization.count_words(target) <= max:
            yield source, target


def ratio(
    pairs: Iterator[Pair], *, max: Annotated[float, Range(1)] = 3.0, smoothing: float = 2.0
) -> Iterator[Pair]:
    """Keep pairs whose longer side has at most `max` times the words of the shorter one.

    `smoothing` is added to both counts, so that one word against seven is kept.
    """
    for pair in pairs:
        num_words = map(normalization.count_words, pair)
        shorter, longer = sorted(num_words)
        if longer + smoothing <= max * (shorter + smoothing):
            yield pair


def drop_identical(pairs: Iterator[Pair]) -> Iterator[Pair]:
    """Drop pairs with identical sides, because untranslated text teaches copying."""
    for source, target in pairs:
        if source.strip() != target.strip():
            yield source, target


def dedup(pairs: Iterator[Pair], *, by: str = "pair") -> Iterator[Pair]:
    """Drop exact duplicates of a pair, or, with `by` "source" or "target", of this side. Only
    hashes are stored."""
    if by not in ("pair", "source", "target"):
        raise ConfigError(
            f"cleaning step 'dedup': by must be 'pair', 'source' or 'target', got '{by}'"
        )
    seen = set()
    for pair in pairs:
        key = dedup_key(pair, by)
        if key not in seen:
            seen.add(key)
            yield pair


def dedup_key(pair: Pair, by: str) -> int:
    """Return a hash of a pair, or of its side "source" or "target"."""
    source, target = pair
    if by == "pair":
        return hash_pair(source, target)
    return hash_text(source if by == "source" else target)


def german_reformed_ss(pairs: Iterator[Pair]) -> Iterator[Pair]:
    """Replace German ß with ss where the 1996 spelling reform requires it, on both sides."""
    for source, target in pairs:
        yield _reform_ss(source), _reform_ss(target)


def _reform_ss(text: str) -> str:
    if "ß" not in text and "ẞ" not in text:  # most texts; the pattern is slow
        return text
    return _PRE_1996_SS.sub(_to_ss, text)


_PRE_1996_SS = re.compile(
    # ß is kept after a long vowel. The preceding letter identifies short i and e; the other vowels
    # need word stems.
    r"(?:(?<!e)i|(?<!i)e|(?:[bdfhln]|kr|(?<!s)p|els)a|(?:[hlnp]|gr)ä|(?:schl|fl|sch|verdr|[gknw])u|[kw]ü"
    r"|(?:schl|gen|g|verdr|spr)o|(?-i:\b(?:scho|flo))|ru(?=ßland)|m[uü](?!ß[ei]))ß",
    re.IGNORECASE,
)


def _to_ss(match: re.Match[str]) -> str:
    stem = match[0][:-1]
    is_lowercase = match[0].endswith("ß")
    return stem + ("ss" if is_lowercase else "SS")


def straight_quotes(pairs: Iterator[Pair]) -> Iterator[Pair]:
    """Write straight double quotation marks in the target if the source has only straight ones, so
    that a model keeps the kind of its source."""
    for source, target in pairs:
        has_straight = '"' in source
        if has_straight and not _TYPOGRAPHIC_QUOTE.search(source):
            if "»" in target.partition("«")[2]:
                target = _FRENCH_QUOTE.sub('"', target)
            target = _TYPOGRAPHIC_QUOTE.sub('"', target)
        yield source, target


_FRENCH_QUOTE = re.compile("«[ \u00a0\u202f]|[ \u00a0\u202f]»")
"""A quotation mark with the space inside of it."""
_TYPOGRAPHIC_QUOTE = re.compile("[„“”‟«»]")


def final_punctuation(pairs: Iterator[Pair]) -> Iterator[Pair]:
    """End the target with the period or exclamation mark of the source, so that a model keeps it:
    translations of thanks, wishes and orders often change it."""
    for source, target in pairs:
        if _FINAL_MARK.search(source) and _FINAL_MARK.search(target):
            target = target[:-1] + source[-1]
        yield source, target


_FINAL_MARK = re.compile(r"\w\w[.!]$")
"""A period or exclamation mark after a word, not that of an ellipsis or an initial."""

_SCRIPTS = (
    "arabic armenian bengali cyrillic devanagari ethiopic georgian greek hebrew tamil thai".split()
)
SCRIPTS = {name: (name.upper(),) for name in _SCRIPTS} | {
    "chinese": ("CJK", "BOPOMOFO"),
    "japanese": ("CJK", "HIRAGANA", "KATAKANA", "HALFWIDTH"),
    "korean": ("HANGUL", "CJK"),
    "latin": ("LATIN", "FULLWIDTH LATIN"),
}
"""The beginnings of the Unicode names of the letters of each script."""


def script(
    pairs: Iterator[Pair], *, src: str = "latin", tgt: str = "latin", min: float = 0.5
) -> Iterator[Pair]:
    """Keep pairs in which at least the fraction `min` of the letters of each side is in its
    script."""
    for name in (src, tgt):
        if name not in SCRIPTS:
            raise ConfigError(
                f"cleaning step 'script': unknown script '{name}'", suggest(name, SCRIPTS)
            )
    for source, target in pairs:
        has_source = _script_ratio(source, SCRIPTS[src]) >= min
        if has_source and _script_ratio(target, SCRIPTS[tgt]) >= min:
            yield source, target


def _is_pair(value: object) -> bool:
    if not isinstance(value, tuple | list):
        return False
    return len(value) == 2 and all(isinstance(text, str) for text in value)


CLEANERS: Components[Cleaner] = Components(
    "cleaning step",
    {
        "normalize": normalize,
        "length": length,
        "ratio": ratio,
        "drop_identical": drop_identical,
        "dedup": dedup,
        "script": script,
        "german_reformed_ss": german_reformed_ss,
        "straight_quotes": straight_quotes,
        "final_punctuation": final_punctuation,
    },
    returns="pairs of texts",
    is_valid=_is_pair,
)


class CleaningPipeline:
    """Iterates over the pairs that all steps keep."""

    def __init__(self, pairs: Iterable[Pair], steps: Sequence[tuple[str, Cleaner]]) -> None:
        self._pairs = pairs
        self._steps = steps
        self._counts: list[int] = []
        """Number of pairs before each step, and after the last one."""

    @property
    def dropped(self) -> dict[str, int]:
        """The number of pairs that each step has dropped; complete after the iteration."""
        dropped: dict[str, int] = {}
        for (name, _), (before, after) in zip(self._steps, pairwise(self._counts), strict=True):
            dropped[name] = dropped.get(name, 0) + before - after
        return dropped

    def __iter__(self) -> Iterator[Pair]:
        self._counts = [0] * (len(self._steps) + 1)
        stream = self._count(iter(self._pairs), 0)
        for i, (_, step) in enumerate(self._steps, 1):
            stream = self._count(step(stream), i)
        return stream

    def _count(self, pairs: Iterator[Pair], i: int) -> Iterator[Pair]:
        for pair in pairs:
            self._counts[i] += 1
            yield pair


def cleaning_pipeline(
    pairs: Iterable[Pair], specs: Sequence[str], *, drop_blank: bool = True
) -> CleaningPipeline:
    """Build a pipeline that drops blank pairs, unless they have been dropped already, and then
    applies the cleaning steps `specs` in order.

    Raises:
        ConfigError: a step or option is unknown, or a value is out of range.
    """
    steps = [(spec.strip(), resolve("cleaning step", CLEANERS, spec)) for spec in specs]
    for _, step in steps:
        next(step(iter(())), None)  # a generator checks its options on the first `next`
    if drop_blank:
        steps.insert(0, (BLANK, _drop_blank))
    return CleaningPipeline(pairs, steps)


@dataclass(frozen=True)
class Segment:
    """Consecutive cleaning steps that concern single pairs, so that processes can apply them to
    parts of a corpus, and the deduplication after them, which concerns the whole corpus."""

    index: int
    specs: tuple[str, ...]
    dedup: str = ""
    """Spec string of the deduplication; empty for the last segment."""

    @property
    def stage(self) -> str:
        """Name of the text after the steps, without the deduplication."""
        return f"clean-{self.index}"

    def pipeline(self, pairs: Iterable[Pair]) -> CleaningPipeline:
        """Return the pipeline of the steps."""
        return cleaning_pipeline(pairs, self.specs, drop_blank=self.index == 0)

    @property
    def dedup_side(self) -> str:
        """What the deduplication compares: "pair", "source" or "target"; empty if there is none."""
        if not self.dedup:
            return ""
        _, options = parse(self.dedup)
        return str(options.get("by", "pair"))


def segments(specs: Sequence[str]) -> list[Segment]:
    """Divide cleaning steps after each deduplication."""
    divided: list[Segment] = []
    steps: list[str] = []
    for spec in map(str.strip, specs):
        if parse(spec)[0] == "dedup":
            divided.append(Segment(len(divided), tuple(steps), spec))
            steps = []
        else:
            steps.append(spec)
    divided.append(Segment(len(divided), tuple(steps)))
    return divided


def is_blank(text: str) -> bool:
    """Return whether a sentence has only whitespace, control characters and invisible
    characters."""
    for character in text:  # noqa: SIM110, a generator takes five times as long
        if character.isprintable() and not character.isspace():
            return False
    return True


def _drop_blank(pairs: Iterator[Pair]) -> Iterator[Pair]:
    for pair in pairs:
        source, target = pair
        if not is_blank(source) and not is_blank(target):
            yield pair


def _script_ratio(text: str, script: tuple[str, ...]) -> float:
    if text.isascii() and "LATIN" in script:
        return 1.0
    letters = list(filter(str.isalpha, text))
    if not letters:
        return 1.0
    num_in_script = sum(_character_name(c).startswith(script) for c in letters)
    return num_in_script / len(letters)


@functools.lru_cache(maxsize=1 << 16)
def _character_name(character: str) -> str:
    return unicodedata.name(character, "")
