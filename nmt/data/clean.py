"""Cleaning of training pairs: small steps chained in the order the config names them, each counted.

A pair with a blank side is always dropped first: training on one teaches the model to invent or to fall silent.
"""

from __future__ import annotations

import functools
import hashlib
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from nmt.data import normalization as text
from nmt.data.pairs import Pair
from nmt.errors import ConfigError, suggest
from nmt.registry import resolve

Cleaner = Callable[..., Iterator[Pair]]


def normalize(pairs: Iterator[Pair]) -> Iterator[Pair]:
    """Compose characters (NFC), make every run of white space one space, strip, remove control characters."""
    for source, target in pairs:
        yield text.normalize(source), text.normalize(target)


def length(
    pairs: Iterator[Pair],
    *,
    max: int = 200,
    min: int = 1,
    max_chars: int = 2000,
) -> Iterator[Pair]:
    """Keep pairs whose sides have `min` to `max` words (split on white space) and at most `max_chars` characters."""
    if not 0 <= min <= max:
        raise ConfigError(f"cleaning step 'length': min ({min}) must be 0 to max ({max})")
    for pair in pairs:
        if all(len(side) <= max_chars and min <= len(side.split()) <= max for side in pair):
            yield pair


def ratio(pairs: Iterator[Pair], *, max: float = 3.0, smoothing: float = 2.0) -> Iterator[Pair]:
    """Keep pairs whose longer side has at most `max` times the words of the shorter one.

    `smoothing` is added to both counts, so that one word against four (a greeting, a compound) survives.
    """
    if max < 1.0:
        raise ConfigError(f"cleaning step 'ratio': max must be at least 1, got {max}")
    for pair in pairs:
        few, many = sorted(len(side.split()) + smoothing for side in pair)
        if many <= max * few:
            yield pair


def identical(pairs: Iterator[Pair]) -> Iterator[Pair]:
    """Drop pairs whose two sides are the same: untranslated text teaches copying."""
    return (pair for pair in pairs if pair[0].strip() != pair[1].strip())


def dedup(pairs: Iterator[Pair]) -> Iterator[Pair]:
    """Drop exact repetitions of a pair.

    Only 64-bit hashes are kept: among ten million pairs the chance of losing any one to a collision is 3 in a million.
    """
    seen: set[int] = set()
    for source, target in pairs:
        digest = hashlib.blake2b(f"{len(source)} {source}{target}".encode("utf-8", "replace"), digest_size=8).digest()
        mark = int.from_bytes(digest)
        if mark not in seen:
            seen.add(mark)
            yield source, target


def german_1996_spelling(pairs: Iterator[Pair]) -> Iterator[Pair]:
    """Write German ß as since the reform of 1996 on both sides: daß is dass, mußte musste, but Fuß stays."""
    for source, target in pairs:
        yield _OLD_SS.sub(_reformed, source), _OLD_SS.sub(_reformed, target)


_OLD_SS = re.compile(
    # ß stays after a long vowel. Short i and e are told by the letter before; for the others it takes the words' stems.
    r"(?:(?<!e)i|(?<!i)e|(?:[bdfhln]|kr|(?<!s)p|els)a|(?:[hlnp]|gr)ä|(?:schl|fl|sch|verdr|[gknw])u|[kw]ü"
    r"|(?:schl|gen|g|verdr|spr)o|(?-i:\b(?:scho|flo))|ru(?=ßland)|m[uü](?!ß[ei]))ß",
    re.IGNORECASE,
)


def _reformed(match: re.Match[str]) -> str:
    return match[0][:-1] + ("ss" if match[0][-1] == "ß" else "SS")


SCRIPTS = {
    "arabic": ("ARABIC",),
    "armenian": ("ARMENIAN",),
    "bengali": ("BENGALI",),
    "chinese": ("CJK", "BOPOMOFO"),
    "cyrillic": ("CYRILLIC",),
    "devanagari": ("DEVANAGARI",),
    "ethiopic": ("ETHIOPIC",),
    "georgian": ("GEORGIAN",),
    "greek": ("GREEK",),
    "hebrew": ("HEBREW",),
    "japanese": ("CJK", "HIRAGANA", "KATAKANA", "HALFWIDTH"),
    "korean": ("HANGUL", "CJK"),
    "latin": ("LATIN", "FULLWIDTH LATIN"),
    "tamil": ("TAMIL",),
    "thai": ("THAI",),
}


def charset(pairs: Iterator[Pair], *, src: str = "latin", tgt: str = "latin", min: float = 0.5) -> Iterator[Pair]:
    """Keep pairs where at least the share `min` of each side's letters is of its script; text without letters stays."""
    for name in (src, tgt):
        if name not in SCRIPTS:
            raise ConfigError(f"cleaning step 'charset': unknown script '{name}'", suggest(name, SCRIPTS))
    for source, target in pairs:
        if _share(source, SCRIPTS[src]) >= min and _share(target, SCRIPTS[tgt]) >= min:
            yield source, target


CLEANERS: dict[str, Cleaner] = {
    "normalize": normalize,
    "length": length,
    "ratio": ratio,
    "identical": identical,
    "dedup": dedup,
    "charset": charset,
    "german_1996_spelling": german_1996_spelling,
}


@dataclass
class CleaningStats:
    """What one step did: how many pairs it let through and how many it dropped."""

    step: str
    kept: int = 0
    dropped: int = 0


class CleaningPipeline:
    """The pairs that survive; `report` holds a `CleaningStats` for "blank" and one per step, complete after iteration."""

    def __init__(self, pairs: Iterable[Pair], steps: Sequence[tuple[str, Cleaner]]) -> None:
        self._pairs = pairs
        self._steps = [("blank", _not_blank), *steps]
        self.report = [CleaningStats(name) for name, _ in self._steps]

    def __iter__(self) -> Iterator[Pair]:
        self.report[:] = [CleaningStats(name) for name, _ in self._steps]
        stream: Iterator[Pair] = iter(self._pairs)
        for (_, step), entry in zip(self._steps, self.report, strict=True):
            stream = _after(step(_before(stream, entry)), entry)
        return stream


def clean(pairs: Iterable[Pair], specs: Sequence[str]) -> CleaningPipeline:
    """Chain the cleaning steps that `specs` name, in their order, behind the blank check that always runs.

    Raises:
        ConfigError: an unknown step or option, or a value out of range.
    """
    steps = [(spec.strip(), resolve("cleaning step", CLEANERS, spec)) for spec in specs]
    for _, step in steps:
        next(step(iter(())), None)  # the steps check their options when they start
    return CleaningPipeline(pairs, steps)


def is_blank(text: str) -> bool:
    """Say whether a sentence holds nothing visible: white space, control and invisible characters only."""
    return not any(c.isprintable() and not c.isspace() for c in text)


def _not_blank(pairs: Iterator[Pair]) -> Iterator[Pair]:
    return (pair for pair in pairs if not is_blank(pair[0]) and not is_blank(pair[1]))


def _before(pairs: Iterator[Pair], entry: CleaningStats) -> Iterator[Pair]:
    for pair in pairs:
        entry.dropped += 1  # until it comes out at the other end
        yield pair


def _after(pairs: Iterator[Pair], entry: CleaningStats) -> Iterator[Pair]:
    for pair in pairs:
        entry.dropped -= 1
        entry.kept += 1
        yield pair


def _share(text: str, script: tuple[str, ...]) -> float:
    if text.isascii() and "LATIN" in script:
        return 1.0
    letters = [c for c in text if c.isalpha()]
    return sum(_name(c).startswith(script) for c in letters) / len(letters) if letters else 1.0


@functools.lru_cache(maxsize=1 << 16)
def _name(character: str) -> str:
    return unicodedata.name(character, "")
