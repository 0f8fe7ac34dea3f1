"""Times in words: half past six is halb sieben in German, which names the next hour."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from nmt.text.language_codes import base_language
from nmt.text.lazy_pattern import lazy_pattern
from nmt.text.spans import Edit

_NOON = 12 * 60
_HALF = 30
_HOURS = {
    "de": "zwölf eins zwei drei vier fünf sechs sieben acht neun zehn elf".split(),
    "en": "twelve one two three four five six seven eight nine ten eleven".split(),
}
"""The hours in words, those at noon first."""
_WORDS = {"de": ("halb", "viertel"), "en": ("half", "quarter")}
_MINUTES_OF_PARTS = {
    "halb": -30,
    "viertel": -45,
    "dreiviertel": -15,
    "viertelnach": 15,
    "viertelvor": -15,
    "halfpast": 30,
    "half": 30,
    "halfof": 30,
    "quarterpast": 15,
    "quarterafter": 15,
    "quarterto": -15,
    "quartertill": -15,
}
"""Minutes that the words before an hour add to it, without spaces."""
_TWELVE = ("midnight", "noon")
_NAMES = {"de": _HOURS["de"], "en": [*_HOURS["en"], *_TWELVE]}
_HOUR = {code: rf"(?P<hour>{'|'.join(names)}|[01]?\d|2[0-4])" for code, names in _NAMES.items()}
_BEFORE_TIME = "|".join(rf"(?<=\b{word} )" for word in ("at", "since", "till", "until"))
_BEFORE_TIME_OR_AMOUNT = "|".join(
    rf"(?<=\b{word} )"
    for word in (
        *("about", "after", "around", "before", "by", "from"),
        *("begins", "closes", "opens", "starts"),
    )
)


def _pattern(words: str) -> re.Pattern[str]:
    return lazy_pattern(rf"(?<![\w-])(?:{words})(?![\w-]|[.:,]\d)", re.IGNORECASE)


_QUARTER = "quarter[ -](?:past|after|to|till)"
_NO_AMOUNT = "".join(
    rf"(?<!\b{words} )"
    for words in (
        *("the", "first", "second", "third", "fourth", "last", "this", "next", "previous"),
        *("fiscal", "one", "by a", "from a"),
    )
)
"""That a quarter is none of a year or of an amount, as in by a quarter to five million."""
_AFTER_HOUR = (
    r"(?=\s?[^\w\s%°$€£¥+]|\s?$|\s(?:[ap]\.?m|o['’]clock|sharp|last|next|in|on|at|to|till?|until|for|with"
    r"|and|or|but|so|because|when|while|if|as|is|was|I|you|we|he|she|it|they|the|every|each|this"
    r"|that|today|tonight|tomorrow|yesterday|\w{3,6}day)\b)"
)
"""What shows that a number is an hour, unlike the two years after a cut by half."""
_AFTER_WORD = "|".join(
    rf"(?<=\b{word} )"
    for word in ("um", "ab", "bis", "vor", "nach", "gegen", "seit", "von", "und", "oder", "ist")
)
_BARE_QUARTER = rf"(?-i:viertel)|(?:{_AFTER_WORD}|(?<!\w\s))(?-i:Viertel)"
"""Viertel acht, but not im Viertel acht Häuser, where it is a noun."""
_BEFORE_NOUN = r"(?=\s\w+\s(?!Uhr)(?-i:[A-ZÄÖÜ]))"
_SPOKEN = {
    "de": _pattern(
        rf"(?P<part>halb|drei\s?viertel|viertel\s(?:nach|vor)(?!{_BEFORE_NOUN})|{_BARE_QUARTER})"
        rf"\s{_HOUR['de']}"
    ),
    "en": _pattern(
        rf"(?:a\s)?(?P<part>half[ -]past|(?:{_BEFORE_TIME})half"
        rf"|(?P<unsure>(?:{_BEFORE_TIME_OR_AMOUNT})half|{_NO_AMOUNT}{_QUARTER}))"
        rf"\s{_HOUR['en']}(?!\sof\b)(?(unsure){_AFTER_HOUR})"
    ),
}
"""Times in words, but not the last quarter after eight rounds."""
_TRANSLATED = {
    "de": _pattern(rf"(?P<part>halb|(?:drei\s?)?viertel(?:\s(?:nach|vor))?)\s{_HOUR['de']}"),
    "en": _pattern(rf"(?P<part>half(?:[ -]past| of)?|{_QUARTER})\s{_HOUR['en']}"),
}
"""Times in words, and what models make of halb sieben: half seven and half of seven."""
_MINUTES = {
    "de": {"fünfzehn": 15, "dreißig": 30, "fünfundvierzig": 45},
    "en": {"fifteen": 15, "thirty": 30, "forty-five": 45},
}
_CLOCK = {
    "de": _pattern(rf"{_HOUR['de']}(?:[.:]|\sUhr )(?P<minute>15|30|45|{'|'.join(_MINUTES['de'])})"),
    "en": _pattern(rf"{_HOUR['en']}[ .:-](?P<minute>15|30|45|{'|'.join(_MINUTES['en'])})"),
}
"""Times as a clock shows them, such as 6:30."""


class SpokenTime(NamedTuple):
    """A time in words."""

    start: int
    end: int
    """Offsets of its characters."""
    minutes: int
    """Minutes since noon or midnight."""
    number: tuple[int, int]
    """Offsets of the number in it."""

    @property
    def clock(self) -> str:
        """The time as a clock shows it."""
        return _on_clock(self.minutes)


def find_spoken_times(text: str, language: str) -> list[SpokenTime]:
    """Return the times in words that name a half or a quarter of an hour, in order; none for a
    language other than English and German."""
    code = base_language(language)
    in_lower_case = text.lower()
    if not any(word in in_lower_case for word in _WORDS.get(code, ())):  # fast path for most texts
        return []
    return list(_find(text, code, _SPOKEN[code]))


def spell_hours(text: str, language: str) -> Iterator[Edit]:
    """Yield the edits that write the numbers of these times in words: halb neun for halb 9."""
    for time in find_spoken_times(text, language):
        start, end = time.number
        if text[start:end].isdigit():
            yield start, end, _HOURS[base_language(language)][int(text[start:end]) % 12]


def half_hour_edits(source: str, text: str, src: str, tgt: str) -> Iterator[Edit]:
    """Yield the edits of the half hours in a translation for which a model has copied the number,
    as in halb sechs for half past six."""
    if not missing_times(source, text, src, tgt):
        return
    code = base_language(tgt)
    spoken = find_spoken_times(source, src)
    translated = list(_find(text, code, _TRANSLATED[code]))
    if len(spoken) != len(translated):
        return
    error = -60 if code == "de" else 60
    for time, found in zip(spoken, translated, strict=True):
        if time.minutes % 60 == _HALF and found.minutes == (time.minutes + error) % _NOON:
            yield found.start, found.end, _spell_half(time.minutes, code, text[found.start])


def missing_times(source: str, text: str, src: str, tgt: str) -> list[str]:
    """Return the times in words of a source that its translation lacks, as a clock shows them; none
    if the languages are not English and German."""
    code = base_language(tgt)
    if {base_language(src), code} != {"de", "en"}:
        return []
    spoken = find_spoken_times(source, src)
    if not spoken:
        return []
    known = Counter(time.minutes for time in _find(text, code, _TRANSLATED[code]))
    known.update(_read_clock(match, code) for match in _CLOCK[code].finditer(text))
    missing = Counter(time.minutes for time in spoken) - known
    return list(map(_on_clock, missing))


def _find(text: str, code: str, pattern: re.Pattern[str]) -> Iterator[SpokenTime]:
    for match in pattern.finditer(text):
        part = re.sub(r"\W", "", match["part"].lower())
        minutes = 60 * _read_hour(match, code) + _MINUTES_OF_PARTS[part]
        yield SpokenTime(*match.span(), minutes % _NOON, match.span("hour"))


def _read_clock(time: re.Match[str], code: str) -> int:
    """Return the minutes of a time on a clock."""
    minute = time["minute"].lower()
    minutes = _MINUTES[code].get(minute) or int(minute)
    return (60 * _read_hour(time, code) + minutes) % _NOON


def _read_hour(time: re.Match[str], code: str) -> int:
    hour = time["hour"].lower()
    if hour in _TWELVE:
        return 0
    return int(hour) if hour.isdigit() else _HOURS[code].index(hour)


def _on_clock(minutes: int) -> str:
    hour, minute = divmod(minutes, 60)
    return f"{hour or 12}:{minute:02d}"


def _spell_half(minutes: int, code: str, first: str) -> str:
    """Return a half hour in words; `first` is a letter whose case that of the first letter is."""
    hour = minutes // 60
    words = f"half past {_HOURS['en'][hour]}"
    if code == "de":
        words = f"halb {_HOURS['de'][(hour + 1) % 12]}"
    return words.capitalize() if first.isupper() else words
