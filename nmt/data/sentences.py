"""Segmentation of long input at sentence, clause or word boundaries.

Segments are spans of the text, and only whitespace is left between them, so no text is lost.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

from nmt.console import log_once

Span = tuple[int, int]
"""Start and end offset of a segment."""

_CLAUSE_BOUNDARY = re.compile(r"(?<=[,;:–—)])\s+")
_WORD_BOUNDARY = re.compile(r"\s+")
_SENTENCE_BOUNDARY = re.compile(r"[.!?…。！？።।॥།؟۔][^\w\s]{0,20}\s*\w")
"""A possible end of a sentence followed by more text. The repetition is bounded, so that the time is linear."""
_SENTENCE_END = re.compile(r"(?:(?<=[.!?…。！？।॥؟۔])|(?<=[.!?…][\"'”»)]))\s+")
"""The space after a sentence, if the rules of a language are not available."""


def split_to_fit(text: str, language: str, fits: Callable[[str], bool]) -> list[Span]:
    """Split `text` into few segments that fit, preferably at sentence boundaries.

    Args:
        text: one line.
        language: ISO code that selects the sentence rules.
        fits: returns whether a segment is short enough to be translated at once.

    Returns:
        Segments in order, without surrounding whitespace; none for a blank text.
    """
    return _split_spans(text, _trim(text, (0, len(text))), language, fits)


def split_sentences(text: str, language: str) -> list[Span]:
    """Return the spans of the sentences of `text`, without surrounding whitespace."""
    try:
        from sentencex import segment
    except ImportError:
        log_once("the package sentencex is not installed, so lines are split at every period, also after abbreviations")
        return _split_at(_SENTENCE_END, text)
    spans, end = [], 0
    for sentence in segment(language, text):
        start = text.find(sentence, end)
        if start < 0:  # sentencex changed the text
            return list(_trim(text, (0, len(text))))
        end = start + len(sentence)
        spans += _trim(text, (start, end))
    return spans


def count_sentences(text: str, language: str) -> int:
    """Return the number of sentences of a text; 1 if it contains no sentence boundary."""
    return len(split_sentences(text, language)) if _SENTENCE_BOUNDARY.search(text) else 1


def _split_spans(text: str, spans: Sequence[Span], language: str, fits: Callable[[str], bool]) -> list[Span]:
    return [part for span in spans for part in _split_span(text, span, language, fits)]


def _split_span(text: str, span: Span, language: str, fits: Callable[[str], bool]) -> list[Span]:
    start, end = span
    segment = text[start:end]
    if fits(segment):
        return [span]
    for boundary in (None, _CLAUSE_BOUNDARY, _WORD_BOUNDARY):
        relative = _split_at(boundary, segment) if boundary else split_sentences(segment, language)
        parts = [(start + a, start + b) for a, b in relative]
        if len(parts) > 1:
            return _merge(text, _split_spans(text, parts, language, fits), fits)
    middle = start + len(segment) // 2  # a single long word
    return [span] if len(segment) < 2 else _split_spans(text, [(start, middle), (middle, end)], language, fits)


def _split_at(separator: re.Pattern[str], text: str) -> list[Span]:
    matches = list(separator.finditer(text))
    starts = [0, *(match.end() for match in matches)]
    ends = [*(match.start() for match in matches), len(text)]
    return [trimmed for span in zip(starts, ends, strict=True) for trimmed in _trim(text, span)]


def _trim(text: str, span: Span) -> list[Span]:
    """Return the span without surrounding whitespace, or nothing if it is blank."""
    segment = text[slice(*span)]
    start, end = span[0] + len(segment) - len(segment.lstrip()), span[0] + len(segment.rstrip())
    return [(start, end)] if start < end else []


def _merge(text: str, spans: Iterable[Span], fits: Callable[[str], bool]) -> list[Span]:
    """Merge neighboring spans while they fit, because context improves the translation."""
    merged: list[Span] = []
    for start, end in spans:
        if merged and fits(text[merged[-1][0] : end]):
            merged[-1] = (merged[-1][0], end)
        else:
            merged.append((start, end))
    return merged
