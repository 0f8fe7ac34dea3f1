"""Formats of protected spans: those of the target language, and those that a model writes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice

from nmt.data.placeholders import separate_pattern
from nmt.text.abbreviations import translate_era, write_out
from nmt.text.lazy_pattern import lazy_pattern
from nmt.text.normalization import normalize
from nmt.text.numbers import Context, equivalent_pattern, localize_decimal
from nmt.text.spans import NUMERIC_KINDS, ProtectedSpan, apply_edits
from nmt.translation.checks import count_occurrences
from nmt.translation.placement import edit_words
from nmt.translation.result import Translation
from nmt.translation.segments import FixedSpan, Line
from nmt.translation.times import localize_time

MAX_MEASURE_LENGTH = 50
"""Maximum length of what is read after a number, such as `to 3.5 million`."""
_POINT_OF_GROUP = lazy_pattern(r"\.\d{3}(?!\d)")


def localized(
    text: str,
    fixed: Sequence[FixedSpan],
    spans: Sequence[ProtectedSpan],
    languages: tuple[str, str],
) -> tuple[FixedSpan, ...]:
    """Return the fixed spans of a text with numbers and eras as the target language writes them.

    Args:
        text: the text.
        fixed: its protected spans.
        spans: the same, with their kinds.
        languages: codes of source and target.
    """
    found = _localize(text, fixed, spans, languages)
    if any(_has_new_thousands(*each) for each in zip(fixed, found, strict=True)):
        found = _localize(text, fixed, spans, languages, has_thousands=True)
    return found


def _localize(
    text: str,
    fixed: Sequence[FixedSpan],
    spans: Sequence[ProtectedSpan],
    languages: tuple[str, str],
    *,
    has_thousands: bool = False,
) -> tuple[FixedSpan, ...]:
    found: list[FixedSpan] = []
    for span, protected in zip(fixed, spans, strict=True):
        translation = translate_era(text, (span.start, span.end), *languages)
        if protected.kind in NUMERIC_KINDS:
            translation = _localized_number(text, span, languages, has_thousands=has_thousands)
        found.append(replace(span, translation=translation or span.translation))
    return tuple(found)


def _has_new_thousands(span: FixedSpan, localized_span: FixedSpan) -> bool:
    """Return whether a span is a number whose thousands have another separator now."""
    is_changed = span.translation != localized_span.translation
    return is_changed and _POINT_OF_GROUP.search(span.translation) is not None


def _localized_number(
    text: str, span: FixedSpan, languages: tuple[str, str], *, has_thousands: bool
) -> str:
    """Return a number, which may depend on the words around it."""
    passage = text[span.start : span.end + MAX_MEASURE_LENGTH]
    written_out = apply_edits(passage, write_out(passage, languages[0]))
    following = written_out[span.end - span.start :]
    number = span.translation.removesuffix(".")  # of a date such as 24.12.
    preceding = text[max(0, span.start - MAX_MEASURE_LENGTH) : span.start]
    context = Context(preceding, following, has_thousands)
    number = localize_decimal(number, context, *languages)
    return localize_time(number, following)


def restore_formats(line: Line, translation: Translation) -> Translation:
    """Correct the format of protected spans: 1.234,50 becomes 1,234.50 and 5 % becomes 5% if only
    separators differ, and letters with marks are encoded as in the source."""
    spans = Counter(span.translation for span in line.protected)
    for span, expected in spans.items():
        if span.endswith("Chr."):  # its period also ends a sentence
            text = translation.text.replace(f"{span}.", span)
            translation = replace(translation, text=text)
        num_missing = expected - count_occurrences(translation.text, span)
        pattern = _other_formats(span) if num_missing > 0 else None
        if pattern:
            matches = (
                match for match in pattern.finditer(translation.text) if match[0] not in spans
            )
            edits = [(*match.span(), span) for match in islice(matches, num_missing)]
            translation = edit_words(translation, edits)
    return translation


def _other_formats(span: str) -> re.Pattern[str] | None:
    """Return a pattern of the formats in which a model may write a protected span; None if there is
    one only."""
    text = normalize(span)  # what a model reads
    pattern = equivalent_pattern(text)
    if pattern is None and text not in ("", span):
        pattern = re.compile(separate_pattern(text))
    return pattern
