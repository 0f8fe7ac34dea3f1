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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from heapq import heappop, heappush
from itertools import groupby
from operator import itemgetter

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
from nmt.documents.ranges import (
    Nearest,
    Span,
    by_end,
    by_start,
    outside,
    overlap,
    overlaps_any,
    span_of,
)
from nmt.text.numbers import swap_separators
from nmt.text.spans import without_overlaps
from nmt.translation.alignment import best_run
from nmt.translation.segments import FixedSpan, protected_spans

GAP_COST = 0.5
"""Cost of a word that is not linked with a tag's words, relative to the gain of a word of one
letter that is."""
DOUBTFUL_GAP_COST = 0.8
"""The same for a doubtful tag, in which long words count more. It also covers other words that may
be meant, if they are close."""
MIN_CERTAINTY = 0.6
"""A tag is doubtful if the words that it covers have less than this share of the gain of all words
that are linked with its words."""
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
        parent = parent_of[tag.id]
        children[parent].append(tag)
    aligned = _AlignedBlock(block, translation, sentences)
    placed = {}
    whole = (0, len(translation))
    levels = [_Level(children[None], whole, 0)]
    while levels:
        level = levels.pop()
        if level.depth > MAX_NESTING:
            tags = _place_deep(aligned, level)
        else:
            tags = _Placement(aligned, level).place()
        for tag in tags:
            placed[tag.id] = tag
            if tag.id in children:
                inner = _Level(children[tag.id], tag.span, level.depth + 1)
                levels.append(inner)
    in_order = [placed[tag.id] for tag in block.tags]
    return tuple(in_order)


@dataclass(frozen=True)
class _Level:
    """Tags that are in the same tag, or in none."""

    tags: Sequence[Tag]
    window: Span
    """The range of the translation that they must not leave."""
    depth: int
    """Number of tags around them."""


def _place_deep(block: _AlignedBlock, level: _Level) -> Iterator[Tag]:
    """Yield tags in too many others in the translation: the first one with text covers all of the
    window, except for fixed text, which has a place of its own."""
    position, end = level.window
    for tag in level.tags:
        is_fixed = tag.span in block.fixed
        place: Span | None = (position, end)
        if is_fixed:
            place = block.fixed[tag.span]
        if tag.is_point or place is None or place[0] < position or end < place[1]:
            place = (position, position)
        position = place[1]
        yield Tag(*place, tag.id, is_doubtful=not (tag.is_point or is_fixed))


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
        self._add_units(block, word_starts)
        self._links = self._index_links(word_starts)

    def _add_units(self, block: RichText, word_starts: Sequence[int]) -> None:
        """Add the units of all sentences, and the places of fixed spans."""
        translated = [span for span in block.fixed if span.translation]
        of_markup = {span_of(span) for span in translated}
        translated += _protected_tags(block, self.target)
        translated = list(without_overlaps(translated))
        for sentence in self.sentences:
            words = list(word_units(block.text, self.target, sentence))
            start, end = sentence.source
            first = bisect_left(translated, start, key=by_start)
            last = bisect_left(translated, end, key=by_start)
            fixed = translated[first:last]
            places = find_places(fixed, block.text, self.target, sentence, words, word_starts)
            for span, place in places.items():
                # Markup writes its fixed text itself, also where the translation lacks it.
                if place or span in of_markup:
                    self.fixed[span] = place
            self.units += _with_fixed_units(words, places)

    def _index_links(self, word_starts: Sequence[int]) -> SourceIndex[tuple[int, float]]:
        """Return the indices of units, and the shares of the attention, by their sources."""
        links = SourceIndex[tuple[int, float]](word_starts)
        for i, unit in enumerate(self.units):
            for part in unit.parts:
                links.add(part.span, (i, part.share))
        return links

    def sentence_index(self, position: int) -> int:
        """Return the index of the sentence at a position in the source."""
        num_started = bisect_right(self._sentence_starts, position)
        return max(0, num_started - 1)

    def sentences_of(self, tag: Tag) -> Sequence[AlignedSentence]:
        """Return the sentences that have text of a tag. Whitespace at its start is no text."""
        text_start = _skip_spaces(self._text, tag.start, tag.end)
        first = self.sentence_index(text_start)
        end = bisect_left(self._sentence_starts, tag.end)
        end = max(first + 1, end)
        return self.sentences[first:end]

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
            importance = math.sqrt(unit.word_length)
            gain = unit.weight * importance * share
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
            source_start, source_end = sentence.source
            target_start, target_end = sentence.target
            start = max(window[0], target_start)
            end = min(window[1], target_end)
            first = bisect_left(self.units, start, key=by_start)
            last = bisect_right(self.units, end, key=by_end)
            units = self.units[first:last]
            nearest = _NearestUnits(units)
            for position in group:
                if position <= source_start:
                    in_target = target_start
                elif position >= source_end:
                    in_target = target_end
                else:
                    in_target = nearest.position(position)
                yield position, self._next_to_word(position, in_target, window)

    def _next_to_word(self, position: int, in_target: int, window: Span) -> int:
        """Return a position without the spaces between it and the word that its markup is next to.

        Markup after a word stays next to the word before it, other markup next to the one after it.
        """
        start, end = window
        words = self._words
        in_target = max(in_target, start)
        in_target = min(in_target, end)
        character_before = self._text[position - 1 : position]
        is_after_word = character_before != "" and not character_before.isspace()
        if is_after_word:
            num_words = bisect_left(words, (in_target,))
            word_end = words[num_words - 1][1] if num_words else start
            in_target = min(in_target, word_end)
            return max(start, in_target)
        num_words = bisect_right(words, in_target, key=itemgetter(1))
        word_start = words[num_words][0] if num_words < len(words) else end
        in_target = max(in_target, word_start)
        return min(end, in_target)


def _protected_tags(block: RichText, target: str) -> list[FixedSpan]:
    """Return the tags whose text is a protected span, such as an amount, as the translation has
    it."""
    tagged = {tag.span for tag in block.tags}
    spans = []
    for span in protected_spans(block.text):
        if span_of(span) not in tagged:
            continue
        localized = swap_separators(span.translation)
        if localized in target and span.translation not in target:
            span = replace(span, translation=localized)
        spans.append(span)
    return spans


def _skip_spaces(text: str, start: int, end: int) -> int:
    """Return the position of the first character of a range that is no whitespace, or its last
    one."""
    while start < end - 1 and text[start].isspace():
        start += 1
    return start


def _with_fixed_units(words: Sequence[Unit], places: Mapping[Span, Span | None]) -> list[Unit]:
    """Return the units of a sentence: fixed text, and the words that have no part of it."""
    units = []
    for source, place in places.items():
        if place:
            part = SourcePart(source, 1.0)
            unit = Unit(*place, source, FIXED_WEIGHT, (part,))
            units.append(unit)
    taken = sorted(unit.span for unit in units)
    for word in words:
        if not overlaps_any(word.span, taken):
            units.append(word)
    return sorted(units, key=by_start)


class _NearestUnits:
    """Finds the units whose source is nearest to positions in the source, which are asked for in
    order."""

    def __init__(self, units: Iterable[Unit]) -> None:
        linked = []
        for unit in units:
            source_start, source_end = unit.source
            if source_start < source_end:
                linked.append(unit)
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
        num_units = len(self._units)
        while self._num_before < num_units:
            unit = self._units[self._num_before]
            source_start, source_end = unit.source
            if source_start >= position:
                break
            around = (-unit.end, source_end)
            heappush(self._around, around)
            before = (source_end, unit.end)
            self._last_before = max(self._last_before, before)
            self._num_before += 1
        # The last unit whose source contains the position.
        while self._around:
            negative_end, source_end = self._around[0]
            if position <= source_end:
                return -negative_end
            heappop(self._around)
        # The nearer one of the units before and after the position.
        source_end, end = self._last_before
        if self._num_before == num_units:
            return end
        after = self._units[self._num_before]
        distance_before = position - source_end
        distance_after = after.source[0] - position
        is_first = source_end < 0
        if is_first or distance_after < distance_before:
            return after.start
        return end


class _Placement:
    """Places the tags of a level one after the other."""

    def __init__(self, block: _AlignedBlock, level: _Level) -> None:
        self._block = block
        self._tags = level.tags
        self._window = level.window
        self._sources = [tag.span for tag in level.tags if not tag.is_point]
        self._taken: list[Span] = []
        """The ranges of the tags so far, in order."""
        self._words: dict[Span, tuple[Nearest, dict[int, int]]] = {}
        """By a range of the translation, the starts of the words in it, without those that tags
        have taken, and the ends of the words."""

    def place(self) -> Iterator[Tag]:
        """Yield the tags in the translation."""
        for tag in self._tags:
            if not tag.is_point:
                placed = self._place(tag)
                if not placed.is_point:
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
        first = sentences[0]
        last = sentences[-1]
        start = first.target[0]
        end = last.target[1]
        window_start, window_end = self._window
        bounds = (max(window_start, start), min(window_end, end))
        if tag.span in self._block.fixed:  # found without the alignment
            fixed = self._block.fixed[tag.span]
            if fixed and self._is_free(fixed, bounds):
                return Tag(*fixed, tag.id)
            return self._point(tag)
        has_start = tag.start <= first.source[0]
        has_end = last.source[1] <= tag.end
        if has_start and has_end and self._is_free((start, end), bounds):
            return Tag(start, end, tag.id)
        linked = self._most_linked(tag, bounds)
        if linked is None:
            linked = self._nearest_word(tag, bounds)
        if any(sentence.links for sentence in sentences):
            return linked
        return replace(linked, is_doubtful=True)

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

        gains = {}
        for i, gain in self._block.gains(tag.span).items():
            if cost(i) < math.inf:
                gains[i] = gain
        run = best_run(gains, cost, GAP_COST)
        if run is None:
            return None
        first, last = run
        covered = sum(gain for i, gain in gains.items() if first <= i <= last)
        total = sum(gains.values())
        is_doubtful = covered < MIN_CERTAINTY * total
        if is_doubtful:
            run = best_run(self._prefer_long(gains), cost, DOUBTFUL_GAP_COST) or run
        first, last = run
        return Tag(units[first].start, units[last].end, tag.id, is_doubtful)

    def _prefer_long(self, gains: Mapping[int, float]) -> dict[int, float]:
        """Return the gains of a doubtful tag, more for longer words: of an auxiliary and its verb,
        which are far apart in German, the verb is meant."""
        units = self._block.units
        return {i: gain * math.sqrt(units[i].word_length) for i, gain in gains.items()}

    def _nearest_word(self, tag: Tag, bounds: Span) -> Tag:
        """Return a tag at the free word that is nearest to where it would be."""
        if bounds not in self._words:
            ends = dict(self._block.cores(*bounds))
            self._words[bounds] = Nearest(ends), ends
        starts, ends = self._words[bounds]

        def is_free(start: int) -> bool:
            return self._is_free((start, ends[start]), bounds)

        point = self._point(tag)
        start = starts.find(point.start, is_free)
        if start is None:
            return replace(point, is_doubtful=True)
        return Tag(start, ends[start], tag.id, is_doubtful=True)
