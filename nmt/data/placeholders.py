"""Placeholders: characters that stand for protected spans in the text that a model reads and
writes.

A model learns to copy them from training pairs in which both sides contain the same span
(`data.placeholders`). They are private-use characters, one piece each in a tokenizer that is
trained with them; a text that contains such characters is safe, because they are protected spans,
too.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from nmt.text.lazy_pattern import lazy_pattern
from nmt.text.normalization import LETTER_OR_DIGIT
from nmt.text.searchable import marks_as_letters
from nmt.text.spans import BLANK, find_spans

if TYPE_CHECKING:  # inference does not read pairs
    from nmt.data.pairs import Pair

PLACEHOLDERS = tuple(chr(0xE000 + i) for i in range(8))
"""The characters, in the order of their use in a sentence. Further spans of a sentence are not
replaced."""
SHARE_OF_WORD_PAIRS = 0.05
"""Share of the pairs without protected spans that get placeholders for up to three words that both
sides have, such as names. Many corpora have few URLs, and a name occurs in similar contexts."""
_SHARED_WORD = lazy_pattern(r"(?<!\w)(?:[^\W\d_a-z]\w+|\d+)(?!\w)")
"""A word that does not begin with a lowercase ASCII letter, or a number."""
_BEFORE_WORD = rf"(?<!{LETTER_OR_DIGIT})(?<!\d[.,:/])"
_AFTER_WORD = rf"(?!{LETTER_OR_DIGIT}|(?<=\d)[.,:/]\d)"  # but 180°C/350°F
_WORD_START = lazy_pattern(_BEFORE_WORD)
_WORD_END = lazy_pattern(_AFTER_WORD)


def replace_spans(pairs: Iterable[Pair]) -> list[Pair]:
    """Replace protected spans that both sides contain with placeholders. The result depends on each
    pair only."""
    replaced = []
    for source, target in pairs:
        spans = []
        for span in find_spans(source):
            # The models were trained without placeholders for blanks.
            if span.is_opaque and span.kind != BLANK:
                spans.append(source[span.start : span.end])
        spans = spans or _shared_words(source, target)
        replaced.append(_replace(source, target, spans))
    return replaced


def _shared_words(source: str, target: str) -> list[str]:
    """Return up to three words that both sides have, for `SHARE_OF_WORD_PAIRS` of all pairs; none
    for the others."""
    draw = zlib.crc32(f"{source}\t{target}".encode())
    if draw >= SHARE_OF_WORD_PAIRS * 2**32:
        return []
    words = [word for word in _SHARED_WORD.findall(source) if word in target]
    if not words:
        return []
    first = draw % len(words)
    end = first + 1 + draw % 3
    return words[first:end]


def _replace(source: str, target: str, spans: Iterable[str]) -> Pair:
    def is_shared(span: str) -> bool:
        return contains_separate(source, span) and contains_separate(target, span)

    unused = list(PLACEHOLDERS)
    first_spans = list(filter(is_shared, spans))[: len(unused)]
    # The longest first: one may be a part of another, such as a file of its path.
    for span in sorted(first_spans, key=len, reverse=True):
        if is_shared(span):
            placeholder = unused.pop(0)
            source = replace_first(source, span, placeholder)
            target = replace_first(target, span, placeholder)
    numbers = _numbers_in_order(source)
    return source.translate(numbers), target.translate(numbers)


def _numbers_in_order(source: str) -> dict[int, str]:
    """Return what replaces each placeholder so that their order is that of the source, as in
    translation."""
    numbers: dict[int, str] = {}
    for character in source:
        if character in PLACEHOLDERS:
            number = len(numbers)
            numbers[ord(character)] = PLACEHOLDERS[number]
    return numbers


def replace_first(text: str, span: str, replacement: str) -> str:
    """Replace the first place of a span in a text, if any; see `find_separate`."""
    for start in find_separate(text, span):
        end = start + len(span)
        return text[:start] + replacement + text[end:]
    return text


def contains_separate(text: str, span: str) -> bool:
    """Return whether `find_separate` finds a span in a text."""
    return any(True for _ in find_separate(text, span))


def find_separate(text: str, span: str) -> Iterator[int]:
    """Yield the starts of a span in a text, without those inside a longer word or number."""
    letters = marks_as_letters(text)
    start = text.find(span)
    while start >= 0:
        end = start + len(span)
        is_word = is_separate(letters, start, end, len(text))
        if is_word:
            yield start
        start = text.find(span, end if is_word else start + 1)


def is_separate(text: str, start: int, end: int, text_end: int) -> bool:
    """Return whether a span of a text that ends at `text_end` is not inside a longer word or
    number. Marks of the text are letters; see `marks_as_letters`."""
    if text[start].isalnum() and not _WORD_START.match(text, start):
        return False
    if _ends_word(text[start:end]):
        return _WORD_END.match(text, end, text_end) is not None
    return True


def _ends_word(span: str) -> bool:
    """Return whether a span ends with a word. The letter of a format specifier is none, as in
    `%slog in%s`."""
    last = span[-1]
    is_specifier = span[0] == "%" and last.isalpha()
    return last.isalnum() and not is_specifier


def separate_pattern(span: str) -> str:
    """Return a regular expression of what `find_separate` finds, which is slow to compile."""
    pattern = re.escape(span)
    if span[0].isalnum():
        pattern = _BEFORE_WORD + pattern
    if _ends_word(span):
        pattern += _AFTER_WORD
    return pattern
