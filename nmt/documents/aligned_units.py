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
            self._of_characters[start].append(value)
            return
        for word in self._words(span):
            self._of_words[word].append((span, value))

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
            yield from self._of_characters.get(position, ())

    def _words(self, span: Span) -> range:
        """Return the indices of the words that have a character in a range."""
        first = bisect_right(self._word_starts, span[0]) - 1
        return range(max(0, first), bisect_left(self._word_starts, span[1]))


def core(text: str, start: int, end: int) -> Span:
    """Return the range of a word without the punctuation around it; all of it, if it consists of
    punctuation."""
    first = _LETTER.search(text, start, end)
    last = _UP_TO_LAST_LETTER.match(text, start, end)
    return (first.start(), last.end()) if first and last else (start, end)


def word_units(text: str, target: str, sentence: AlignedSentence) -> Iterator[Unit]:
    """Yield the units of the words of a sentence."""
    source_words = [match.span() for match in WORD.finditer(text, *sentence.source)]
    target_words = [match.span() for match in WORD.finditer(target, *sentence.target)]
    links = sentence.links or _links_by_position(len(source_words), len(target_words))
    shares: dict[int, dict[int, float]] = defaultdict(lambda: defaultdict(float))
    for link in links:
        if link.source < len(source_words):
            shares[link.target][link.source] += link.share
    for i, word in enumerate(target_words):
        parts = [SourcePart(source_words[source], share) for source, share in shares[i].items()]
        if parts:
            yield from _units_of_word(text, target, word, parts)
        else:
            yield Unit(*word, (0, 0), 1.0)


def _links_by_position(num_source: int, num_target: int) -> tuple[Link, ...]:
    """Return links between words at the same relative position."""
    if not num_source or not num_target:
        return ()
    scale = num_source / num_target
    return tuple(Link(int(i * scale), i, 1.0) for i in range(num_target))


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
    if text[slice(*best.span)] == target[slice(*word)]:
        yield from _units_of_copy(word[0], best)
        return
    source_start, source_end = core(text, *best.span)
    start, end = core(target, *word)
    cores = tuple(SourcePart(core(text, *part.span), part.share) for part in parts)
    # Punctuation before and after the word translates that of its source.
    if word[0] < start:
        before = SourcePart((best.span[0], source_start), best.share)
        yield Unit(word[0], start, before.span, PUNCTUATION_WEIGHT, (before,))
    yield Unit(start, end, (source_start, source_end), 1.0, cores, end - start)
    if end < word[1]:
        after = SourcePart((source_end, best.span[1]), best.share)
        yield Unit(end, word[1], after.span, PUNCTUATION_WEIGHT, (after,))


def _units_of_copy(start: int, source: SourcePart) -> Iterator[Unit]:
    """Yield the characters of a word that equals its source and starts at a position of the
    translation."""
    length = source.span[1] - source.span[0]
    for i, position in enumerate(range(*source.span), start):
        character = (position, position + 1)
        yield Unit(i, i + 1, character, 1 / length, (SourcePart(character, source.share),), length)
