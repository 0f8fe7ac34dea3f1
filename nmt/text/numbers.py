"""Formats of numbers: their decimal and group separators."""

from __future__ import annotations

import re

from nmt.text.lazy_pattern import lazy_pattern
from nmt.text.normalization import LETTER_OR_DIGIT

_SEPARATOR = r"[.,:'’\s]"
_QUANTITY = lazy_pattern(r"[-+−]?[^\w\s]?\s?\d(?:[\d.,:'’\s]*\d)?(?:\s?[^\d\s]{1,6})?")
"""A number with an optional sign, currency and unit."""
_PART = lazy_pattern(r"\d+|[^\d.,:'’\s]+")


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
