"""The units of a translation, such as its words, and the parts of the source that they
translate."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from nmt.documents.ranges import Span, overlap
from nmt.translation.alignment import Link

PUNCTUATION_WEIGHT = 0.1
"""Weight of the punctuation next to a word, relative to a word."""

WORD = re.compile(r"\S+")
_LETTER = re.compile(r"\w")
_UP_TO_LAST_LETTER = re.compile(r".*\w", re.DOTALL)

T = TypeVar("T")


@dataclass(frozen=True)
class AlignedSentence:
    """A sentence of a block and its translation."""

    source: Span
    """Its range in the block."""
    target: Span
    """The range of its translation in that of the block."""
    links: tuple[Link, ...] = ()
    """Links of its words; empty: words are aligned by their positions."""


@dataclass(frozen=True)
class SourcePart:
    """A part of the source that a part of the translation is linked with."""

    span: Span
    share: float
    """Share of the attention to it."""


@dataclass(frozen=True)
class Unit:
    """A part of the translation: a word, punctuation next to a word, fixed text, or a character of
    a copied word."""

    start: int
    end: int
    source: Span
    """The part of the source that it translates; empty: none."""
    weight: float
    """Share of a word that it is: 1 for a word, 1 / n for a character of a copied word of n
    characters, less for punctuation."""
    parts: tuple[SourcePart, ...] = ()
    """All parts of the source that it is linked with."""
    word_length: int = 1
    """Number of letters of the word. Long words carry more of the meaning than auxiliary words
    (Zipf 1949)."""

    @property
    def span(self) -> Span:
        """Its range in the translation."""
        return self.start, self.end


class SourceIndex(Generic[T]):
    """Finds what belongs to a part of the source, in time that does not depend on what belongs to
    other parts."""

    def __init__(self, word_starts: Sequence[int]) -> None:
        """Create an empty index of a text whose words start at some positions, in order."""
        self._word_starts = word_starts
        self._of_words: dict[int, list[tuple[Span, T]]] = defaultdict(list)
        self._of_characters: dict[int, list[T]] = defaultdict(list)

    def add(self, span: Span, value: T) -> None:
        """Add a value that belongs to a range of the source, such as a word or a character."""
        start, end = span
        if end - start == 1:
            values = self._of_characters[start]
            values.append(value)
            return
        entry = (span, value)
        for word in self._words(span):
            self._of_words[word].append(entry)

    def find(self, span: Span) -> Iterator[T]:
        """Yield the values whose ranges overlap a range, each one once."""
        words = self._words(span)
        for word in words:
            for other, value in self._of_words.get(word, ()):
                # A range that starts in an earlier word has been found there.
                is_new = word == words.start or other[0] >= self._word_starts[word]
                if is_new and overlap(other, span):
                    yield value
        for position in range(*span):
            values = self._of_characters.get(position, ())
            yield from values

    def _words(self, span: Span) -> range:
        """Return the indices of the words that have a character in a range."""
        start, end = span
        first = bisect_right(self._word_starts, start) - 1
        end_word = bisect_left(self._word_starts, end)
        return range(max(0, first), end_word)


def core(text: str, start: int, end: int) -> Span:
    """Return the range of a word without the punctuation around it; all of it, if it consists of
    punctuation."""
    first = _LETTER.search(text, start, end)
    last = _UP_TO_LAST_LETTER.match(text, start, end)
    if first and last:
        return first.start(), last.end()
    return start, end


def word_units(text: str, target: str, sentence: AlignedSentence) -> Iterator[Unit]:
    """Yield the units of the words of a sentence."""
    source_words = _words_in(text, sentence.source)
    target_words = _words_in(target, sentence.target)
    num_source = len(source_words)
    links = sentence.links
    if not links:
        links = _links_by_position(num_source, len(target_words))
    # Add up the attention of each word to each source word.
    shares: dict[int, dict[int, float]] = defaultdict(lambda: defaultdict(float))
    for link in links:
        if link.source < num_source:
            shares[link.target][link.source] += link.share
    for i, word in enumerate(target_words):
        parts = []
        for source, share in shares[i].items():
            part = SourcePart(source_words[source], share)
            parts.append(part)
        if parts:
            yield from _units_of_word(text, target, word, parts)
        else:
            yield Unit(*word, (0, 0), 1.0)


def _words_in(text: str, span: Span) -> list[Span]:
    """Return the ranges of the words in a part of a text."""
    matches = WORD.finditer(text, *span)
    return [match.span() for match in matches]


def _links_by_position(num_source: int, num_target: int) -> tuple[Link, ...]:
    """Return links between words at the same relative position."""
    if not num_source or not num_target:
        return ()
    scale = num_source / num_target
    return tuple(Link(int(target * scale), target, 1.0) for target in range(num_target))


def _units_of_word(
    text: str, target: str, word: Span, parts: Sequence[SourcePart]
) -> Iterator[Unit]:
    """Yield the characters of a word that equals its source, else the word and the punctuation
    around it.

    Args:
        text: the source.
        target: the translation.
        word: the range of the word.
        parts: the source words that it is linked with. The word's source is that of which it has
            the largest share.
    """
    best = max(parts, key=lambda part: part.share)
    source_start, source_end = best.span
    word_start, word_end = word
    if text[source_start:source_end] == target[word_start:word_end]:
        yield from _units_of_copy(word_start, best)
        return
    source_core = core(text, *best.span)
    start, end = core(target, *word)
    cores = []
    for part in parts:
        part_core = core(text, *part.span)
        cores.append(SourcePart(part_core, part.share))
    # Punctuation before and after the word translates that of its source.
    if word_start < start:
        before = SourcePart((source_start, source_core[0]), best.share)
        yield Unit(word_start, start, before.span, PUNCTUATION_WEIGHT, (before,))
    yield Unit(start, end, source_core, 1.0, tuple(cores), end - start)
    if end < word_end:
        after = SourcePart((source_core[1], source_end), best.share)
        yield Unit(end, word_end, after.span, PUNCTUATION_WEIGHT, (after,))


def _units_of_copy(start: int, source: SourcePart) -> Iterator[Unit]:
    """Yield the characters of a word that equals its source and starts at a position of the
    translation."""
    source_start, source_end = source.span
    length = source_end - source_start
    weight = 1 / length
    for i in range(length):
        position = source_start + i
        character = (position, position + 1)
        part = SourcePart(character, source.share)
        target = start + i
        yield Unit(target, target + 1, character, weight, (part,), length)
