"""Source noise: how people type. Each step takes a sentence and a random generator and returns a sentence."""

from __future__ import annotations

import re
import string
from collections.abc import Callable, Sequence
from random import Random

from nmt.errors import ConfigError
from nmt.registry import resolve

Noise = Callable[..., str]

_NO_PUNCTUATION = str.maketrans("", "", string.punctuation.replace("'", "").replace("-", "") + "„“”«»…¿¡")
_NO_APOSTROPHES = str.maketrans("", "", "'’‘`´")
_SPELT_OUT = str.maketrans({"ä": "ae", "ö": "oe", "ü": "ue", "Ä": "Ae", "Ö": "Oe", "Ü": "Ue", "ß": "ss", "ẞ": "SS"})
_NO_DOTS = str.maketrans({"ä": "a", "ö": "o", "ü": "u", "Ä": "A", "Ö": "O", "Ü": "U", "ß": "ss", "ẞ": "SS"})
_WORD = re.compile(r"[^\W\d_]{3,}")
_ROWS = ("qwertyuiop", "asdfghjkl", "zxcvbnm")
_NEIGHBORS = {
    letter: "".join(row[max(0, i - 1) : i] + row[i + 1 : i + 2]) for row in _ROWS for i, letter in enumerate(row)
}
"""The keys beside each letter's on an English keyboard."""


def lowercase(text: str, rng: Random, *, p: float = 0.1) -> str:
    """Write everything small."""
    return text.lower() if rng.random() < p else text


def uppercase(text: str, rng: Random, *, p: float = 0.05) -> str:
    """SHOUT."""
    return text.upper() if rng.random() < p else text


def no_punctuation(text: str, rng: Random, *, p: float = 0.1) -> str:
    """Leave out punctuation, but not the apostrophes and hyphens inside words."""
    return text.translate(_NO_PUNCTUATION) if rng.random() < p else text


def no_apostrophes(text: str, rng: Random, *, p: float = 0.1) -> str:
    """Leave out apostrophes: im thirsty."""
    return text.translate(_NO_APOSTROPHES) if rng.random() < p else text


def sloppy(text: str, rng: Random, *, p: float = 0.1) -> str:
    """Small letters, no punctuation and no apostrophes, all at once: the way of the search box."""
    return text.lower().translate(_NO_PUNCTUATION).translate(_NO_APOSTROPHES) if rng.random() < p else text


def typos(text: str, rng: Random, *, p: float = 0.1, words: float = 0.15) -> str:
    """Mistype a share of the longer words: a letter left out, doubled, swapped, or the key beside it hit."""
    if rng.random() >= p:
        return text
    return _WORD.sub(lambda match: _mistyped(match[0], rng) if rng.random() < words else match[0], text)


def _mistyped(word: str, rng: Random) -> str:
    i = rng.randrange(1, len(word))  # people get the first letter right
    slip = rng.randrange(4)
    if slip == 0:
        return word[:i] + word[i + 1 :]
    if slip == 1:
        return word[:i] + word[i] + word[i:]
    if slip == 2:
        second = max(i, 2)
        return word[: second - 1] + word[second] + word[second - 1] + word[second + 1 :]
    near = _NEIGHBORS.get(word[i].lower(), word[i])
    hit = near[rng.randrange(len(near))]
    return word[:i] + (hit.upper() if word[i].isupper() else hit) + word[i + 1 :]


def no_umlauts(text: str, rng: Random, *, p: float = 0.1) -> str:
    """Type German without its keys: moechte, gross; or mochte where the dots are lost."""
    if rng.random() >= p:
        return text
    return text.translate(_SPELT_OUT if rng.random() < 0.5 else _NO_DOTS)


NOISES: dict[str, Noise] = {
    "lowercase": lowercase,
    "uppercase": uppercase,
    "no_punctuation": no_punctuation,
    "no_apostrophes": no_apostrophes,
    "sloppy": sloppy,
    "typos": typos,
    "no_umlauts": no_umlauts,
}


def compose(specs: Sequence[str]) -> Callable[[str, Random], str]:
    """Return one function that applies the steps in order; a sentence that noise would empty is left alone.

    Raises:
        ConfigError: unknown step or option, or one that is no probability.
    """
    steps = [resolve("noise", NOISES, spec) for spec in specs]
    for spec, step in zip(specs, steps, strict=True):
        for name, value in getattr(step, "keywords", {}).items():
            if not 0 <= value <= 1:
                raise ConfigError(f"noise {spec}: {name} is a probability, from 0 to 1")

    def apply(text: str, rng: Random) -> str:
        noisy = text
        for step in steps:
            noisy = step(noisy, rng)
        return noisy if noisy.strip() else text

    return apply
