"""Half hours: half past six is halb sieben in German, which names the next hour."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from nmt.text.language_codes import base_language
from nmt.text.lazy_pattern import lazy_pattern
from nmt.text.spans import Edit

_HOURS = {
    "de": "zwölf eins zwei drei vier fünf sechs sieben acht neun zehn elf".split(),
    "en": "twelve one two three four five six seven eight nine ten eleven".split(),
}
"""The hours in words, those at noon first."""
_HOUR = {code: rf"(?P<hour>{'|'.join(hours)}|\d{{1,2}})" for code, hours in _HOURS.items()}
_BEFORE_TIME = "|".join(rf"(?<=\b{word} )" for word in ("at", "by", "since", "till", "until"))


def _pattern(words: str) -> re.Pattern[str]:
    return lazy_pattern(rf"(?<![\w-])(?:{words})(?![\w-]|[.:,]\d)", re.IGNORECASE)


_SPOKEN = {
    "de": _pattern(rf"halb\s{_HOUR['de']}"),
    "en": _pattern(rf"(?:half[ -]past|(?:{_BEFORE_TIME})half)\s{_HOUR['en']}"),
}
_TRANSLATED = {
    "de": _SPOKEN["de"],
    "en": _pattern(rf"half(?:[ -]past| of)?\s{_HOUR['en']}"),
}
"""Half hours, and what models make of halb sieben: half seven and half of seven."""
_CLOCK = {
    "de": _pattern(rf"{_HOUR['de']}(?:[.:]30|\sUhr (?:30|dreißig))"),
    "en": _pattern(rf"{_HOUR['en']}(?:[.:]30|[ -]thirty)"),
}
"""Half hours as a clock shows them: 6:30."""


class HalfHour(NamedTuple):
    """Half an hour after an hour."""

    start: int
    end: int
    """Offsets of its characters."""
    hour: int
    """The hour that has begun, from 0, which is noon, to 11."""
    number: tuple[int, int]
    """Offsets of the number in it."""

    @property
    def clock(self) -> str:
        """The time as a clock shows it."""
        return f"{self.hour or 12}:30"


def find_half_hours(text: str, language: str) -> list[HalfHour]:
    """Return the half hours in words, as in half past six, in order; none for a language other than
    English and German."""
    code = base_language(language)
    return list(_find(text, code, _SPOKEN[code])) if code in _SPOKEN else []


def spell_hours(text: str, language: str) -> Iterator[Edit]:
    """Yield the edits that write the numbers of half hours in words: halb neun for halb 9."""
    for half_hour in find_half_hours(text, language):
        start, end = half_hour.number
        if text[start:end].isdigit():
            yield start, end, _HOURS[base_language(language)][int(text[start:end]) % 12]


def half_hour_edits(source: str, text: str, src: str, tgt: str) -> Iterator[Edit]:
    """Yield the edits of the half hours in a translation for which a model has copied the number,
    as in halb sechs for half past six."""
    if not missing_half_hours(source, text, src, tgt):
        return
    code = base_language(tgt)
    spoken = find_half_hours(source, src)
    translated = list(_find(text, code, _TRANSLATED[code]))
    if len(spoken) != len(translated):
        return
    for half_hour, found in zip(spoken, translated, strict=True):
        copied = half_hour.hour - 1 if code == "de" else half_hour.hour + 1
        if found.hour == copied % 12:
            yield found.start, found.end, _spell(half_hour.hour, code, text[found.start])


def missing_half_hours(source: str, text: str, src: str, tgt: str) -> list[str]:
    """Return the half hours in words of a source that its translation lacks, as a clock shows them;
    none if the languages are not English and German."""
    code = base_language(tgt)
    if {base_language(src), code} != {"de", "en"}:
        return []
    spoken = find_half_hours(source, src)
    if not spoken:
        return []
    known = Counter(each.hour for each in _find(text, code, _TRANSLATED[code]))
    known.update(_read(time["hour"], code) for time in _CLOCK[code].finditer(text))
    missing = Counter(each.hour for each in spoken) - known
    return [f"{hour or 12}:30" for hour in missing]


def _find(text: str, code: str, pattern: re.Pattern[str]) -> Iterator[HalfHour]:
    for match in pattern.finditer(text):
        hour = _read(match["hour"], code)
        if code == "de":  # halb sieben is half an hour before seven
            hour = (hour - 1) % 12
        yield HalfHour(*match.span(), hour, match.span("hour"))


def _read(hour: str, code: str) -> int:
    """Return the number of an hour modulo 12."""
    return int(hour) % 12 if hour.isdigit() else _HOURS[code].index(hour.lower())


def _spell(hour: int, code: str, first: str) -> str:
    """Return a half hour in words; `first` is a letter whose case that of the first letter is."""
    words = f"half past {_HOURS['en'][hour]}"
    if code == "de":
        words = f"halb {_HOURS['de'][(hour + 1) % 12]}"
    return words.capitalize() if first.isupper() else words
