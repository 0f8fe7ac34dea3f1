"""Find by word alignment whether glossary terms are in the place of the words that they replace."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from nmt.translation.checks import count_occurrences, find_inflected
from nmt.translation.segments import FixedSpan

Edit = tuple[int, int, str]
"""Start and end of a range of a text, and the new text."""
TERM_DOUBTFUL = "term-doubtful"
FUNCTION_WORDS = frozenset(
    (
        "a an the this that of to in on at by for from with and or is are was were be been do does"
        " did has have had not it i you he she we they his her my your our their der die das den"
        " dem des dieser diese dieses diesen diesem ein eine einen einem einer eines kein keine"
        " keinen zu zum zur in im an am auf aus bei beim für mit nach von vom vor und oder ist sind"
        " war waren wird werden hat haben hatte nicht es ich du sie er wir ihr sein mein"
    ).split()
)
"""Words that are no translation of a term, whatever they are aligned with."""
_AROUND_WORD = re.compile(r"(\W*).*?(\W*)", re.DOTALL)


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

    @cached_property
    def words(self) -> list[tuple[int, int]]:
        """Start and end of each word, without punctuation around it."""
        return [
            _without_punctuation(self.text, *match.span())
            for match in re.finditer(r"\S+", self.text)
        ]

    def word(self, index: int) -> str:
        """Return a word in lower case."""
        start, end = self.words[index]
        return self.text[start:end].lower()

    def aligned(self, span: FixedSpan) -> list[int]:
        """Return the indices of the content words that are aligned with a span of the source, in
        order."""
        before = self.source[: span.start + self.offset]
        is_inside_word = bool(before) and not before[-1].isspace()
        first = len(before.split()) - is_inside_word
        return self._content_words(range(first, first + self.num_source_words(span)))

    def rendering(self, span: FixedSpan) -> list[int]:
        """Return the indices of the adjacent words that translate a span of the source, none if
        they are not found.

        If no word is aligned with the span, it is one that is aligned with the article before the
        span: the attention of a noun may be on the article of the source noun.
        """
        if aligned := self.aligned(span):
            return max(_runs(aligned), key=lambda run: sum(len(self.word(index)) for index in run))
        before = self.source[: span.start + self.offset].split()
        if not before or before[-1].lower() not in FUNCTION_WORDS:
            return []
        words = self._content_words([len(before) - 1])
        return [max(words, key=lambda index: len(self.word(index)))] if words else []

    def num_source_words(self, span: FixedSpan) -> int:
        """Return the number of words of a span."""
        return len(self.source[span.start + self.offset : span.end + self.offset].split())

    def term_words(self, span: FixedSpan) -> set[int]:
        """Return the indices of the words of a term that are in the translation."""
        found = set[int]()
        for match in find_inflected(self.text, span.translation):
            found.update(
                i
                for i, (start, end) in enumerate(self.words)
                if start < match.end() and end > match.start()
            )
        return found

    def _content_words(self, source_words: Iterable[int]) -> list[int]:
        wanted = set(source_words)
        aligned = {target for source, target in self.alignment if source in wanted}
        # A tokenizer may count more words.
        return sorted(
            i for i in aligned if i < len(self.words) and self.word(i) not in FUNCTION_WORDS
        )


def is_elsewhere(span: FixedSpan, translation: AlignedText) -> bool:
    """Return whether a term is in a translation, but other words are aligned with it in the
    source."""
    own = translation.term_words(span)
    aligned = translation.aligned(span)
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
    kept = [original.word(i) for i in range(len(original.words)) if i not in rendering]
    aligned = {translation.word(i) for i in translation.aligned(span) if i not in own}
    if not aligned.issubset(kept):
        return True
    # The text may keep words with the same form that translate something else.
    text = " ".join(translation.word(i) for i in range(len(translation.words)) if i not in own)
    kept_text = " ".join(kept)
    return any(
        _count_inflected(text, word) > _count_inflected(kept_text, word) for word in replaced
    )


def term_edits(
    translation: AlignedText, spans: Iterable[FixedSpan], *, whole_runs: bool = False
) -> list[Edit]:
    """Return the edits that replace the words that are aligned with terms, but not punctuation
    around them.

    Args:
        translation: a translation without the terms.
        spans: the terms.
        whole_runs: replace all adjacent words that are aligned with a term, as of a compound, and
            not only as many as the term has in the source.
    """
    edits: list[Edit] = []
    for span in spans:
        rendering = translation.rendering(span)
        if not whole_runs:
            rendering = rendering[: translation.num_source_words(span)]
        if rendering:
            start, end = translation.words[rendering[0]][0], translation.words[rendering[-1]][1]
            edits.append((start, end, span.translation))
    kept: list[Edit] = []
    for edit in sorted(edits):
        if not kept or edit[0] >= kept[-1][1]:  # two terms may be aligned with one compound
            kept.append(edit)
    return kept


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


def _count_inflected(text: str, word: str) -> int:
    return count_occurrences(text, word, inflected=True)


def _without_punctuation(text: str, start: int, end: int) -> tuple[int, int]:
    match = _AROUND_WORD.fullmatch(text, start, end)
    assert match  # matches any text
    return match.end(1), match.start(2)
