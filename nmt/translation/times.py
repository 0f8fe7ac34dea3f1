"""Times of day in German, which counts the hours from midnight, and English, which counts from
noon, too."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from nmt.text.language_codes import base_language
from nmt.text.lazy_pattern import lazy_pattern
from nmt.text.number_words import find_number_words
from nmt.text.spans import Edit, apply_edits
from nmt.text.spoken_times import half_hour_edits

_MINUTES_OF_DAY = 24 * 60
_NOON = 12 * 60
_CLOCK = r"(?<![\w.,:])(?P<hour>\d{1,2})(?:[.:](?P<minute>[0-5]\d))?"
_GERMAN = lazy_pattern(
    rf"{_CLOCK}\sUhr\b(?:\s(?:(?P<first_half>früh|morgens|vormittags)"
    r"|(?P<second_half>nachmittags|abends)|(?P<either_half>mittags|nachts)))?"
)
_ENGLISH = lazy_pattern(
    rf"{_CLOCK}(?P<half>\s?[ap]\.?m\b(?:\.(?=,|\s+(?-i:[a-z])))?)", re.IGNORECASE
)
"""A time, without the period that ends its sentence, too."""
_START_OF_RANGE = (
    r"(?<![\w.,:])(?P<first>\d{1,2})(?:[.:][0-5]\d)?"
    r"\s?(?:bis|und|oder|to|until|till|and|or|[–-])\s?"
)
_GERMAN_RANGE = lazy_pattern(rf"{_START_OF_RANGE}(?={_CLOCK}\sUhr\b)")
_ENGLISH_RANGE = lazy_pattern(rf"{_START_OF_RANGE}(?={_CLOCK}\s?p\.?m\b)", re.IGNORECASE)
"""The time before another one, such as the 2 in 2 to 5 p.m."""
_TIMES = {"de": (_GERMAN, _GERMAN_RANGE), "en": (_ENGLISH, _ENGLISH_RANGE)}
_NUMBER = lazy_pattern(r"(?<![\w.,:])\d{1,2}(?!\d)")
_IN_WORDS = lazy_pattern(r"\b(?:halb|(?:drei)?viertel|ein Uhr|eins|half|quarter|past|one)\b")
"""A time whose hour is in words, and may be that of the source and one more."""
_WITH_POINT = lazy_pattern(r"\d{1,2}\.[0-5]\d")
_HALVES = ("first_half", "second_half")
_OTHER_HALF = str.maketrans("apAP", "paPA")


def localize_time(number: str, following: str) -> str:
    """Return 8:30 for the number of a German time such as 8.30 Uhr, and others as they are."""
    is_time = _WITH_POINT.fullmatch(number) and re.match(r"\sUhr\b", following)
    return number.replace(".", ":") if is_time else number


def correct_times(source: str, text: str, src: str, tgt: str) -> str:
    """Return a translation whose times are those of the source: models translate half past six as
    halb sechs, 20:15 Uhr as 8:15 a.m., and 2 p.m. as 2 Uhr.

    Only translations between English and German are changed.
    """
    text = apply_edits(text, half_hour_edits(source, text, src, tgt))
    match base_language(src), base_language(tgt):
        case ("de", "en"):
            text = apply_edits(text, _english_edits(source, text))
            return apply_edits(text, _english_range_edits(text))
        case ("en", "de"):
            text = apply_edits(text, _german_edits(source, text))
            return apply_edits(text, _german_range_edits(source, text))
    return text


def missing_hours(source: str, text: str, src: str, tgt: str) -> list[int]:
    """Return the hours of times of the source, counted from noon, that a translation lacks.

    Noon and midnight are left out, because they are often words.
    """
    patterns = _TIMES.get(base_language(src))
    if not patterns or base_language(tgt) not in _TIMES or _IN_WORDS.search(text):
        return []
    times, ranges = patterns
    hours: Counter[int] = Counter()
    for time in times.finditer(source):
        hours[_hour(time) % 12] += 1
    for time in ranges.finditer(source):
        hours[_first(time) % 12] += 1
    del hours[0]
    if not hours:
        return []
    numbers = list(map(int, _NUMBER.findall(text)))
    for word in find_number_words(text, tgt):
        numbers.append(word.value)
    for number in numbers:
        if number <= 24:
            hours[number % 12] -= 1
    return sorted(hour for hour in hours if hours[hour] > 0)


def _english_edits(source: str, text: str) -> Iterator[Edit]:
    """Yield the edits of times in a translation from German."""
    known = set()
    certain = set()  # but 8 Uhr may be in the evening
    for time in _GERMAN.finditer(source):
        known.add(_minutes(time))
        is_certain = not 0 < _hour(time) <= 12 or time.lastgroup in _HALVES
        if is_certain:
            certain.add(_minutes(time))
    for time in _ENGLISH.finditer(text):
        hour = _hour(time)
        if hour == 0:  # 0:30 a.m.
            yield *time.span("hour"), "12"
        if hour > 12:  # 14:05 p.m.
            yield *time.span("half"), ""
        elif _minutes(time) not in known and _in_other_half(time) in certain:
            yield *time.span("half"), time["half"].translate(_OTHER_HALF)


def _german_edits(source: str, text: str) -> Iterator[Edit]:
    """Yield the edits of times in a translation from English."""
    known = {_minutes(time) for time in _ENGLISH.finditer(source)}
    for time in _GERMAN.finditer(text):
        other = _in_other_half(time)
        has_daytime = time.lastgroup not in ("hour", "minute")
        if not has_daytime and _minutes(time) not in known and other in known:
            yield *time.span("hour"), str(other // 60)


def _english_range_edits(text: str) -> Iterator[Edit]:
    """Yield the edits of ranges such as 14 to 4 p.m."""
    for time in _ENGLISH_RANGE.finditer(text):
        first = _first(time)
        if first > 12:
            yield *time.span("first"), str(first - 12)


def _german_range_edits(source: str, text: str) -> Iterator[Edit]:
    """Yield the edits of ranges such as 2 bis 17 Uhr, for 2 to 5 p.m."""
    after_noon = set()
    for time in _ENGLISH_RANGE.finditer(source):
        if _first(time) < _hour(time) < 12:  # but 10 to 2 p.m. begins before noon
            after_noon.add(_first(time))
    for time in _GERMAN_RANGE.finditer(text):
        first = _first(time)
        if first in after_noon and _hour(time) > 12:
            yield *time.span("first"), str(first + 12)


def _hour(time: re.Match[str]) -> int:
    return int(time["hour"])


def _first(time: re.Match[str]) -> int:
    return int(time["first"])


def _minutes(time: re.Match[str]) -> int:
    """Return the minutes since midnight."""
    groups = time.groupdict()
    hour = _hour(time)
    half = (groups.get("half") or "").lower()
    if half and hour <= 12:
        hour %= 12
    is_after_noon = "p" in half or groups.get("second_half")
    if is_after_noon and hour < 12:
        hour += 12
    minute = int(time["minute"] or 0)
    return (60 * hour + minute) % _MINUTES_OF_DAY


def _in_other_half(time: re.Match[str]) -> int:
    """Return the minutes since midnight of the same time in the other half of the day."""
    return (_minutes(time) + _NOON) % _MINUTES_OF_DAY
