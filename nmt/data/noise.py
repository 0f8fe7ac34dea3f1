"""Source noise that simulates informal typing. A noise function takes a sentence and a random
generator."""

from __future__ import annotations

import re
import string
from collections.abc import Callable, Iterable, Sequence
from inspect import signature
from itertools import compress, pairwise
from random import Random

from nmt.core.ranges import Probability
from nmt.core.registry import resolve

Noise = Callable[..., str]

_ASCII_PUNCTUATION = string.punctuation.replace("'", "").replace("-", "")
_NO_PUNCTUATION = str.maketrans("", "", _ASCII_PUNCTUATION + "„“”«»…¿¡")
_NO_APOSTROPHES = str.maketrans("", "", "'’‘`´")
_UMLAUTS_TO_DIGRAPHS = str.maketrans(
    {"ä": "ae", "ö": "oe", "ü": "ue", "Ä": "Ae", "Ö": "Oe", "Ü": "Ue", "ß": "ss", "ẞ": "SS"}
)
_UMLAUTS_TO_VOWELS = str.maketrans(
    {"ä": "a", "ö": "o", "ü": "u", "Ä": "A", "Ö": "O", "Ü": "U", "ß": "ss", "ẞ": "SS"}
)
_WORD = re.compile(r"[^\W\d_]{3,}")
_KEYBOARD_ROWS = ("qwertyuiop", "asdfghjkl", "zxcvbnm")


def _adjacent_keys() -> dict[str, str]:
    """Return the horizontally adjacent keys of each letter on an English keyboard."""
    adjacent = dict.fromkeys(string.ascii_lowercase, "")
    for row in _KEYBOARD_ROWS:
        for left, right in pairwise(row):
            adjacent[left] += right
            adjacent[right] += left
    return adjacent


_ADJACENT_KEYS = _adjacent_keys()


def lowercase(text: str, rng: Random, *, p: Probability = 0.1) -> str:
    """Lowercase the sentence."""
    return text.lower() if rng.random() < p else text


def uppercase(text: str, rng: Random, *, p: Probability = 0.05) -> str:
    """Uppercase the sentence."""
    return text.upper() if rng.random() < p else text


def no_punctuation(text: str, rng: Random, *, p: Probability = 0.1) -> str:
    """Remove punctuation except apostrophes and hyphens."""
    return text.translate(_NO_PUNCTUATION) if rng.random() < p else text


def no_apostrophes(text: str, rng: Random, *, p: Probability = 0.1) -> str:
    """Remove apostrophes: "im thirsty"."""
    return text.translate(_NO_APOSTROPHES) if rng.random() < p else text


def lowercase_no_punctuation(text: str, rng: Random, *, p: Probability = 0.1) -> str:
    """Lowercase the sentence and remove punctuation and apostrophes, as in a search query."""
    if rng.random() >= p:
        return text
    return text.lower().translate(_NO_PUNCTUATION | _NO_APOSTROPHES)


def typos(
    text: str, rng: Random, *, p: Probability = 0.1, word_fraction: Probability = 0.15
) -> str:
    """Add a typo to a fraction of the words: a letter is deleted, doubled, swapped or replaced with
    an adjacent key."""
    if rng.random() >= p:
        return text

    def change(match: re.Match[str]) -> str:
        return _add_typo(match[0], rng) if rng.random() < word_fraction else match[0]

    return _WORD.sub(change, text)


def _add_typo(word: str, rng: Random) -> str:
    i = rng.randrange(1, len(word))  # the first letter is rarely mistyped
    kind = rng.randrange(4)
    if kind == 2:  # swap two letters after the first one
        i = max(i, 2)
        return word[: i - 1] + word[i] + word[i - 1] + word[i + 1 :]
    before = word[:i]
    letter = word[i]
    after = word[i + 1 :]
    if kind == 0:
        return before + after
    if kind == 1:
        return before + 2 * letter + after
    keys = _ADJACENT_KEYS.get(letter.lower(), letter)
    key = keys[rng.randrange(len(keys))]
    if letter.isupper():
        key = key.upper()
    return before + key + after


def no_umlauts(text: str, rng: Random, *, p: Probability = 0.1) -> str:
    """Replace umlauts and ß with ASCII letters, as on an English keyboard: "moechte" or "mochte",
    "gross"."""
    if rng.random() >= p:
        return text
    table = _UMLAUTS_TO_DIGRAPHS if rng.random() < 0.5 else _UMLAUTS_TO_VOWELS
    return text.translate(table)


NOISES: dict[str, Noise] = {
    "lowercase": lowercase,
    "uppercase": uppercase,
    "no_punctuation": no_punctuation,
    "no_apostrophes": no_apostrophes,
    "lowercase_no_punctuation": lowercase_no_punctuation,
    "typos": typos,
    "no_umlauts": no_umlauts,
}


class SourceNoise:
    """Noise functions that are applied in order. Sentences that would become empty are kept.

    The caller draws which functions apply to a sentence. Drawing them for an epoch at once is much
    faster than creating a generator for each sentence.
    """

    def __init__(self, specs: Sequence[str]) -> None:
        """Resolve the functions and check their options.

        Raises:
            ConfigError: a name or option is unknown, or a value is not a probability.
        """
        self._functions: list[Noise] = []
        self.probabilities: list[float] = []
        """Probability of each function to apply to a sentence."""
        for spec in specs:
            function = resolve("noise", NOISES, spec)
            probability = signature(function).parameters["p"].default
            self._functions.append(function)
            self.probabilities.append(float(probability))

    def apply(self, text: str, is_chosen: Iterable[bool], rng: Random) -> str:
        """Apply the chosen functions, whatever their `p`; return `text` if the result would be
        blank."""
        noisy = text
        for function in compress(self._functions, is_chosen):
            noisy = function(noisy, rng, p=1.0)
        return noisy if noisy.strip() else text
