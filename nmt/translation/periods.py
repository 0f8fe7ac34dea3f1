"""The periods that models add to headings and parts of sentences."""

from __future__ import annotations

from dataclasses import replace

from nmt.text.lazy_pattern import lazy_pattern
from nmt.text.whitespace import with_surrounding_whitespace
from nmt.translation.result import Translation
from nmt.translation.segments import Line

_ADDED_PERIOD = lazy_pattern(r"[.!?…。！？।॥؟۔]+$")
_SENTENCE_END = lazy_pattern(r"[.!?…。！？।॥؟۔\u037e]['\"”’»“)\]]*$")


def without_added_period(source: Line, translation: Translation) -> Translation:
    """Return the translation of a heading or part of a sentence without the period that the source
    does not have."""
    words = translation.text.split()
    if not words:
        return translation
    num_in_source = source.text.split().count(words[-1])
    is_copied = words.count(words[-1]) <= num_in_source  # such as Yahoo!
    is_sentence = _SENTENCE_END.search(source.text.rstrip())
    if is_copied or is_sentence:
        return translation
    text = _ADDED_PERIOD.sub("", translation.text.strip())
    text = with_surrounding_whitespace(text, translation.text)
    return replace(translation, text=text)
