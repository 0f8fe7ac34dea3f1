"""Names of languages, and identification of the language of a text among those that the server
translates."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import NamedTuple

from nmt.text.language_codes import NAMES, base_language
from nmt.text.language_identification import (
    LANGUAGES,
    MAX_CHARACTERS,
    language_probabilities,
    model_code,
)
from nmt.text.scripts import count_letters, is_in_other_script

MIN_LETTERS, MIN_WORDS = 14, 3
"""Minimum length of a text that may be clearly in another language than those of the server."""
MIN_OTHER_PROBABILITY = 0.5
MAX_SERVED_PROBABILITY = 0.03
"""Minimum probability of the other language, and maximum of those of the server."""
MAX_WORD_SCORE = -0.2
"""Maximum mean of the scores of its words: the probability of the languages of the server minus
that of any other. With these limits, none of 90,000 English and German texts, most of them short,
is taken for another language."""
_WORD = re.compile(r"[^\W\d_]+")


def language_name(code: str) -> str:
    """Return the English name of a language, or its code if the name is unknown."""
    name = NAMES.get(base_language(code), code)
    return name if code == base_language(code) or name == code else f"{name} ({code})"


class Detection(NamedTuple):
    """A possible language of a text."""

    language: str
    probability: float
    """In percent."""


def detect(text: str, codes: Collection[str]) -> list[Detection]:
    """Return the probability of each language, the most probable first.

    Args:
        text: its first 200 characters are used.
        codes: the possible languages. Their probabilities add up to less than 100 if the text may
            be in another one.
    """
    probabilities = language_probabilities(text, len(LANGUAGES))
    bases = set(map(base_language, codes))
    detections = []
    for code in codes:  # the probability of no is not that of nb, too, if both are possible
        base, known = base_language(code), model_code(code)
        probability = probabilities.get(known, 0.0) if base == known or known not in bases else 0.0
        detections.append(Detection(code, round(100 * min(1.0, probability), 1)))
    return sorted(detections, key=lambda each: -each.probability)


def other_language(text: str, codes: Collection[str]) -> str | None:
    """Return the language of a text that is clearly in none of some languages; otherwise None.

    A text in another script than theirs always is. A short text, such as a name, may belong to many
    languages.

    Args:
        text: its first 200 characters are used.
        codes: the languages.
    """
    known = {model_code(code) for code in codes}
    if not known <= LANGUAGES:
        return None
    probabilities, served = _split_probabilities(text, known)
    if not probabilities:
        return None
    other = max(probabilities, key=probabilities.__getitem__)
    if all(is_in_other_script(text, code) for code in codes):
        return other
    if probabilities[other] < MIN_OTHER_PROBABILITY or served > MAX_SERVED_PROBABILITY:
        return None
    start = text[:MAX_CHARACTERS].lower()
    words = _WORD.findall(start)
    if len(words) < MIN_WORDS or count_letters(start) < MIN_LETTERS:
        return None
    # A sentence with names may be probable in another language, but not its other words.
    total_score = 0.0
    for word in words:
        word_probabilities, served = _split_probabilities(word, known)
        total_score += served - max(word_probabilities.values(), default=0.0)
    return other if total_score < MAX_WORD_SCORE * len(words) else None


def _split_probabilities(text: str, known: Collection[str]) -> tuple[dict[str, float], float]:
    """Return the probabilities of other languages than the known ones, and that of the latter."""
    probabilities = language_probabilities(text, len(LANGUAGES))
    served = 0.0
    for code in known:
        served += probabilities.pop(code, 0.0)
    return probabilities, served
