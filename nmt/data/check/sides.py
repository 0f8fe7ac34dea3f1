"""Text on the wrong side: a source that is in the target language, or two sides that are
swapped."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import islice

from nmt.core.errors import UsageError
from nmt.text.language_codes import NAMES, base_language
from nmt.text.language_identification import is_wrong_language, language_probabilities, model_code
from nmt.text.scripts import is_in_other_script
from nmt.text.words import normalized_words

MIN_LINES = 20
"""Minimum number of lines for the language identification: loading it takes longer than translating
a sentence."""
MAX_LINES, GROUP_SIZE = 200, 5
"""Maximum number of lines that are judged, and number of lines that are identified together."""
UNKNOWN = "another language"

FREQUENT_WORDS = {
    "en": frozenset(
        "the and is of to that it for you he she on are this i my have be what how can does did"
        " has had your his they we there who would but or at from by".split()
    ),
    "de": frozenset(
        "der das und ist zu nicht sie ein eine auf ich wir bist sind habe haben wie wo auch noch"
        " aber für wird kann mich mir dich einen einem einer bei dass geht du ihr".split()
    ),
}
"""Frequent words that are not words of the other language, as `die`, `hat`, `in` and `was` are."""


def wrong_language(lines: Iterable[str], expected: str, other: str) -> str | None:
    """Return the language that most lines are clearly in instead of `expected`; None if they may be
    in `expected`.

    Scripts and frequent words decide. If they do not, at least `MIN_LINES` lines are identified by
    fastText's model.

    Args:
        lines: a text, of which the start is judged.
        expected: code of the language that the text should be in.
        other: code of the other language of the pair.
    """
    sample = list(islice((line for line in lines if any(map(str.isalpha, line))), MAX_LINES))
    language = _majority([_guess(line, expected, other) for line in sample])
    if language is None and len(sample) >= MIN_LINES:
        groups = [" ".join(sample[i : i + GROUP_SIZE]) for i in range(0, len(sample), GROUP_SIZE)]
        try:
            language = _majority([_identify(group, expected, other) for group in groups])
        except UsageError:  # the language identification is not installed
            return None
    return None if language == expected else language


def is_wrong_source(text: str, src: str, tgt: str) -> bool:
    """Return whether a text is clearly not in the source language.

    Its lines are judged like those of `wrong_language`, which needs only a few words, and its start
    is identified if it is long enough.
    """
    if wrong_language(text.splitlines(), src, tgt) is not None:
        return True
    return is_wrong_language(text, src)


def swap_warning(
    name: str, sources: Sequence[str], targets: Sequence[str], languages: tuple[str, str]
) -> str | None:
    """Return a warning if sentence pairs have sources in the target language; None if they do not.

    Args:
        name: what the pairs are called in the warning.
        sources: source sentences.
        targets: their translations.
        languages: codes of source and target.
    """
    src, tgt = languages
    if wrong_language(sources, src, tgt) != tgt:
        return None
    source_name, target_name = map(english_name, languages)
    if wrong_language(targets, tgt, src) == src:
        return (
            f"warning: the two sides of {name} seem to be swapped: the sources are in {target_name}"
            f" and the targets in {source_name}"
        )
    return (
        f"warning: the sources of {name} seem to be in {target_name}, the target language, not in"
        f" {source_name}"
    )


def english_name(language: str) -> str:
    """Return the English name of a language, or its code if the name is unknown."""
    return NAMES.get(base_language(language), language)


def _majority(guesses: Sequence[str | None]) -> str | None:
    """Return the language of more than half of the guesses; None if there is none."""
    for language, count in Counter(guesses).items():
        if 2 * count > len(guesses):
            return language
    return None


def _guess(line: str, expected: str, other: str) -> str | None:
    """Return the language of a line by its script and its frequent words; None if they do not
    decide."""
    if is_in_other_script(line, expected):
        return UNKNOWN if is_in_other_script(line, other) else other
    expected_words, other_words = (
        FREQUENT_WORDS.get(base_language(code)) for code in (expected, other)
    )
    if not expected_words or not other_words:
        return None
    words = normalized_words(line)
    has_expected, has_other = (not each.isdisjoint(words) for each in (expected_words, other_words))
    if has_expected == has_other:
        return None
    return expected if has_expected else other


def _identify(text: str, expected: str, other: str) -> str | None:
    """Return the identified language of a text; None if it may be `expected`."""
    if not is_wrong_language(text, expected):
        return None
    probabilities = language_probabilities(text, 1)
    language = max(probabilities, key=probabilities.__getitem__)
    return other if language == model_code(other) else language
