"""Segmentation of long input at sentence, clause or word boundaries.

Segments are spans of the text, and only whitespace is left between them, so no text is lost.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

from nmt.core.console import log_once
from nmt.text.abbreviations import find_abbreviations
from nmt.text.language_codes import base_language
from nmt.text.lazy_pattern import lazy_pattern
from nmt.text.spans import HasOffsets, find_german_ordinals, find_spans, without_overlaps

Span = tuple[int, int]
"""Start and end offset of a segment."""

_CLAUSE_BOUNDARY = lazy_pattern(r"(?<=[,;:–—)])\s+")
_WORD_BOUNDARY = lazy_pattern(r"\s+")
_SENTENCE_BOUNDARY = lazy_pattern(r"[.!?…。！？።।॥།؟۔][^\w\s]{0,20}(?:\s+[^\w\s]{0,20})?\w")
"""A possible end of a sentence followed by more text. The repetition is bounded, so that the time
is linear."""
_SENTENCE_END = lazy_pattern(r"(?:(?<=[.!?…。！？।॥؟۔])|(?<=[.!?…][\"'”»)]))\s+")
"""The space after a sentence, if the rules of a language are not available."""
_WORDS = "me no ill miss may ok art id mich".split()
_END_AFTER_WORD = lazy_pattern(
    rf"(?:(?<=[.][\"”“»])|{'|'.join(rf'(?<= {word}[.])' for word in _WORDS)})\s+(?=[A-ZÄÖÜ])"
)
"""The space after a quoted sentence, and after words that sentencex takes for abbreviations, such
as me for Maine."""
_ABBREVIATION = lazy_pattern(r"(?:[A-ZÄÖÜ]\. ?){2,4}")
"""An abbreviation before a sentence, such as P.S."""
_CJK_SENTENCE_MARKS = "。！？｡"
"""Marks that end a sentence without whitespace after them."""
_CLOSING_MARKS = "」』”’）)】》〉\"'"
_MAX_CLOSING_MARKS = 20
MAX_WINDOW = 4096
"""Maximum number of characters in which sentencex finds sentences at once. Its time is quadratic in
the number of quotation marks, apostrophes and backticks."""


def split_to_fit(
    text: str, language: str, fits: Callable[[int, int], bool], fixed: Iterable[HasOffsets] = ()
) -> list[Span]:
    """Split `text` into few segments that fit, preferably at sentence boundaries.

    Args:
        text: one line.
        language: ISO code that selects the sentence rules.
        fits: returns whether the segment with this start and end is short enough to be translated
            at once.
        fixed: spans that are split only if they do not fit, in addition to the protected spans of
            the text.

    Returns:
        Segments in order, without surrounding whitespace; none for a blank text.
    """
    whole = _trim(text, (0, len(text)))
    if not whole or fits(*whole[0]):
        return whole
    unsplittable = _unsplittable(text, language, fixed)
    parts: list[Span] = []
    sentences = _find_sentences(text, language)
    for sentence in _join_split_spans(text, sentences, unsplittable):
        parts += _split_sentence(text, sentence, fits, unsplittable)
    return _merge(parts, fits)


def split_sentences(text: str, language: str, fixed: Iterable[HasOffsets] = ()) -> list[Span]:
    """Return the spans of the sentences of `text`, without surrounding whitespace.

    No sentence ends inside a protected span or one of the `fixed` spans, such as inline code, or,
    except after a mark of Chinese or Japanese, where there is no whitespace, as in System.Console.
    """
    spans = _find_sentences(text, language)
    if len(spans) < 2:
        return spans
    unsplittable = _unsplittable(text, language, fixed)
    return _join_split_spans(text, spans, unsplittable)


def count_sentences(text: str, language: str, fixed: Iterable[HasOffsets] = ()) -> int:
    """Return the number of sentences of a text; 1 if it contains no sentence boundary."""
    if not _SENTENCE_BOUNDARY.search(text):
        return 1
    sentences = split_sentences(text, language, fixed)
    return len(sentences)


def _find_sentences(text: str, language: str) -> list[Span]:
    """Return the spans of the sentences; a boundary may be inside a word."""
    try:
        from sentencex import segment
    except ImportError:
        log_once(
            "the package sentencex is not installed, so lines are split at every period, also after"
            " abbreviations"
        )
        return _split_at(_SENTENCE_END, text, (0, len(text)))
    spans: list[Span] = []
    end = 0
    for sentence in _in_windows(partial(segment, language), text):
        start = text.find(sentence, end)
        if start < 0:  # sentencex changed the text
            return _trim(text, (0, len(text)))
        end = start + len(sentence)
        spans += _split_at(_END_AFTER_WORD, text, (start, end))
    return spans


def _in_windows(segment: Callable[[str], Iterable[str]], text: str) -> Iterator[str]:
    """Yield the sentences of a text, with the whitespace after them.

    The windows of a long text overlap: sentences that begin in the second half of a window are
    found in the next one, in which their quotations end.

    Args:
        segment: returns the sentences of a window.
        text: the text.
    """
    position = 0
    begun = ""  # a sentence that is longer than a window
    while len(text) - position > MAX_WINDOW:
        window = text[position : position + MAX_WINDOW]
        middle = MAX_WINDOW // 2
        length = 0
        complete = list(segment(window))[:-1]
        for sentence in complete:
            if length > middle:
                break
            yield begun + sentence
            begun = ""
            length += len(sentence)
        if not length:
            length = window.rfind(" ", 0, middle) + 1 or middle
            begun += window[:length]
        position += length
    for sentence in segment(text[position:]):
        yield begun + sentence
        begun = ""


def _unsplittable(text: str, language: str, fixed: Iterable[HasOffsets]) -> list[HasOffsets]:
    """Return the fixed spans and the protected spans of a text, and the ordinal numbers and
    abbreviations in sentences, in order and without overlaps."""
    spans = [*fixed, *find_spans(text)]
    if base_language(language) == "de":
        spans += find_german_ordinals(text)
    spans += find_abbreviations(text, language)
    return list(without_overlaps(spans))


def _join_split_spans(
    text: str, parts: Iterable[Span], unsplittable: Sequence[HasOffsets]
) -> list[Span]:
    """Join neighboring parts of a text if what is between them is no boundary."""
    joined: list[Span] = []
    for start, end in parts:
        if joined and not _is_boundary(text, joined[-1], start, unsplittable):
            joined[-1] = (joined[-1][0], end)
        else:
            joined.append((start, end))
    return joined


def _is_boundary(
    text: str, part: Span, next_start: int, unsplittable: Sequence[HasOffsets]
) -> bool:
    """Return whether the text may be split between a part and the start of the next one."""
    end = part[1]
    if _ABBREVIATION.fullmatch(text, *part):
        return False
    if end == next_start:
        start = max(part[0], end - _MAX_CLOSING_MARKS)
        words = text[start:end].rstrip(_CLOSING_MARKS)
        if words[-1:] not in _CJK_SENTENCE_MARKS:
            return False
    index = bisect_left(unsplittable, next_start, key=lambda span: span.start)
    return index == 0 or unsplittable[index - 1].end <= end


def _split_sentence(
    text: str, span: Span, fits: Callable[[int, int], bool], unsplittable: Sequence[HasOffsets]
) -> list[Span]:
    """Split a sentence that does not fit at clause or word boundaries, a long span between its
    words, too."""
    start, end = span
    if fits(start, end):
        return [span]
    for boundary, kept in (
        (_CLAUSE_BOUNDARY, unsplittable),
        (_WORD_BOUNDARY, unsplittable),
        (_WORD_BOUNDARY, ()),
    ):
        parts = _split_at(boundary, text, span)
        parts = _join_split_spans(text, parts, kept)
        if len(parts) > 1:
            break
    else:
        if end - start == 1:
            return [span]
        middle = (start + end) // 2  # of a single long word
        parts = [(start, middle), (middle, end)]
    segments: list[Span] = []
    for part in parts:
        segments += _split_sentence(text, part, fits, unsplittable)
    return _merge(segments, fits)


def _split_at(separator: re.Pattern[str], text: str, span: Span) -> list[Span]:
    """Return the parts of a span between the matches of a separator."""
    parts: list[Span] = []
    start, end = span
    for match in separator.finditer(text, start, end):
        parts += _trim(text, (start, match.start()))
        start = match.end()
    return parts + _trim(text, (start, end))


def _trim(text: str, span: Span) -> list[Span]:
    """Return the span without surrounding whitespace, or nothing if it is blank."""
    start, end = span
    segment = text[start:end]
    start += len(segment) - len(segment.lstrip())
    end -= len(segment) - len(segment.rstrip())
    if start < end:
        return [(start, end)]
    return []


def _merge(spans: Iterable[Span], fits: Callable[[int, int], bool]) -> list[Span]:
    """Merge neighboring spans while they fit, because context improves the translation."""
    merged: list[Span] = []
    for start, end in spans:
        if merged and fits(merged[-1][0], end):
            merged[-1] = (merged[-1][0], end)
        else:
            merged.append((start, end))
    return merged
