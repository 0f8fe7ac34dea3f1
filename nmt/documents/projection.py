"""Projection of inline tags onto a translation by word alignment.

A tag covers the contiguous part of the translation that has most of the words aligned with its words. Tags keep their
nesting, and no tag is lost: one whose words have no counterpart covers the word next to the place where it would be.

Cf. Müller, Treatment of markup in statistical machine translation, 2017, https://aclanthology.org/W17-4804
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right, insort
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from types import MappingProxyType

from nmt.data.placeholders import occurrence_pattern
from nmt.data.spans import ProtectedSpan, find_spans
from nmt.documents.document import RichText, Tag, parents
from nmt.inference.segments import FixedSpan

GAP_COST = 0.5
"""Cost of a word that is not aligned with a tag's words, relative to the gain of one that is."""
PUNCTUATION_WEIGHT = 0.1
"""Weight of the punctuation next to a word, relative to a word."""
FIXED_WEIGHT = 100.0
"""Weight of a fixed span, which the tags around it must not leave."""
_ANY_WORD = "word"
_PARTS = re.compile(r"(\W*)(.*?)(\W*)", re.DOTALL)
_WORD = re.compile(r"\S+")

Span = tuple[int, int]


@dataclass(frozen=True)
class AlignedSentence:
    """A sentence of a block and its translation."""

    source: Span
    """Its range in the block."""
    target: Span
    """The range of its translation in that of the block."""
    alignment: tuple[tuple[int, int], ...] = ()
    """Pairs of word indices (source, target) within the sentence; empty: words are aligned by their positions."""


@dataclass(frozen=True)
class _Unit:
    """A part of the translation, such as a word, and the part of the source that it translates."""

    start: int
    end: int
    source: Span
    weight: float


def project(
    block: RichText,
    translation: str,
    sentences: Sequence[AlignedSentence],
    parent_of_points: Mapping[int, int] = MappingProxyType({}),
) -> tuple[Tag, ...]:
    """Return the tags of a block in its translation, in the same order.

    Args:
        block: the block. Fixed spans are within a sentence.
        translation: its translation.
        sentences: those of the block, in order, at least one.
        parent_of_points: by the ids of points at the end of a tag, the id of the tag if they are inside of it.
    """
    return _Projection(block, translation, sentences).tags(parent_of_points) if block.tags else ()


class _Projection:
    def __init__(self, block: RichText, translation: str, sentences: Sequence[AlignedSentence]) -> None:
        self._block, self._target, self._sentences = block, translation, sentences
        self._fixed: dict[Span, Span | None] = {}
        """Place of each fixed span in the translation; None: it is missing."""
        self._units = [self._units_of(sentence) for sentence in sentences]
        self._source_starts = [sentence.source[0] for sentence in sentences]

    def tags(self, parent_of_points: Mapping[int, int]) -> tuple[Tag, ...]:
        children: dict[int | None, list[Tag]] = defaultdict(list)
        for tag, parent in zip(self._block.tags, parents(self._block.tags), strict=True):
            children[parent_of_points.get(tag.id, parent)].append(tag)
        placed: dict[int, Span] = {}
        waiting: list[tuple[int | None, Span]] = [(None, (0, len(self._target)))]
        while waiting:
            parent, window = waiting.pop()
            ranges = self._place(children[parent], window)
            placed |= ranges
            waiting += [(tag_id, each) for tag_id, each in ranges.items() if tag_id in children]
        return tuple(Tag(*placed[tag.id], tag.id) for tag in self._block.tags)

    def _place(self, siblings: Sequence[Tag], window: Span) -> dict[int, Span]:
        """Return the ranges of sibling tags within a window of the translation."""
        spans = [tag for tag in siblings if tag.start < tag.end]
        ranges: dict[int, Span] = {}
        taken: list[Span] = []
        sources = [(tag.start, tag.end) for tag in spans]
        for tag in spans:
            ranges[tag.id] = self._span(tag, sources, taken, window)
            insort(taken, ranges[tag.id])
        for tag in siblings:
            if tag.start == tag.end:
                position = _outside(self._position(tag.start, window), taken)
                ranges[tag.id] = (position, position)
        return ranges

    def _span(self, tag: Tag, siblings: Sequence[Span], taken: Sequence[Span], window: Span) -> Span:
        first = max(0, bisect_right(self._source_starts, tag.start) - 1)
        last = max(first, bisect_left(self._source_starts, tag.end) - 1)
        whole = (self._sentences[first].target[0], self._sentences[last].target[1])
        low, high = max(window[0], whole[0]), min(window[1], whole[1])

        def is_free(start: int, end: int) -> bool:
            return low <= start and end <= high and not _overlaps_any((start, end), taken)

        key = (tag.start, tag.end)
        if (fixed := self._fixed.get(key)) and is_free(*fixed):
            return fixed
        if key in self._fixed:
            return (_outside(self._position(tag.start, window), taken),) * 2
        if (
            tag.start <= self._sentences[first].source[0]
            and self._sentences[last].source[1] <= tag.end
            and is_free(*whole)
        ):
            return whole
        units = [unit for i in range(first, last + 1) for unit in self._units[i]]
        aligned = [i for i, unit in enumerate(units) if _overlap(unit.source, key)]
        candidates = units[aligned[0] : aligned[-1] + 1] if aligned else []
        weights: list[float | None] = []
        for unit in candidates:
            if not is_free(unit.start, unit.end):
                weights.append(None)
            elif _overlap(unit.source, key):
                weights.append(unit.weight)
            elif _overlaps_any(unit.source, siblings):
                weights.append(None)
            else:
                weights.append(-GAP_COST * min(unit.weight, 1.0))
        if best := _best_run(weights):
            return candidates[best[0]].start, candidates[best[1]].end
        position = _outside(self._position(tag.start, window), taken)
        words = [_core(self._target, *match.span()) for match in _WORD.finditer(self._target, max(low, 0), high)]
        free = [word for word in words if is_free(*word)]
        return min(free, key=lambda word: abs(word[0] - position), default=(position, position))

    def _position(self, at: int, window: Span) -> int:
        """Return the position in the translation of a position in the source: next to the same word."""
        index = max(0, bisect_right(self._source_starts, at) - 1)
        sentence, text = self._sentences[index], self._block.text
        if at <= sentence.source[0]:
            position = sentence.target[0]
        elif at >= sentence.source[1]:
            position = sentence.target[1]
        else:
            best = (len(text), 0, 0)  # distance in the source, preference, position
            for unit in self._units[index]:
                if unit.source[0] == unit.source[1] or not window[0] <= unit.start <= unit.end <= window[1]:
                    continue
                if unit.source[0] < at:
                    best = min(best, (max(0, at - unit.source[1]), 0, -unit.end))
                else:
                    best = min(best, (unit.source[0] - at, 1, unit.start))
            position = abs(best[2])
        position = min(max(position, window[0]), window[1])
        # Markup after a word stays next to the word before it, other markup next to the one after it.
        if at and not text[at - 1].isspace():
            return window[0] + len(self._target[window[0] : position].rstrip())
        return window[1] - len(self._target[position : window[1]].lstrip())

    def _units_of(self, sentence: AlignedSentence) -> list[_Unit]:
        """Return the units of the translation of a sentence, in order."""
        words = list(self._word_units(sentence))
        fixed = list(self._find_fixed(sentence, words))
        places = sorted((unit.start, unit.end) for unit in fixed)
        others = (word for word in words if not _overlaps_any((word.start, word.end), places))
        return sorted([*others, *fixed], key=lambda unit: unit.start)

    def _find_fixed(self, sentence: AlignedSentence, words: Sequence[_Unit]) -> Iterator[_Unit]:
        """Find the fixed spans of a sentence in its translation."""
        start, end = sentence.source
        spans = [span for span in self._block.fixed if start <= span.start < end and span.translation]
        if not spans:
            return
        aligned_words = words if sentence.alignment else ()
        protected = find_spans(self._block.text[start:end])
        protected_in_target = find_spans(self._target[slice(*sentence.target)])
        taken: list[Span] = []
        # A span may be a part of a longer one.
        for text, group in groupby(sorted(spans, key=_longest_first), lambda span: span.translation):
            originals = _find_occurrences(text, self._block.text, sentence.source, protected)
            places = _find_occurrences(text, self._target, sentence.target, protected_in_target)
            for span in group:
                place = _choose(span, originals, places, taken, aligned_words)
                self._fixed[span.start, span.end] = place
                if place:
                    insort(taken, place)
                    yield _Unit(*place, (span.start, span.end), FIXED_WEIGHT)

    def _word_units(self, sentence: AlignedSentence) -> Iterator[_Unit]:
        source_words = [match.span() for match in _WORD.finditer(self._block.text, *sentence.source)]
        target_words = [match.span() for match in _WORD.finditer(self._target, *sentence.target)]
        alignment = {target: source for source, target in sentence.alignment}
        if not alignment and source_words:
            scale = len(source_words) / max(1, len(target_words))
            alignment = {i: int(i * scale) for i in range(len(target_words))}
        for i, word in enumerate(target_words):
            source_word = alignment.get(i, len(source_words))
            if source_word < len(source_words):
                yield from self._units_of_word(source_words[source_word], word)
            else:
                yield _Unit(*word, (0, 0), 1.0)

    def _units_of_word(self, source: Span, target: Span) -> Iterator[_Unit]:
        """Yield the characters of a word that equals its source, else the word and the punctuation around it."""
        if self._block.text[slice(*source)] == self._target[slice(*target)]:
            for i in range(target[1] - target[0]):
                start = source[0] + i
                yield _Unit(target[0] + i, target[0] + i + 1, (start, start + 1), 1 / (target[1] - target[0]))
            return
        source_core, target_core = _core(self._block.text, *source), _core(self._target, *target)
        for part, source_part, weight in (
            ((target[0], target_core[0]), (source[0], source_core[0]), PUNCTUATION_WEIGHT),
            (target_core, source_core, 1.0),
            ((target_core[1], target[1]), (source_core[1], source[1]), PUNCTUATION_WEIGHT),
        ):
            if part[0] < part[1]:
                yield _Unit(*part, source_part, weight)


@dataclass(frozen=True)
class _Occurrence:
    """An occurrence of a fixed text in a sentence."""

    start: int
    end: int
    whole: str
    """What it is a part of: the text of a longer protected span, such as a URL, or `_ANY_WORD`; else empty."""


def _longest_first(span: FixedSpan) -> tuple[int, str]:
    return -len(span.translation), span.translation


def _find_occurrences(fixed: str, text: str, sentence: Span, protected: Sequence[ProtectedSpan]) -> list[_Occurrence]:
    """Return the occurrences of a fixed text in a sentence, whose protected spans have offsets in the sentence."""
    starts = {match.start() for match in re.compile(re.escape(fixed)).finditer(text, *sentence)}
    starts_of_words = {match.start() for match in occurrence_pattern(fixed).finditer(text, *sentence)}
    occurrences: list[_Occurrence] = []
    for start in sorted(starts | starts_of_words):
        end = start + len(fixed)
        whole = "" if start in starts_of_words else _ANY_WORD
        i = bisect_right(protected, start - sentence[0], key=lambda span: span.start) - 1
        if i >= 0:
            whole_start = sentence[0] + protected[i].start
            whole_end = sentence[0] + protected[i].end
            if end <= whole_end and whole_end - whole_start > len(fixed):
                whole = text[whole_start:whole_end]
        occurrences.append(_Occurrence(start, end, whole))
    return occurrences


def _choose(
    span: FixedSpan,
    originals: Sequence[_Occurrence],
    places: Sequence[_Occurrence],
    taken: Sequence[Span],
    words: Sequence[_Unit],
) -> Span | None:
    """Return the place of a fixed span in the translation: the one aligned with it, else the n-th one.

    A part of another protected span or of a word is not its place, unless it is such a part in the source, too.
    """
    index = bisect_left(originals, span.start, key=lambda each: each.start)
    wholes = {"", *(each.whole for each in originals[index : index + 1])}
    best: Span | None = None
    best_cost = (True, len(places) + index)
    for i, place in enumerate(places):
        cost = (not _is_aligned(span, place, words), abs(i - index))
        if place.whole in wholes and cost < best_cost and not _overlaps_any((place.start, place.end), taken):
            best = (place.start, place.end)
            best_cost = cost
    return best


def _is_aligned(span: FixedSpan, place: _Occurrence, words: Sequence[_Unit]) -> bool:
    """Return whether a place in the translation has a word that is aligned with a word of a fixed span."""
    first = bisect_right(words, place.start, key=lambda word: word.end)
    last = bisect_left(words, place.end, key=lambda word: word.start)
    return any(_overlap(word.source, (span.start, span.end)) for word in words[first:last])


def _core(text: str, start: int, end: int) -> Span:
    """Return the range of a word without the punctuation around it; all of it, if it consists of punctuation."""
    before, core, after = _PARTS.fullmatch(text[start:end]).groups()  # type: ignore[union-attr]  # matches any text
    return (start + len(before), end - len(after)) if core else (start, end)


def _best_run(weights: Sequence[float | None]) -> Span | None:
    """Return the first and last index of the contiguous run with the largest positive sum; None is in no run."""
    best, best_sum, start, total = None, 0.0, 0, 0.0
    for i, weight in enumerate(weights):
        if weight is None or total + weight <= 0:
            start, total = i + 1, 0.0
            continue
        total += weight
        if total > best_sum:
            best, best_sum = (start, i), total
    return best


def _overlap(a: Span, b: Span) -> bool:
    return max(a[0], b[0]) < min(a[1], b[1])


def _overlaps_any(span: Span, others: Sequence[Span]) -> bool:
    """Return whether a range overlaps one of others, which are sorted and do not overlap each other."""
    i = bisect_left(others, span)
    return any(_overlap(span, other) for other in others[max(0, i - 1) : i + 1])


def _outside(position: int, taken: Sequence[Span]) -> int:
    """Return the position, or if it is inside one of the ranges, the nearest end of that range."""
    i = bisect_right(taken, (position, position))
    for start, end in taken[max(0, i - 1) : i + 1]:
        if start < position < end:
            return start if position - start < end - position else end
    return position
