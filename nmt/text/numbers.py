"""Formats of numbers: decimal and group separators of languages."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from ipaddress import IPv4Address

from nmt.core.errors import UsageError
from nmt.text.normalization import LETTER_OR_DIGIT

_FORMATS = {  # decimal separator, group separator, languages (CLDR 46)
    ".,": "en zh ja ko th he hi ms",
    ",.": "de es it nl pt da id tr el hr ro sl vi ca",
    ",\u00a0": "bg cs et fi fr hu lt lv nb no pl ru sk sv uk",
}
_SEPARATORS = {code: separators for separators, codes in _FORMATS.items() for code in codes.split()}
_SEPARATOR = r"[.,:'’\s]"
_QUANTITY = re.compile(r"[-+−]?[^\w\s]?\s?\d(?:[\d.,:'’\s]*\d)?(?:\s?[^\d\s]{1,6})?")
"""A number with an optional sign, currency and unit."""
_NUMBER = re.compile(r"\d(?:[\d.,'’\s]*\d)?")
_PHONE_NUMBER = re.compile(r"\+(?:\d{2,3}(?:\s\d{3}){2,}|\d(?:\s\d{3}){3,})")
_PART = re.compile(r"\d+|[^\d.,:'’\s]+")


def number_localizer(src: str, tgt: str) -> Callable[[str], str]:
    """Return a function that converts numbers, such as 1,234.5 kg, from the format of a language to
    that of another.

    Text that is not a number in the format of `src`, such as a date or a version, is returned as it
    is.

    Raises:
        UsageError: the format of a language is unknown.
    """
    for code in (src, tgt):
        if code not in _SEPARATORS:
            raise UsageError(
                f"--localize-numbers: the number format of '{code}' is unknown",
                f"it supports {', '.join(sorted(_SEPARATORS))}",
            )
    decimal, group = _SEPARATORS[src][0], _SEPARATORS[src][1]
    spaces = " \u202f" if group.isspace() else ""
    to_target = str.maketrans(
        {decimal: _SEPARATORS[tgt][0]} | dict.fromkeys(spaces + group, _SEPARATORS[tgt][1])
    )
    grouped = rf"(?!0)\d{{1,3}}(?:[{re.escape(group)}{spaces}]\d{{3}})+"
    number = re.compile(rf"(?:{grouped}|\d+)(?:{re.escape(decimal)}\d+)?")

    def localize(match: re.Match[str]) -> str:
        is_number = number.fullmatch(match[0]) and not _is_ip_address(match[0])
        return match[0].translate(to_target) if is_number else match[0]

    def localize_all(text: str) -> str:
        is_number = _QUANTITY.fullmatch(text) and not _PHONE_NUMBER.fullmatch(text)
        return _NUMBER.sub(localize, text) if is_number else text

    return localize_all


def _is_ip_address(text: str) -> bool:
    with suppress(ValueError):
        return bool(IPv4Address(text))
    return False


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
        is_group = len(part) > 2 or (
            len(part) == 2 and following.isdigit() and len(last) == 3
        )  # 1,00,000 in India
        is_required = previous.isdigit() and part.isdigit() and not is_group
        pattern += f"{_SEPARATOR}{'' if is_required else '?'}{re.escape(part)}"
    return re.compile(
        rf"(?<!{LETTER_OR_DIGIT})(?<!\d[.,:/]){pattern}(?!{LETTER_OR_DIGIT}|[.,:/]\d)"
    )
