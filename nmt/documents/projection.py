"""Projection of inline tags onto a translation by word alignment.

A tag covers the contiguous part of the translation that has most of the attention to its words.
Tags keep their nesting, and no tag is lost: one whose words have no counterpart covers the word
next to the place where it would be. If other words have nearly as much of the attention, the tag
also covers them if they are close.

The time is linear in the number of tags and words: what belongs to a position is found by an index
or by bisection, and tags in more than `MAX_NESTING` others are not aligned.

Cf. Müller, Treatment of markup in statistical machine translation, 2017,
https://aclanthology.org/W17-4804
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right, insort
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from heapq import heappop, heappush
from itertools import groupby

from nmt.documents.aligned_units import (
    WORD,
    AlignedSentence,
    SourceIndex,
    SourcePart,
    Unit,
    core,
    word_units,
)
from nmt.documents.document import MAX_NESTING, Parents, RichText, Tag, parents
from nmt.documents.fixed_places import find_places
from nmt.documents.ranges import Nearest, Span, by_end, by_start, outside, overlap, overlaps_any

GAP_COST = 0.5
"""Cost of a word that is not linked with a tag's words, relative to the gain of a word of one
letter that is."""
DOUBTFUL_GAP_COST = 0.35
"""The same for a doubtful tag, so that it also covers other words that may be meant."""
MIN_CERTAINTY = 0.6
"""Minimum share of the words that a tag covers in the gain of all words that are linked with its
words."""
FIXED_WEIGHT = 100.0
"""Weight of a fixed span, which the tags around it must not leave."""


def project(
    block: RichText,
    translation: str,
    sentences: Sequence[AlignedSentence],
    parent_of: Parents | None = None,
) -> tuple[Tag, ...]:
    """Return the tags of a block in its translation, in the same order.

    Args:
        block: the block. Fixed spans are within a sentence.
        translation: its translation.
        sentences: those of the block, in order, at least one.
        parent_of: by the id of each tag, the id of the tag that contains it, also if it is a point
            at the end; None: such points are outside of the tag.
    """
    if not block.tags:
        return ()
    children = defaultdict(list)
    if parent_of is None:
        parent_of = parents(block.tags)
    for tag in block.tags:
        children[parent_of[tag.id]].append(tag)
    aligned = _AlignedBlock(block, translation, sentences)
    placed = {}
    levels = [_Level(children[None], (0, len(translation)), 0)]
    while levels:
        level = levels.pop()
        if level.depth > MAX_NESTING:
            tags = _place_deep(level)
        else:
            tags = _Placement(aligned, level).place()
        for tag in tags:
            placed[tag.id] = tag
            if tag.id in children:
                levels.append(_Level(children[tag.id], tag.span, level.depth + 1))
    return tuple(placed[tag.id] for tag in block.tags)


@dataclass(frozen=True)
class _Level:
    """Tags that are in the same tag, or in none."""

    tags: Sequence[Tag]
    window: Span
    """The range of the translation that they must not leave."""
    depth: int
    """Number of tags around them."""


def _place_deep(level: _Level) -> Iterator[Tag]:
    """Yield tags in too many others in the translation: the first one with text covers all of the
    window."""
    position, end = level.window
    for tag in level.tags:
        start = position
        if not tag.is_point:
            position = end
        yield Tag(start, position, tag.id, is_doubtful=not tag.is_point)


class _AlignedBlock:
    """A block and the units of its translation."""

    def __init__(self, block: RichText, target: str, sentences: Sequence[AlignedSentence]) -> None:
        self.target = target
        self.sentences = sentences
        self.fixed: dict[Span, Span | None] = {}
        """Place of each fixed span in the translation; None: it is missing."""
        self._text = block.text
        self._sentence_starts = [sentence.source[0] for sentence in sentences]
        self._words = [match.span() for match in WORD.finditer(target)]
        self.units: list[Unit] = []
        word_starts = [match.start() for match in WORD.finditer(block.text)]
        spans = sorted((span for span in block.fixed if span.translation), key=by_start)
        for sentence in sentences:
            words = list(word_units(block.text, target, sentence))
            first, last = (bisect_left(spans, border, key=by_start) for border in sentence.source)
            fixed = spans[first:last]
            places = find_places(fixed, block.text, target, sentence, words, word_starts)
            self.fixed |= places
            self.units += _with_fixed_units(words, places)
        self._links = self._index_links(word_starts)

    def _index_links(self, word_starts: Sequence[int]) -> SourceIndex[tuple[int, float]]:
        """Return the indices of units, and the shares of the attention, by their sources."""
        links = SourceIndex[tuple[int, float]](word_starts)
        for i, unit in enumerate(self.units):
            for part in unit.parts:
                links.add(part.span, (i, part.share))
        return links

    def sentence_index(self, position: int) -> int:
        """Return the index of the sentence at a position in the source."""
        return max(0, bisect_right(self._sentence_starts, position) - 1)

    def sentences_of(self, tag: Tag) -> Sequence[AlignedSentence]:
        """Return the sentences that have text of a tag."""
        first = self.sentence_index(tag.start)
        last = bisect_left(self._sentence_starts, tag.end)
        return self.sentences[first : max(first + 1, last)]

    def gains(self, span: Span) -> dict[int, float]:
        """Return how much units contribute to the translation of a range of the source, by their
        indices, in order.

        Units that do not contribute are left out.
        """
        shares: dict[int, float] = defaultdict(float)
        for i, share in self._links.find(span):
            shares[i] += share
        gains = {}
        for i, share in sorted(shares.items()):
            unit = self.units[i]
            gain = unit.weight * math.sqrt(unit.word_length) * share
            if gain > 0:
                gains[i] = gain
        return gains

    def cores(self, start: int, end: int) -> Iterator[Span]:
        """Yield the ranges of the words of a part of the translation, without the punctuation
        around them."""
        for match in WORD.finditer(self.target, start, end):
            yield core(self.target, *match.span())

    def positions(self, positions: Iterable[int], window: Span) -> Iterator[tuple[int, int]]:
        """Yield positions in the source, and their positions in the translation: next to the same
        word.

        Args:
            positions: the positions, in order.
            window: the range of the translation in which the words must be.
        """
        for i, group in groupby(positions, self.sentence_index):
            sentence = self.sentences[i]
            start = max(window[0], sentence.target[0])
            end = min(window[1], sentence.target[1])
            first = bisect_left(self.units, start, key=by_start)
            last = bisect_right(self.units, end, key=by_end)
            nearest = _NearestUnits(self.units[first:last])
            for position in group:
                if position <= sentence.source[0]:
                    in_target = sentence.target[0]
                elif position >= sentence.source[1]:
                    in_target = sentence.target[1]
                else:
                    in_target = nearest.position(position)
                yield position, self._next_to_word(position, in_target, window)

    def _next_to_word(self, position: int, in_target: int, window: Span) -> int:
        """Return a position without the spaces between it and the word that its markup is next to.

        Markup after a word stays next to the word before it, other markup next to the one after it.
        """
        start, end = window
        in_target = min(max(in_target, start), end)
        if position and not self._text[position - 1].isspace():
            i = bisect_left(self._words, (in_target,)) - 1
            word_end = self._words[i][1] if i >= 0 else start
            return max(start, min(in_target, word_end))
        i = bisect_right(self._words, in_target, key=lambda word: word[1])
        word_start = self._words[i][0] if i < len(self._words) else end
        return min(end, max(in_target, word_start))


def _with_fixed_units(words: Sequence[Unit], places: Mapping[Span, Span | None]) -> list[Unit]:
    """Return the units of a sentence: fixed text, and the words that have no part of it."""
    units = []
    for source, place in places.items():
        if place:
            units.append(Unit(*place, source, FIXED_WEIGHT, (SourcePart(source, 1.0),)))
    taken = sorted(unit.span for unit in units)
    for word in words:
        if not overlaps_any(word.span, taken):
            units.append(word)
    return sorted(units, key=by_start)


class _NearestUnits:
    """Finds the units whose source is nearest to positions in the source, which are asked for in
    order."""

    def __init__(self, units: Iterable[Unit]) -> None:
        linked = [unit for unit in units if unit.source[0] < unit.source[1]]
        self._units = sorted(linked, key=lambda unit: (unit.source[0], unit.start))
        self._num_before = 0
        """Number of the units whose source starts before the position."""
        self._around: list[tuple[int, int]] = []
        """Heap of those whose source contains the position: their ends in the translation as
        negative numbers, so that the last one comes first, and the ends of their sources."""
        self._last_before = (-1, 0)
        """The largest end of a source that starts before the position, and the end of its unit."""

    def position(self, position: int) -> int:
        """Return the end of the nearest unit before a position, or the start of that after it; 0
        without units."""
        while self._num_before < len(self._units):
            unit = self._units[self._num_before]
            if unit.source[0] >= position:
                break
            heappush(self._around, (-unit.end, unit.source[1]))
            self._last_before = max(self._last_before, (unit.source[1], unit.end))
            self._num_before += 1
        while self._around and self._around[0][1] < position:
            heappop(self._around)
        if self._around:
            return -self._around[0][0]
        source_end, end = self._last_before
        if self._num_before == len(self._units):
            return end
        after = self._units[self._num_before]
        is_nearer = source_end < 0 or after.source[0] - position < position - source_end
        return after.start if is_nearer else end


class _Placement:
    """Places the tags of a level one after the other."""

    def __init__(self, block: _AlignedBlock, level: _Level) -> None:
        self._block = block
        self._tags = level.tags
        self._window = level.window
        self._sources = [tag.span for tag in level.tags if not tag.is_point]
        self._taken: list[Span] = []
        """The ranges of the tags so far, in order."""
        self._free_words: dict[Span, _FreeWords] = {}
        """By the range in which they are."""

    def place(self) -> Iterator[Tag]:
        """Yield the tags in the translation."""
        for tag in self._tags:
            if not tag.is_point:
                placed = self._place(tag)
                insort(self._taken, placed.span)
                yield placed
        for tag in self._tags:
            if tag.is_point:
                yield self._point(tag)

    def _point(self, tag: Tag) -> Tag:
        """Return a position next to the same word as the start of a tag, and outside of the other
        tags."""
        position = outside(self._positions[tag.start], self._taken)
        return Tag(position, position, tag.id)

    @cached_property
    def _positions(self) -> dict[int, int]:
        """The position in the translation of the start of each tag."""
        starts = sorted({tag.start for tag in self._tags})
        return dict(self._block.positions(starts, self._window))

    def _place(self, tag: Tag) -> Tag:
        """Return a tag with text in the translation."""
        sentences = self._block.sentences_of(tag)
        whole = (sentences[0].target[0], sentences[-1].target[1])
        bounds = (max(self._window[0], whole[0]), min(self._window[1], whole[1]))
        if tag.span in self._block.fixed:  # found without the alignment
            fixed = self._block.fixed[tag.span]
            if fixed and self._is_free(fixed, bounds):
                return Tag(*fixed, tag.id)
            return self._point(tag)
        is_whole = tag.start <= sentences[0].source[0] and sentences[-1].source[1] <= tag.end
        if is_whole and self._is_free(whole, bounds):
            return Tag(*whole, tag.id)
        linked = self._most_linked(tag, bounds) or self._nearest_word(tag, bounds)
        has_links = any(sentence.links for sentence in sentences)
        return linked if has_links else replace(linked, is_doubtful=True)

    def _is_free(self, span: Span, bounds: Span) -> bool:
        """Return whether a range of the translation is neither outside of bounds nor in a tag."""
        is_inside = bounds[0] <= span[0] and span[1] <= bounds[1]
        return is_inside and not overlaps_any(span, self._taken)

    def _most_linked(self, tag: Tag, bounds: Span) -> Tag | None:
        """Return a tag at the units that contribute most to its translation; None: there are none
        in the bounds."""
        units = self._block.units

        def cost(i: int) -> float:
            unit = units[i]
            if not self._is_free(unit.span, bounds):
                return math.inf
            if not overlap(unit.source, tag.span) and overlaps_any(unit.source, self._sources):
                return math.inf  # a word of another tag
            return min(unit.weight, 1.0)

        gains = self._block.gains(tag.span)
        gains = {i: gain for i, gain in gains.items() if cost(i) < math.inf}
        run = _best_run(gains, cost, GAP_COST)
        if run is None:
            return None
        gain = sum(gains.get(i, 0.0) for i in range(run[0], run[1] + 1))
        is_doubtful = gain < MIN_CERTAINTY * sum(gains.values())
        if is_doubtful:
            run = _best_run(gains, cost, DOUBTFUL_GAP_COST) or run
        return Tag(units[run[0]].start, units[run[1]].end, tag.id, is_doubtful)

    def _nearest_word(self, tag: Tag, bounds: Span) -> Tag:
        """Return a tag at the free word that is nearest to where it would be."""
        if bounds not in self._free_words:
            self._free_words[bounds] = _FreeWords(self._block.cores(*bounds))
        words = self._free_words[bounds]
        point = self._point(tag)
        word = words.nearest(point.start, lambda word: self._is_free(word, bounds))
        return Tag(*(word or point.span), tag.id, is_doubtful=True)


class _FreeWords:
    """The words of a part of the translation that no tag has taken."""

    def __init__(self, words: Iterable[Span]) -> None:
        self._ends = dict(words)
        self._starts = Nearest(self._ends)

    def nearest(self, position: int, is_free: Callable[[Span], bool]) -> Span | None:
        """Return the word that starts nearest to a position; None: there is none."""
        start = self._starts.find(position, lambda start: is_free((start, self._ends[start])))
        return None if start is None else (start, self._ends[start])


def _best_run(
    gains: Mapping[int, float], cost: Callable[[int], float], gap_cost: float
) -> Span | None:
    """Return the first and last unit of the contiguous run whose gains exceed the costs of its gaps
    most (Kadane 1984).

    Args:
        gains: the gain of each unit that has one, by its index, in order.
        cost: returns the cost of each other unit, relative to `gap_cost`.
        gap_cost: the cost of a word.
    """
    best: Span | None = None
    best_total = 0.0
    total = 0.0
    first = 0
    last = 0
    for i, gain in gains.items():
        # The run continues over a gap while its gains exceed the cost; these steps are no more than
        # the gains pay for.
        for gap in range(last + 1, i):
            if total <= 0:
                break
            total -= gap_cost * cost(gap)
        if total <= 0:
            first = i
            total = 0.0
        total += gain
        last = i
        if total > best_total:
            best = (first, i)
            best_total = total
    return best
