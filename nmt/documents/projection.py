"""Projection of inline tags onto a translation by word alignment.

A tag covers the contiguous part of the translation that has most of the attention to its words. Tags keep their
nesting, and no tag is lost: one whose words have no counterpart covers the word next to the place where it would be. If
other words have nearly as much of the attention, the tag also covers them if they are close.

Cf. Müller, Treatment of markup in statistical machine translation, 2017, https://aclanthology.org/W17-4804
"""

from __future__ import annotations

import math
import re
from bisect import bisect_left, bisect_right, insort
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from types import MappingProxyType

from nmt.data.placeholders import occurrence_pattern
from nmt.data.spans import ProtectedSpan, find_spans
from nmt.documents.document import RichText, Tag, parents
from nmt.inference.alignment import Link
from nmt.inference.segments import FixedSpan

GAP_COST = 0.5
"""Cost of a word that is not linked with a tag's words, relative to the gain of a word of one letter that is."""
DOUBTFUL_GAP_COST = 0.35
"""The same for a doubtful tag, so that it also covers other words that may be meant."""
MIN_CERTAINTY = 0.6
"""Minimum share of the words that a tag covers in the gain of all words that are linked with its words."""
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
    links: tuple[Link, ...] = ()
    """Links of its words; empty: words are aligned by their positions."""


@dataclass(frozen=True)
class _SourcePart:
    """A part of the source that a part of the translation is linked with."""

    span: Span
    share: float
    """Share of the attention to it."""


@dataclass(frozen=True)
class _Unit:
    """A part of the translation, such as a word, and the part of the source that it translates."""

    start: int
    end: int
    source: Span
    weight: float
    parts: tuple[_SourcePart, ...] = ()
    """All parts of the source that it is linked with."""
    word_length: int = 1
    """Number of letters of the word. Long words carry more of the meaning than auxiliary words (Zipf 1949)."""

    def gain(self, tag: Span) -> float:
        """Return how much the unit contributes to the translation of a range of the source."""
        share = sum(part.share for part in self.parts if _overlap(part.span, tag))
        return self.weight * math.sqrt(self.word_length) * share


@dataclass(frozen=True)
class _Candidate:
    """A unit that a tag may cover."""

    unit: _Unit
    gain: float
    is_allowed: bool
    """Whether the unit is neither part of another tag nor outside of the tag around this one."""

    def weight(self, gap_cost: float) -> float | None:
        """Return the gain, or the cost of a gap as a negative number; None: the tag must not cover the unit."""
        if not self.is_allowed:
            return None
        return self.gain or -gap_cost * min(self.unit.weight, 1.0)


@dataclass(frozen=True)
class _Place:
    """A place of a tag in the translation."""

    start: int
    end: int
    is_doubtful: bool


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
        self._doubtful: set[int] = set()
        """Ids of the tags whose place is doubtful."""
        self._fixed: dict[Span, Span | None] = {}
        """Place of each fixed span in the translation; None: it is missing."""
        self._units = [self._units_of(sentence) for sentence in sentences]
        self._source_starts = [sentence.source[0] for sentence in sentences]
        self._all_units = [unit for units in self._units for unit in units]
        self._word_starts = [match.start() for match in _WORD.finditer(block.text)]
        self._linked_units = self._link_units()
        """By the index of a word of the block, the indices of the units that are linked with it."""

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
        return tuple(Tag(*placed[tag.id], tag.id, tag.id in self._doubtful) for tag in self._block.tags)

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
        place = self._most_linked(key, siblings, is_free)
        has_links = any(sentence.links for sentence in self._sentences[first : last + 1])
        if place is None or place.is_doubtful or not has_links:
            self._doubtful.add(tag.id)
        if place is not None:
            return place.start, place.end
        position = _outside(self._position(tag.start, window), taken)
        words = (_core(self._target, *match.span()) for match in _WORD.finditer(self._target, low, high))
        free = (word for word in words if is_free(*word))
        return min(free, key=lambda word: abs(word[0] - position), default=(position, position))

    def _most_linked(self, tag: Span, siblings: Sequence[Span], is_free: Callable[[int, int], bool]) -> _Place | None:
        """Return the place of the units that contribute most to the translation of a tag; None: there is none."""
        candidates: list[_Candidate] = []
        for unit in self._units_around(tag):
            is_of_sibling = not _overlap(unit.source, tag) and _overlaps_any(unit.source, siblings)
            is_allowed = not is_of_sibling and is_free(unit.start, unit.end)
            candidates.append(_Candidate(unit, unit.gain(tag), is_allowed))
        run = _best_run([candidate.weight(GAP_COST) for candidate in candidates])
        if run is None:
            return None
        total = sum(candidate.gain for candidate in candidates if candidate.is_allowed)
        gain = sum(candidate.gain for candidate in candidates[run[0] : run[1] + 1])
        is_doubtful = gain < MIN_CERTAINTY * total
        if is_doubtful:
            run = _best_run([candidate.weight(DOUBTFUL_GAP_COST) for candidate in candidates]) or run
        return _Place(candidates[run[0]].unit.start, candidates[run[1]].unit.end, is_doubtful)

    def _units_around(self, tag: Span) -> Sequence[_Unit]:
        """Return the units from the first to the last one that is linked with a word of a tag."""
        linked: list[int] = []
        for word in self._words(tag):
            linked += [i for i in self._linked_units[word] if self._all_units[i].gain(tag) > 0]
        return self._all_units[min(linked) : max(linked) + 1] if linked else []

    def _words(self, span: Span) -> range:
        """Return the indices of the words of the block that have a character in a range."""
        first = bisect_right(self._word_starts, span[0]) - 1
        return range(max(0, first), bisect_left(self._word_starts, span[1]))

    def _link_units(self) -> dict[int, list[int]]:
        units_of: dict[int, list[int]] = defaultdict(list)
        for i, unit in enumerate(self._all_units):
            for part in unit.parts:
                for word in self._words(part.span):
                    units_of[word].append(i)
        return units_of

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
        aligned_words = words if sentence.links else ()
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
                    source = (span.start, span.end)
                    yield _Unit(*place, source, FIXED_WEIGHT, (_SourcePart(source, 1.0),))

    def _word_units(self, sentence: AlignedSentence) -> Iterator[_Unit]:
        source_words = [match.span() for match in _WORD.finditer(self._block.text, *sentence.source)]
        target_words = [match.span() for match in _WORD.finditer(self._target, *sentence.target)]
        links = sentence.links
        if not links and source_words:
            scale = len(source_words) / max(1, len(target_words))
            links = tuple(Link(int(i * scale), i, 1.0) for i in range(len(target_words)))
        links = tuple(link for link in links if link.source < len(source_words))
        links_of: dict[int, list[Link]] = defaultdict(list)
        for link in links:
            links_of[link.target].append(link)
        for i, word in enumerate(target_words):
            parts = [_SourcePart(source_words[link.source], link.share) for link in links_of[i]]
            if parts:
                yield from self._units_of_word(word, parts)
            else:
                yield _Unit(*word, (0, 0), 1.0)

    def _units_of_word(self, target: Span, parts: Sequence[_SourcePart]) -> Iterator[_Unit]:
        """Yield the characters of a word that equals its source, else the word and the punctuation around it.

        Args:
            target: the word.
            parts: the source words that it is linked with. The word's source is that of which it has the largest share.
        """
        best = max(parts, key=lambda part: part.share)
        source, share = best.span, best.share
        text = self._block.text
        if text[slice(*source)] == self._target[slice(*target)]:
            yield from _units_of_copy(source, target, share)
            return
        source_core, target_core = _core(text, *source), _core(self._target, *target)
        cores = tuple(_SourcePart(_core(text, *part.span), part.share) for part in parts)
        before = _SourcePart((source[0], source_core[0]), share)
        after = _SourcePart((source_core[1], source[1]), share)
        if target[0] < target_core[0]:
            yield _Unit(target[0], target_core[0], before.span, PUNCTUATION_WEIGHT, (before,))
        yield _Unit(*target_core, source_core, 1.0, cores, target_core[1] - target_core[0])
        if target_core[1] < target[1]:
            yield _Unit(target_core[1], target[1], after.span, PUNCTUATION_WEIGHT, (after,))


def _units_of_copy(source: Span, target: Span, share: float) -> Iterator[_Unit]:
    """Yield the characters of a word that equals its source."""
    length = target[1] - target[0]
    for i in range(length):
        source_char = (source[0] + i, source[0] + i + 1)
        start = target[0] + i
        yield _Unit(start, start + 1, source_char, 1 / length, (_SourcePart(source_char, share),), length)


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
