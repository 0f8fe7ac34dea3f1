"""Text in a script that a language does not use, such as Cyrillic words in an English text."""

from __future__ import annotations

import re
from collections.abc import Container
from functools import cache

from nmt.text.language_codes import base_language
from nmt.text.lazy_pattern import lazy_pattern

_LATIN = (
    "af bs ca ceb cs cy da de en eo es et eu fi fo fr fy ga gd gl hr ht hu id is it la lb lt lv mg"
    " ms mt nb nl nn no oc pl pt ro sk sl sq sv sw tl tr vi zu"
)
_HAN_AND_KANA = (
    r"\u2e80-\u2fdf\u3005-\u30ff\u3190-\u9fff\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff"
)
_LANGUAGES_BY_SCRIPT = {
    "": _LATIN,
    r"\u0370-\u03ff\u1f00-\u1fff": "el",
    r"\u0400-\u052f\u1c80-\u1c8f\u2de0-\u2dff\ua640-\ua69f": "be bg kk ky mk mn ru sr tg tt uk",
    r"\u0590-\u05ff\ufb1d-\ufb4f": "he yi",
    r"\u0600-\u077f\u08a0-\u08ff\ufb50-\ufdff\ufe70-\ufefe": "ar fa ps ur",
    _HAN_AND_KANA: "ja zh",
    rf"\u1100-\u11ff\u3130-\u318f\ua960-\ua97f\uac00-\ud7ff{_HAN_AND_KANA}": "ko",
}
"""Languages by the letters that they use besides Latin ones, as a character class. All texts may
have Latin letters."""
_OTHER_SCRIPTS = (
    r"\u0370-\u1cff\u1f00-\u1fff\u2c00-\u2c5f\u2c80-\u2dff\u2e80-\u2fdf\u3005-\ua6ff\ua800-\uab2f\uabc0-\ufaff"
    r"\ufb13-\ufdff\ufe70-\ufefe\uff66-\uffdc\U00010280-\U0001e95f\U00020000-\U0003ffff"
)
"""The letters that are not Latin, and the marks and punctuation of their scripts."""
_OTHER_SCRIPT = lazy_pattern(f"[{_OTHER_SCRIPTS}]")
_LETTER = r"(?=[^\W\d_])"
_LETTER_OR_DIGIT = lazy_pattern(r"[^\W_]")

Span = tuple[int, int]


def foreign_spans(text: str, language: str, boundaries: Container[int] = ()) -> list[Span]:
    """Return the ranges of a text in scripts that a language does not use; none if its script is
    not known.

    Args:
        text: the text.
        language: code of its language.
        boundaries: offsets between which each range is, unless they are in a word.
    """
    pattern = _foreign_words(base_language(language))
    if pattern is None or text.isascii():
        return []
    spans: list[Span] = []
    for match in pattern.finditer(text):
        start, end = match.span()
        if spans and _is_continued(text, spans[-1][1], start, boundaries):
            start = spans.pop()[0]
        spans.append((start, end))
    return spans


def is_in_other_script(text: str, language: str) -> bool:
    """Return whether most letters of a text are in words of scripts that a language does not use.

    A single letter, such as those of formulas, is no word. False if the script of the language is
    not known.
    """
    if text.isascii() or not _OTHER_SCRIPT.search(text):  # fast path for most texts
        return False
    pattern = _foreign_words(base_language(language))
    if pattern is None:
        return False
    num_foreign = 0
    for match in pattern.finditer(text):
        word = match[0]
        if len(word) > 1:
            num_foreign += count_letters(word)
    return 2 * num_foreign > count_letters(text)


def count_letters(text: str) -> int:
    """Return the number of letters of a text."""
    return sum(map(str.isalpha, text))


def _is_continued(text: str, end: int, start: int, boundaries: Container[int]) -> bool:
    """Return whether two foreign words, the end and start of which are given, have no word between
    them."""
    has_boundary = any(position in boundaries for position in range(end, start + 1))
    return not has_boundary and _LETTER_OR_DIGIT.search(text, end, start) is None


@cache
def _foreign_words(language: str) -> re.Pattern[str] | None:
    """Return a pattern of a word in a script that a language does not use."""
    for letters, languages in _LANGUAGES_BY_SCRIPT.items():
        if language in languages.split():
            foreign = rf"(?![{letters}])[{_OTHER_SCRIPTS}]" if letters else f"[{_OTHER_SCRIPTS}]"
            return re.compile(f"{_LETTER}{foreign}(?:{foreign})*")
    return None
