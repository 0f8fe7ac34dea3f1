"""Numbers and a half in words: two and a half is zweieinhalb in German."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from nmt.text.language_codes import base_language
from nmt.text.lazy_pattern import lazy_pattern
from nmt.text.spans import Edit

_ENGLISH = "one two three four five six seven eight nine ten eleven twelve".split()
_GERMAN = "ein zwei drei vier fünf sechs sieben acht neun zehn elf zwölf".split()
_ENGLISH_HALF = lazy_pattern(
    rf"(?<![\w-])(?P<whole>{'|'.join(_ENGLISH)})[ -]and[ -]a[ -](?P<half>half)"
    r"(?!\w|[ -](?:dozen|hundred|thousand|million|billion|trillion)\b)",
    re.IGNORECASE,
)
_GERMAN_HALF = lazy_pattern(
    rf"(?<![\w-])(?:anderthalb|(?P<whole>{'|'.join(_GERMAN)})einhalb)(?![\w-])", re.IGNORECASE
)


class Half(NamedTuple):
    """A number and a half."""

    start: int
    end: int
    """Offsets of its characters."""
    whole: int
    """The number without the half, from 1 to 12."""
    is_title: bool = False
    """Whether its words have capitals, as in the title Two and a Half Men."""

    @property
    def english(self) -> str:
        """The number in digits, such as 2.5."""
        return f"{self.whole}.5"

    @property
    def german(self) -> str:
        """The number in digits, such as 2,5."""
        return f"{self.whole},5"

    @property
    def german_word(self) -> str:
        """The number in a word, such as zweieinhalb."""
        word = f"{_GERMAN[self.whole - 1]}einhalb"
        return word.capitalize() if self.is_title else word


def find_english_halves(text: str, src: str, tgt: str) -> list[Half]:
    """Return the numbers and a half in English text, in order, for a translation into German; none
    for other languages."""
    is_supported = base_language(src) == "en" and base_language(tgt) == "de"
    if not is_supported or "half" not in text.lower():  # fast path for most texts
        return []
    return [
        Half(*match.span(), 1 + _ENGLISH.index(match["whole"].lower()), match["half"].istitle())
        for match in _ENGLISH_HALF.finditer(text)
    ]


def german_halves_in_digits(text: str) -> Iterator[Edit]:
    """Yield the edits that write the halves of a German text in digits: models lose that of
    zweieinhalb, and translate 2,5."""
    for match in _GERMAN_HALF.finditer(text):
        whole = match["whole"] or "ein"
        half = Half(*match.span(), 1 + _GERMAN.index(whole.lower()))
        yield half.start, half.end, half.german


def missing_halves(source: str, text: str, src: str, tgt: str) -> list[str]:
    """Return the numbers and a half in an English source that its German translation lacks, in
    digits. A title may be copied."""
    missing: list[str] = []
    in_lower_case = text.lower()
    for half in find_english_halves(source, src, tgt):
        whole = half.whole
        forms = [half.german_word.lower(), half.german, f"{whole}½", f"{whole} ½", f"{whole} 1/2"]
        if whole == 1:
            forms.append("anderthalb")
        if half.is_title:
            forms.append(source[half.start : half.end].lower())
        if not any(form in in_lower_case for form in forms):
            missing.append(half.english)
    return missing
