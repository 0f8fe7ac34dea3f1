"""Formats of numbers: their decimal and group separators."""

from __future__ import annotations

import re
from typing import NamedTuple

from nmt.text.language_codes import base_language
from nmt.text.lazy_pattern import lazy_pattern
from nmt.text.normalization import LETTER_OR_DIGIT
from nmt.text.spans import UNIT

_SEPARATOR = r"[.,:'’\s]"
_QUANTITY = lazy_pattern(r"[-+−]?[^\w\s]?\s?\d(?:[\d.,:'’\s]*\d)?(?:\s?[^\d\s]{1,6})?")
"""A number with an optional sign, currency and unit."""
_PART = lazy_pattern(r"\d+|[^\d.,:'’\s]+")

_COMMA_LANGUAGES = frozenset(
    "bg ca cs da de el es et fi fr hr hu id is it lt lv nb nl nn no pl pt ro ru sk sl sr sv tr"
    " uk vi".split()
)
_POINT_LANGUAGES = frozenset("en he ja ko th zh".split())
_SWAPPED = str.maketrans(".,", ",.")
_GROUPED = r"\d{{1,3}}(?:{group}\d{{3}})+"
# In 1.234, the point may separate groups.
_UNGROUPED = r"0|\d{{4,}}|\d{{1,3}}(?!{decimal}\d{{3}}\b)"
_DECIMAL = "(?:" + _GROUPED + "|" + _UNGROUPED + r"){decimal}\d+"
_DECIMAL_COMMA = _DECIMAL.format(group=r"\.", decimal=",")
_DECIMAL_POINT = _DECIMAL.format(group=",", decimal=r"\.")
_WITH_COMMA = lazy_pattern(rf"[^\d.,]*{_DECIMAL_COMMA}(?:-{_DECIMAL_COMMA})?[^\d.,]*")
_WITH_POINT = lazy_pattern(rf"[^\d.,]*{_DECIMAL_POINT}(?:-{_DECIMAL_POINT})?[^\d.,]*")
_MILLIONS_WITH_POINTS = lazy_pattern(r"[^\d.,]*\d{1,3}(?:\.\d{3}){2,3}[^\d.,]*")
_THOUSANDS = r"[1-9]\d{0,2}\.\d{3}"
_THOUSANDS_WITH_POINT = lazy_pattern(rf"[^\d.,]*{_THOUSANDS}(?:-{_THOUSANDS})?[^\d.,]*")
_GROUPS = r"[1-9]\d{0,2}(?:,\d{3}){1,3}(?:\.\d+)?"
_GROUPED_WITH_COMMAS = lazy_pattern(rf"[^\d.,]*{_GROUPS}(?:-{_GROUPS})?[^\d.,]*")
_ADJECTIVE = "[a-zäöüß]+e[nrs]?"
_BEFORE_NOUN = lazy_pattern(
    rf"(?:(?: ?[–-] ?| (?:bis|und|oder) )\d[\d.,]*)?"
    rf"(?:(?:[ \u00a0]{_ADJECTIVE}(?:, {_ADJECTIVE})?)?[ \u00a0-][„“\"»]?[A-ZÄÖÜ]"
    rf"|[ \u00a0]?{UNIT}[²³]?(?!\w)|[ ](?:mehr|weniger|pro|von (?:ihnen|uns))\b)"
)
"""What shows in German that a number with a point is no version or section."""
_NUMBERED = lazy_pattern(
    r"(?:(?:version|release|build|kapitel|abschnitt|tabelle|abbildung|anhang|ziffer|nummer)(?:en|n|s)?"
    r"|\bnr\.|§) $",
    re.IGNORECASE,
)
"""The end of a text before the number of a version or section, in German."""
_MONEY_AHEAD = lazy_pattern(r" (?:US-)?(?:Euro|Dollar|Franken)\b")
_AMOUNT_BEFORE = lazy_pattern(
    r"\b(?:EUR|USD|CHF|GBP|Euro|[Rr]und|[Ee]twa|[Cc]a\.|[Cc]irca|[Kk]napp|[Ff]ast|[Uu]ngefähr"
    r"|[Nn]ahezu|(?:[Mm]ehr|[Ww]eniger) als|[Bb]is zu|[Ii]nsgesamt|[Mm]indestens|[Hh]öchstens) $"
)
_BEFORE_MEASURE = lazy_pattern(
    r"(?:(?: ?[–-] ?| (?:to|and|or) )\d[\d.,]*)?[ -](?!(?:times|points) out\b(?! of\b))"
    r"(?:(?:hundred|thousand|(?:m|b|tr)illion"
    r"|per ?cent|percentage|times|square|cubic|metric|feet|foot|inch(?:es)?"
    r"|(?:kilo|centi|milli)?(?:met(?:er|re)|gram)s?|(?:second|minute|hour|day|week|month|year|point|star|degree|mile|yard|ton|tonne|pound"
    r"|ounce|lit(?:er|re)|gallon|acre|hectare|knot|kilo|cup|(?:table|tea)spoon|serving|portion|slice"
    r"|(?:kilo)?calorie|(?:kilo|mega|giga|tera)?(?:byte|bit|watt|hertz|joule)|decade|euro|dollar"
    r"|cent|volt|amp)s?)\b)",
    re.IGNORECASE,
)
"""What shows in English that a number with a point is no version or section."""


class Context(NamedTuple):
    """What is around a number in a text."""

    preceding: str
    """The text before it."""
    following: str
    """The text after it."""
    has_thousands: bool = False
    """Whether other numbers of the text have thousands."""


def localize_decimal(number: str, context: Context, src: str, tgt: str) -> str:
    """Return a decimal number or one with groups of three digits, with its unit and currency, in
    the format of the target language.

    It stays as it is if the languages have the same format, or if it may be something else: a
    number with one point that has no unit and is not before a measure may be a version.

    Args:
        number: the number.
        context: what is around it.
        src: language code of the text.
        tgt: language code of the target.
    """
    source = base_language(src)
    target = base_language(tgt)
    has_unit = re.search(r"[^\d.,+−-]", number) is not None
    if source in _COMMA_LANGUAGES and target in _POINT_LANGUAGES:
        is_group = has_unit or _is_group(number, context)
        is_thousands = is_group and _THOUSANDS_WITH_POINT.fullmatch(number)
        is_millions = _MILLIONS_WITH_POINTS.fullmatch(number)
        is_number = _WITH_COMMA.fullmatch(number) or is_thousands or is_millions
    elif source in _POINT_LANGUAGES and target in _COMMA_LANGUAGES:
        is_measure = has_unit or _BEFORE_MEASURE.match(context.following) is not None
        is_decimal = is_measure and _WITH_POINT.fullmatch(number)
        is_number = is_decimal or _GROUPED_WITH_COMMAS.fullmatch(number)
    else:
        return number
    return swap_separators(number) if is_number else number


def _is_group(number: str, context: Context) -> bool:
    """Return whether the point of a German number separates groups, and not parts of a version."""
    is_amount = _MONEY_AHEAD.match(context.following) or _AMOUNT_BEFORE.search(context.preceding)
    if is_amount or not _NUMBERED.search(context.preceding):
        is_measure = is_amount or _BEFORE_NOUN.match(context.following)
        return bool(is_measure or context.has_thousands or number.endswith(".000"))
    return False


def swap_separators(number: str) -> str:
    """Return a number with points in place of commas, and commas in place of points."""
    return number.translate(_SWAPPED)


def equivalent_pattern(number: str) -> re.Pattern[str] | None:
    """Return a pattern of a number or quantity with any separators and spaces; None if it has only
    one format.

    Separators may be missing, but not before one or two last digits: those of decimals or of a
    time.
    """
    parts = _PART.findall(number)
    if len(parts) < 2 or not _QUANTITY.fullmatch(number):
        return None
    pattern = re.escape(parts[0])
    last = next((part for part in reversed(parts) if part.isdigit()), "")
    for previous, part, following in zip(parts, parts[1:], [*parts[2:], ""], strict=False):
        # 1,00,000 in India.
        is_group = len(part) > 2 or (len(part) == 2 and following.isdigit() and len(last) == 3)
        is_required = previous.isdigit() and part.isdigit() and not is_group
        pattern += f"{_SEPARATOR}{'' if is_required else '?'}{re.escape(part)}"
    return re.compile(
        rf"(?<!{LETTER_OR_DIGIT})(?<!\d[.,:/]){pattern}(?!{LETTER_OR_DIGIT}|[.,:/]\d)"
    )
