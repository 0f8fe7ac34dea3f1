"""Put glossary terms in the place of the words that are aligned with them in the source."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from nmt.core.errors import DataError
from nmt.text.spans import apply_edits
from nmt.translation.checks import is_missing
from nmt.translation.pieces import is_inside_word
from nmt.translation.result import Translation
from nmt.translation.segments import FixedSpan, Line, with_language
from nmt.translation.terms import (
    TERM_DOUBTFUL,
    AlignedText,
    Edit,
    is_doubled,
    is_elsewhere,
    term_edits,
)
from nmt.translation.translator import Translator

Lines = Sequence[Line]
NBest = list[Translation]


class TermPlacement:
    """Aligns lines with their translations, each pair once, and places missing terms."""

    def __init__(self, translator: Translator) -> None:
        self._translator = translator
        self._aligned: dict[tuple[str, str], AlignedText | None] = {}

    def align_all(self, lines: Lines, n_bests: Sequence[NBest]) -> None:
        """Align the lines that have terms, because aligning them one by one is slow."""
        lines_of_pairs: dict[tuple[str, str], Line] = {}
        for line, n_best in zip(lines, n_bests, strict=True):
            if not any(span.is_term for span in line.fixed):
                continue
            source = with_language(line.text, line.language)
            for translation in n_best:
                lines_of_pairs[source, translation.text] = line
        self._align_pairs(lines_of_pairs)

    def doubtful_terms(self, line: Line, translation: Translation) -> list[str]:
        """Return a warning for each term that is in the translation, but in the place of another
        word."""
        of_parts = [
            warning for warning in translation.warnings if warning.startswith(TERM_DOUBTFUL)
        ]
        terms = [
            span for span in line.fixed if span.is_term and not is_missing(span, translation.text)
        ]
        aligned = self._align(line, translation.text) if terms else None
        if not aligned:
            return of_parts
        return [
            f"{TERM_DOUBTFUL}: {span.translation}" for span in terms if is_elsewhere(span, aligned)
        ]

    def score(self, pairs: list[tuple[str, str]]) -> list[Translation | None]:
        """Score translations; none for those that are too long, which are found by halving."""
        try:
            return list(self._translator.score(pairs))
        except DataError:
            if len(pairs) < 2:
                return [None]
            middle = len(pairs) // 2
            return self.score(pairs[:middle]) + self.score(pairs[middle:])

    def place(
        self, lines: Lines, results: Sequence[NBest], constrained: Sequence[NBest]
    ) -> Iterator[NBest]:
        """Yield translations of each line in which its missing terms are placed, the most probable
        first.

        A constrained search may write a term beside the word that it replaces. Its translations
        compete with those in which the words are replaced: the model's log-probability decides.
        """
        candidates: list[NBest] = []
        for line, n_best, found in zip(lines, results, constrained, strict=True):
            candidates.append(found + self._replace_words(line, n_best[0]))
        self.align_all(lines, candidates)
        for line, n_best, found in zip(lines, results, candidates, strict=True):
            yield self._rank(line, n_best[0], found)

    def _replace_words(self, line: Line, original: Translation) -> NBest:
        """Replace the words that are aligned with missing terms by the terms."""
        terms = _missing_terms(line, original.text)
        aligned = self._align(line, original.text) if terms else None
        if not aligned:
            return []
        found: NBest = []
        for whole_runs in (False, True):
            edits = term_edits(aligned, terms, whole_runs=whole_runs)
            edited = edit_words(original, edits)
            keeps_prefix = edited.text.lstrip().startswith(line.prefix)
            if edits and keeps_prefix and all(each in edited.text for each in line.constraints):
                found.append(edited)
        return found

    def _rank(self, line: Line, original: Translation, n_best: NBest) -> NBest:
        """Return the translations in which no missing term is doubled, the most probable first."""
        terms = _missing_terms(line, original.text)
        aligned_original = self._align(line, original.text) if terms else None
        if not aligned_original:
            return n_best
        log_probs: dict[str, float] = {}
        placed: NBest = []
        for translation in n_best:
            aligned = self._align(line, translation.text)
            if not aligned or translation.text in log_probs:
                continue
            if not any(is_doubled(span, aligned, aligned_original) for span in terms):
                log_probs[translation.text] = aligned.log_prob
                placed.append(translation)
        return sorted(placed, key=lambda each: -log_probs[each.text])

    def _align(self, line: Line, text: str) -> AlignedText | None:
        """Align the words of a line; none if it is too long to be scored."""
        pair = (with_language(line.text, line.language), text)
        if pair not in self._aligned:
            self._align_pairs({pair: line})
        return self._aligned[pair]

    def _align_pairs(self, lines_of_pairs: dict[tuple[str, str], Line]) -> None:
        unknown = [pair for pair in lines_of_pairs if pair not in self._aligned]
        for pair, scored in zip(unknown, self.score(unknown), strict=True):
            self._aligned[pair] = None
            if scored:
                offset = len(pair[0]) - len(lines_of_pairs[pair].text)
                self._aligned[pair] = AlignedText(*pair, scored.alignment, scored.log_prob, offset)


def has_rest(line: Line, text: str) -> bool:
    """Return whether a part of a glossary term is left beside its translation, such as the R of R&D
    in `R F&E`."""
    for span in line.fixed:
        term = line.text[span.start : span.end]
        if not (span.is_term and re.search(r"\w\s?[^\w\s'’-]+\s?\w", term)):
            continue
        translation = re.escape(span.translation)
        rest = "|".join(re.findall(r"\w+", term))
        if re.search(rf"\b(?:{rest})\s{translation}|{translation}\s(?:{rest})\b", text):
            return True
    return False


def edit_words(translation: Translation, edits: Iterable[Edit]) -> Translation:
    """Return the translation after edits of its text; the words of a replaced range keep their
    alignment."""
    for start, end, new in sorted(edits, reverse=True):
        text = apply_edits(translation.text, [(start, end, new)])
        last = len(translation.text[: end - 1].split()) - is_inside_word(translation.text, end - 1)
        num_added = len(text.split()) - len(translation.text.split())
        alignment: set[tuple[int, int]] = set()
        for source, word in translation.alignment:
            if word == last:
                new_words = range(last + min(0, num_added), last + num_added + 1)
                alignment.update((source, i) for i in new_words)
            elif word > last:
                alignment.add((source, word + num_added))
            else:
                alignment.add((source, min(word, last + num_added)))
        aligned = sorted(alignment, key=lambda pair: pair[::-1])
        translation = replace(translation, text=text, alignment=tuple(aligned))
    return translation


def _missing_terms(line: Line, text: str) -> list[FixedSpan]:
    return [span for span in line.fixed if span.is_term and is_missing(span, text)]
