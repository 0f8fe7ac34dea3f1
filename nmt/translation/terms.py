"""Find by word alignment whether glossary terms are in the place of the words that they replace."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from nmt.text.lazy_pattern import lazy_pattern
from nmt.text.searchable import marks_as_letters
from nmt.text.spans import Edit
from nmt.text.whitespace import word_indices_at
from nmt.translation.alignment import Link
from nmt.translation.checks import count_occurrences, find_inflected
from nmt.translation.segments import FixedSpan

TERM_DOUBTFUL = "term-doubtful"
PREPOSITIONS = frozenset(
    (
        "of to in on at by for from with zu zum zur im an am auf aus bei beim für mit nach von vom"
        " vor"
    ).split()
)
DETERMINERS = frozenset(
    (
        "a an the this that his her my your our their der die das den dem des dieser diese dieses"
        " diesen diesem ein eine einen einem einer eines kein keine keinen ihr sein mein"
    ).split()
)
FUNCTION_WORDS = PREPOSITIONS | DETERMINERS
FUNCTION_WORDS |= frozenset(
    (
        "and or is are was were be been do does did has have had not it i you he she we they und"
        " oder ist sind war waren wird werden hat haben hatte nicht es ich du sie er wir"
    ).split()
)
"""Words that are no translation of a term, whatever they are aligned with."""
MIN_SHARE_OF_COMPOUND = 0.3
"""Minimum share of the attention to each of two adjacent source words that a compound of both has.
In technical text, about 10 of 348 words with that much were no compounds: the source word beside
the term had been left out."""
_WORD = lazy_pattern(r"(?=\S)[^\w\s]*+(\S*?)[^\w\s]*+(?!\S)")
"""A word, with punctuation around it that is not in the group."""


@dataclass(frozen=True)
class AlignedText:
    """A translation and the words of its source that its words are aligned with."""

    source: str
    text: str
    alignment: Sequence[tuple[int, int]]
    log_prob: float = 0.0
    """Log-probability of the translation."""
    offset: int = 0
    """Length of what was added before the line in the source: a token that chooses the target
    language."""
    links: Sequence[Link] = ()
    """The alignment in both directions, by which compounds are found."""

    @cached_property
    def words(self) -> list[tuple[int, int]]:
        """Start and end of each word, without punctuation around it."""
        return _find_words(self.text)

    @cached_property
    def source_words(self) -> list[str]:
        """The words of the source in lower case, without punctuation around them."""
        return [self.source[start:end].lower() for start, end in _find_words(self.source)]

    def word(self, index: int) -> str:
        """Return a word in lower case."""
        start, end = self.words[index]
        return self.text[start:end].lower()

    def aligned(self, span: FixedSpan) -> list[int]:
        """Return the indices of the content words that are aligned with a span of the source, in
        order."""
        return self._content_words(self._source_range(span))

    def compounds(self, span: FixedSpan) -> list[int]:
        """Return the indices of the words that translate a span of the source together with the
        content word before or after it, such as Autoschlüssel for `car` in `car key`."""
        span_words = self._source_range(span)
        neighbors: list[int] = []
        for index in (span_words.start - 1, span_words.stop):
            word = ""
            if 0 <= index < len(self.source_words):
                word = self.source_words[index]
            if word and word not in FUNCTION_WORDS:
                neighbors.append(index)
        shared = self._linked_words(span_words) & self._linked_words(neighbors)
        return [index for index in sorted(shared) if self.word(index) not in FUNCTION_WORDS]

    def rendering(self, span: FixedSpan) -> list[int]:
        """Return the indices of the adjacent words that translate a span of the source, none if
        they are not found.

        If no word is aligned with the span, it is one that is aligned with the article before the
        span: the attention of a noun may be on the article of the source noun.
        """
        aligned = self.aligned(span)
        candidates = list(_runs(aligned))
        if not aligned:
            before = self.source[: span.start + self.offset].split()
            if not before or before[-1].lower() not in FUNCTION_WORDS:
                return []
            words = self._content_words([len(before) - 1])
            candidates = [[index] for index in words]
        return max(candidates, key=self._length, default=[])

    def _length(self, indices: Iterable[int]) -> int:
        return sum(len(self.word(index)) for index in indices)

    def num_source_words(self, span: FixedSpan) -> int:
        """Return the number of words of a span."""
        start = span.start + self.offset
        end = span.end + self.offset
        return len(self.source[start:end].split())

    def term_words(self, span: FixedSpan) -> set[int]:
        """Return the indices of the words of a term that are in the translation."""
        found: set[int] = set()
        for match in find_inflected(self.text, span.translation):
            for i, (start, end) in enumerate(self.words):
                if start < match.end() and end > match.start():
                    found.add(i)
        return found

    def word_before(self, index: int) -> str:
        """Return the word before a word in lower case; empty if it is the first."""
        return self.word(index - 1) if index else ""

    def other_words(self, indices: Container[int]) -> list[str]:
        """Return the words that are not at these indices, in lower case."""
        return [self.word(i) for i in range(len(self.words)) if i not in indices]

    def _source_range(self, span: FixedSpan) -> range:
        """Return the indices of the source words of a span."""
        [first] = word_indices_at(self.source, [span.start + self.offset])
        return range(first, first + self.num_source_words(span))

    def _linked_words(self, source_words: Container[int]) -> set[int]:
        """Return the indices of the words with much of the attention to one of some source
        words."""
        linked: set[int] = set()
        for link in self.links:
            is_known = link.target < len(self.words)  # a tokenizer may count more words
            if is_known and link.source in source_words and link.share >= MIN_SHARE_OF_COMPOUND:
                linked.add(link.target)
        return linked

    def _content_words(self, source_words: Iterable[int]) -> list[int]:
        wanted = set(source_words)
        aligned = {target for source, target in self.alignment if source in wanted}
        # A tokenizer may count more words.
        known = sorted(index for index in aligned if index < len(self.words))
        return [index for index in known if self.word(index) not in FUNCTION_WORDS]


def is_elsewhere(span: FixedSpan, translation: AlignedText) -> bool:
    """Return whether a term is in a translation, but other words are aligned with it in the
    source."""
    own = translation.term_words(span)
    aligned = translation.aligned(span) + translation.compounds(span)
    return bool(own and aligned) and own.isdisjoint(aligned)


def is_doubled(span: FixedSpan, translation: AlignedText, original: AlignedText) -> bool:
    """Return whether words that a term replaces are beside it.

    Args:
        span: the term.
        translation: a translation with the term.
        original: a translation without the term.
    """
    own = translation.term_words(span)
    rendering = original.rendering(span)
    replaced = [original.word(i) for i in rendering]
    kept = original.other_words(rendering)
    aligned = {translation.word(i) for i in translation.aligned(span) if i not in own}
    if not aligned.issubset(kept):
        return True
    # The text may keep words with the same form that translate something else.
    text = " ".join(translation.other_words(own))
    kept_text = " ".join(kept)
    for word in replaced:
        count = count_occurrences(text, word, inflected=True)
        if count > count_occurrences(kept_text, word, inflected=True):
            return True
    return False


def is_in_compound(span: FixedSpan, translation: AlignedText) -> bool:
    """Return whether a term is in a compound with a hyphen that also translates the source word
    before or after it, such as Faktura-Nummer."""
    compounds = [translation.words[index] for index in translation.compounds(span)]
    for match in find_inflected(translation.text, span.translation):
        for start, end in compounds:
            is_part = start <= match.start() and match.end() <= end
            if is_part and match.span() != (start, end):
                return True
    return False


def has_lost_preposition(span: FixedSpan, translation: AlignedText, original: AlignedText) -> bool:
    """Return whether the words that a term replaces follow a preposition, and the term neither one
    nor an article.

    Args:
        span: the term.
        translation: a translation with the term.
        original: a translation without the term.
    """
    rendering = original.rendering(span)
    own = translation.term_words(span)
    if not rendering or not own:
        return False
    if original.word_before(rendering[0]) not in PREPOSITIONS:
        return False
    return translation.word_before(min(own)) not in PREPOSITIONS | DETERMINERS


def term_edits(
    translation: AlignedText, spans: Iterable[FixedSpan], *, whole_runs: bool = False
) -> list[Edit]:
    """Return the edits that replace the words that are aligned with terms, but not punctuation
    around them.

    A term whose translation is in a compound has none, because the compound also translates another
    word.

    Args:
        translation: a translation without the terms.
        spans: the terms.
        whole_runs: replace all adjacent words that are aligned with a term, as of a compound, and
            not only as many as the term has in the source.
    """
    edits: list[Edit] = []
    for span in spans:
        if translation.compounds(span):
            continue
        rendering = translation.rendering(span)
        if not whole_runs:
            rendering = rendering[: translation.num_source_words(span)]
        if rendering:
            start, _ = translation.words[rendering[0]]
            _, end = translation.words[rendering[-1]]
            if _replaces_period(translation, span, end):
                end += 1
            edits.append((start, end, span.translation))
    kept: list[Edit] = []
    previous_end = 0
    for start, end, new in sorted(edits):
        if start >= previous_end:  # two terms may be aligned with one compound
            kept.append((start, end, new))
            previous_end = end
    return kept


def _replaces_period(translation: AlignedText, span: FixedSpan, end: int) -> bool:
    """Return whether a term also replaces the period after the words that end at an offset: the
    term or its source is an abbreviation, and no sentence without a period would be left."""
    is_followed = translation.text[end : end + 1] == "."
    if span.translation.endswith("."):
        return is_followed
    is_abbreviation = translation.source[: span.end + translation.offset].endswith(".")
    is_inside = any(map(str.isalnum, translation.text[end:]))
    return is_followed and is_abbreviation and is_inside


def _find_words(text: str) -> list[tuple[int, int]]:
    """Return the start and end of each word, without punctuation around it."""
    letters = marks_as_letters(text)
    return [match.span(1) for match in _WORD.finditer(letters)]


def _runs(indices: Sequence[int]) -> Iterator[list[int]]:
    """Yield the runs of consecutive numbers."""
    run: list[int] = []
    for index in indices:
        if run and index != run[-1] + 1:
            yield run
            run = []
        run.append(index)
    if run:
        yield run
