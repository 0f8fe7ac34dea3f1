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
_AFTER_THE = frozenset({"Sun", "fig", "figs"})
"""Words that are no abbreviations after an article: the Sun, the fig."""
_THE = lazy_pattern(r"\b[Tt]he\s$")
_BEFORE_ANSWER = lazy_pattern(
    r"(?:[?][\"'”’)]*|\b(?:sa(?:y|ys|id|ying)|(?:answer|reply|vote|verdict)(?:\s(?:is|was))?|answer(?:s|ed)"
    r"|repli(?:es|ed)|means?|meant|yes\sor|clear|definite|resounding|simple|firm|[Nn]o,))"
    r"\s[\"“‘']?$"
)
_SENTENCE_START = lazy_pattern(r"(?:^|[.!?]\W{1,5})$")
_COUNTED = lazy_pattern(
    r"\.\s(?!1\s)[\d.,]+\s(?:people|men|women|children|of|more|others?|percent|\w{2,30}[^\W_sui]s)\b"
)
"""A number of things, which a number after No. is not."""
_DETERMINER = lazy_pattern(r"\b(?:[Aa]n?|[Tt]he|[Tt]his|per|every|each)\s$")
_CAPITALIZED_WORD = lazy_pattern(rf"\s+(?!(?:{_NAMES})\b)[A-Z][a-z]")
_NO_NOUN = lazy_pattern(r"\W*$|\s?[),;:]|\s+in\s")
_CONTEXT = 30
"""Maximum number of characters that are read before an abbreviation."""


def is_date(text: str, start: int, end: int) -> bool:
    """Return whether a word before a period, such as Sun, is a day or month, because it is after a
    preposition or next to another one."""
    before = text[max(0, start - _CONTEXT) : start]
    return bool(_AFTER_DATE.search(before) or _BEFORE_DATE.match(text, end))


def is_other_word(word: str, text: str, start: int) -> bool:
    """Return whether a word before a period is no abbreviation of a number or title, such as
    the answer No."""
    before = text[max(0, start - _CONTEXT) : start]
    if word == "No" and _SENTENCE_START.search(before) and _COUNTED.match(text, start + len(word)):
        return True
    if word.lower() == "no":
        return _BEFORE_ANSWER.search(before) is not None
    if word in ("Gen", "Pres"):
        return before.endswith("J. ")
    return word in _AFTER_THE and _THE.search(before) is not None


def is_after_determiner(text: str, start: int) -> bool:
    """Return whether a number belongs to a noun after its measure, as in a 30 min. lesson."""
    return _DETERMINER.search(text[max(0, start - _CONTEXT) : start]) is not None


def starts_with_capital(text: str, start: int) -> bool:
    """Return whether the next word of a text is capitalized, but no day or month."""
    return _CAPITALIZED_WORD.match(text, start) is not None


def has_no_noun(text: str, start: int) -> bool:
    """Return whether no noun follows an abbreviation, as in taxes incl."""
    return _NO_NOUN.match(text, start) is not None
