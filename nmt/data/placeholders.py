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
from functools import lru_cache

from nmt.data.pairs import Pair
from nmt.text.normalization import LETTER_OR_DIGIT
from nmt.text.spans import find_spans

PLACEHOLDERS = tuple(chr(0xE000 + i) for i in range(8))
"""The characters, in the order of their use in a sentence. Further spans of a sentence are not
replaced."""
SHARE_OF_WORD_PAIRS = 0.05
"""Share of the pairs without protected spans that get placeholders for up to three words that both
sides have, such as names. Many corpora have few URLs, and a name occurs in similar contexts."""
_SHARED_WORD = re.compile(r"(?<!\w)(?:[^\W\d_a-z]\w+|\d+)(?!\w)")
"""A word that does not begin with a lowercase ASCII letter, or a number."""
_WORD_START = rf"(?<!{LETTER_OR_DIGIT})(?<!\d[.,:/])"
_WORD_END = rf"(?!{LETTER_OR_DIGIT}|[.,:/]\d)"


def replace_spans(pairs: Iterable[Pair]) -> Iterator[Pair]:
    """Replace protected spans that both sides contain with placeholders. The result depends on each
    pair only."""
    for source, target in pairs:
        spans = [source[span.start : span.end] for span in find_spans(source) if span.is_opaque]
        yield _replace(source, target, spans or _shared_words(source, target))


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
    unused = list(PLACEHOLDERS)
    for span in spans:
        pattern = occurrence_pattern(span)
        if unused and pattern.search(source) and pattern.search(target):
            placeholder = unused.pop(0)
            source = pattern.sub(placeholder, source, count=1)
            target = pattern.sub(placeholder, target, count=1)
    return source, target


@lru_cache(maxsize=4096)  # compiling takes as long as translating a word
def occurrence_pattern(span: str) -> re.Pattern[str]:
    """Return a pattern that finds a span in a text, but not inside a longer word or number."""
    pattern = re.escape(span)
    if span[0].isalnum():
        pattern = _WORD_START + pattern
    if span[-1].isalnum():
        pattern += _WORD_END
    return re.compile(pattern)


def is_separate(text: str, start: int, end: int, text_end: int) -> bool:
    """Return whether a span of a text that ends at `text_end` is not inside a longer word or
    number."""
    pattern = occurrence_pattern(text[start:end])
    return pattern.match(text, start, text_end) is not None
