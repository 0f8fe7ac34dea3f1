"""Names of languages, and identification of the language of a text among those that the server
translates."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from nmt.text.language_codes import NAMES, base_language
from nmt.text.language_identification import LANGUAGES, language_probabilities, model_code


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
