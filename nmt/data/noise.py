"""Source noise: how people type. Each step takes a sentence and a random generator and returns a sentence."""

from __future__ import annotations

import string
from collections.abc import Callable, Sequence
from random import Random

from nmt.registry import resolve

Noise = Callable[..., str]

_NO_PUNCTUATION = str.maketrans("", "", string.punctuation.replace("'", "").replace("-", "") + "„“”«»…¿¡")
_NO_APOSTROPHES = str.maketrans("", "", "'’‘`´")


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


NOISES: dict[str, Noise] = {
    "lowercase": lowercase,
    "uppercase": uppercase,
    "no_punctuation": no_punctuation,
    "no_apostrophes": no_apostrophes,
    "sloppy": sloppy,
}


def compose(specs: Sequence[str]) -> Callable[[str, Random], str]:
    """Return one function that applies the steps in order; a sentence that noise would empty is left alone.

    Raises:
        ConfigError: unknown step or option.
    """
    steps = [resolve("noise", NOISES, spec) for spec in specs]

    def apply(text: str, rng: Random) -> str:
        noisy = text
        for step in steps:
            noisy = step(noisy, rng)
        return noisy if noisy.strip() else text

    return apply
