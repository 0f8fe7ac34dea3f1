"""The places of fixed texts, such as inline code, in the translation of a sentence."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter

from nmt.data.placeholders import is_separate
from nmt.documents.aligned_units import AlignedSentence, SourceIndex, Unit
from nmt.documents.ranges import Nearest, Span, by_end, by_start, overlaps_any, span_of
from nmt.text.searchable import marks_as_letters
from nmt.text.spans import enclosing, find_spans
from nmt.translation.segments import FixedSpan

_ANY_WORD = "word"


@dataclass(frozen=True)
class _Occurrence:
    """An occurrence of a fixed text in a sentence."""

    span: Span
    whole: str
    """What it is a part of: the text of a longer protected span, such as a URL, or `_ANY_WORD`;
    else empty."""


def find_places(
    spans: Sequence[FixedSpan],
    text: str,
    target: str,
    sentence: AlignedSentence,
    words: Sequence[Unit],
    word_starts: Sequence[int],
) -> dict[Span, Span | None]:
    """Return the place of each fixed span of a sentence: the one aligned with it, else the n-th
    one.

    A part of another protected span or of a word is not its place, unless it is such a part in the
    source, too.

    Args:
        spans: the fixed spans of the sentence.
        text: the text of the block.
        target: its translation.
        sentence: the sentence.
        words: the units of the sentence.
        word_starts: the starts of the words of the block.
    """
    places: dict[Span, Span | None] = {}
    if not spans:
        return places
    source_text = _Text(text, sentence.source)
    target_text = _Text(target, sentence.target)
    aligned_words = words if sentence.links else ()
    taken: list[Span] = []
    # A span may be a part of a longer one.
    ordered = sorted(spans, key=_longest_first)
    for fixed, group in groupby(ordered, attrgetter("translation")):
        originals = source_text.occurrences(fixed)
        occurrences = target_text.occurrences(fixed)
        candidates = _Candidates(occurrences, aligned_words, word_starts)
        for span in group:
            source = span_of(span)
            index = bisect_left(originals, source, key=attrgetter("span"))
            same = originals[index : index + 1]
            wholes = {"", *(each.whole for each in same)}
            place = candidates.choose(source, index, wholes, taken)
            places[source] = place
            if place:
                insort(taken, place)
    return places


def _longest_first(span: FixedSpan) -> tuple[int, str]:
    return -len(span.translation), span.translation


class _Text:
    """A sentence or its translation, as a range of a text."""

    def __init__(self, text: str, span: Span) -> None:
        self._start, end = span
        self._text = text[self._start : end]
        self._protected = find_spans(self._text)
        self._letters = marks_as_letters(self._text)

    def occurrences(self, fixed: str) -> list[_Occurrence]:
        """Return the occurrences of a fixed text, in order."""
        found = []
        start = self._text.find(fixed)
        while start >= 0:
            end = start + len(fixed)
            is_word = is_separate(self._letters, start, end, len(self._letters))
            whole = "" if is_word else _ANY_WORD
            longer = enclosing(start, end, self._protected)
            if longer:
                whole = self._text[longer.start : longer.end]
            span = (self._start + start, self._start + end)
            found.append(_Occurrence(span, whole))
            next_start = end if is_word else start + 1
            start = self._text.find(fixed, next_start)
        return found


class _Candidates:
    """The occurrences of a fixed text in a translation, of which each fixed span takes one."""

    def __init__(
        self, occurrences: Sequence[_Occurrence], words: Sequence[Unit], word_starts: Sequence[int]
    ) -> None:
        self._occurrences = occurrences
        by_whole = defaultdict(list)
        by_source = defaultdict(list)
        for i, occurrence in enumerate(occurrences):
            by_whole[occurrence.whole].append(i)
            # A place is aligned with a span if one of its words is.
            start, end = occurrence.span
            first = bisect_right(words, start, key=by_end)
            last = bisect_left(words, end, key=by_start)
            sources = [word.source for word in words[first:last]]
            for span in dict.fromkeys(sources):
                by_source[span, occurrence.whole].append(i)
        self._by_whole = {whole: Nearest(indices) for whole, indices in by_whole.items()}
        self._aligned = SourceIndex[tuple[str, Nearest]](word_starts)
        for (span, whole), indices in by_source.items():
            self._aligned.add(span, (whole, Nearest(indices)))

    def choose(
        self, span: Span, index: int, wholes: Iterable[str], taken: Sequence[Span]
    ) -> Span | None:
        """Return the place of a fixed span, which is the occurrence with this index in the source.

        Args:
            span: the fixed span.
            index: the index.
            wholes: what the place may be a part of.
            taken: ranges of the translation that are the places of other spans, in order.
        """

        def is_free(i: int) -> bool:
            return not overlaps_any(self._occurrences[i].span, taken)

        aligned = [nearest for whole, nearest in self._aligned.find(span) if whole in wholes]
        others = [self._by_whole[whole] for whole in wholes if whole in self._by_whole]
        for candidates in (aligned, others):
            found = [nearest.find(index, is_free) for nearest in candidates]
            indices = [i for i in found if i is not None]
            if indices:
                nearest_index = min(indices, key=lambda i: (abs(i - index), i))
                return self._occurrences[nearest_index].span
        return None
