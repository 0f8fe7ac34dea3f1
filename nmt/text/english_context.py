"""What is around English abbreviations that may be other words, such as no. and Sun."""

from __future__ import annotations

from nmt.text.lazy_pattern import lazy_pattern

CALENDAR = {
    "Apr": "April",
    "Aug": "August",
    "Dec": "December",
    "Feb": "February",
    "Fri": "Friday",
    "Nov": "November",
    "Oct": "October",
    "Sept": "September",
    "Thu": "Thursday",
    "Thurs": "Thursday",
    "Tue": "Tuesday",
    "Tues": "Tuesday",
    "Wed": "Wednesday",
}
"""Abbreviations of days and months."""
AMBIGUOUS_CALENDAR = {
    "Jan": "January",
    "Mar": "March",
    "Mon": "Monday",
    "Sat": "Saturday",
    "Sep": "September",
    "Sun": "Sunday",
}
"""Those that may be other words or names."""
_NAMES = "|".join([*CALENDAR, *AMBIGUOUS_CALENDAR])
_TO_NAME = r"\.\s?(?:[/–-]|,|and|or|to|through)\s?"
_AFTER_DATE = lazy_pattern(rf"(?:\b[oO]n\s|\b[iI]n\s|\b(?:{_NAMES}){_TO_NAME})$")
_BEFORE_DATE = lazy_pattern(rf"{_TO_NAME}(?:{_NAMES})\b")
COUNTED = (
    r"\s(?!1\s)[\d.,]+\s(?:people|men|women|children|of|more|others?|percent|\w{2,30}[^\W_sui]s)\b"
)
"""A number of things, which a number after No. is not, as a regular expression."""
_DETERMINER = lazy_pattern(r"\b(?:[Aa]n?|[Tt]he|[Tt]his|per|every|each)\s$")
_CAPITALIZED_WORD = lazy_pattern(rf"\s+(?!(?:{_NAMES})\b)[A-Z][a-z]")
_CONTEXT = 30
"""Maximum number of characters that are read before an abbreviation."""


def is_date(text: str, start: int, end: int) -> bool:
    """Return whether a word before a period, such as Sun, is a day or month, because it is after a
    preposition or next to another one."""
    before = text[max(0, start - _CONTEXT) : start]
    return bool(_AFTER_DATE.search(before) or _BEFORE_DATE.match(text, end))


def is_after_determiner(text: str, start: int) -> bool:
    """Return whether a number belongs to a noun after its measure, as in a 30 min. lesson."""
    return _DETERMINER.search(text[max(0, start - _CONTEXT) : start]) is not None


def starts_with_capital(text: str, start: int) -> bool:
    """Return whether the next word of a text is capitalized, but no day or month."""
    return _CAPITALIZED_WORD.match(text, start) is not None
