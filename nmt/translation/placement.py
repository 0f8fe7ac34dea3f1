"""Put glossary terms in the place of the words that are aligned with them in the source."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from nmt.core.errors import DataError
from nmt.text.normalization import normalize
from nmt.text.spans import Edit, apply_edits
from nmt.text.whitespace import word_indices_at
from nmt.translation.checks import count_occurrences, is_missing, missing_spans
from nmt.translation.chunking import compute_valid
from nmt.translation.result import Translation
from nmt.translation.segments import FixedSpan, Line
from nmt.translation.terms import (
    TERM_DOUBTFUL,
    AlignedText,
    has_lost_preposition,
    is_doubled,
    is_elsewhere,
    is_in_compound,
    term_edits,
)
from nmt.translation.translator import Translator

Pair = tuple[str, str]
"""A source and its translation."""
NBest = list[Translation]


class TermPlacement:
    """Aligns lines with their translations, each pair once, and places missing terms."""

    def __init__(self, translator: Translator) -> None:
        self._translator = translator
        self._aligned: dict[Pair, AlignedText | None] = {}

    def align_all(self, lines: Iterable[Line], n_bests: Iterable[NBest]) -> None:
        """Align the lines that have terms, because aligning them one by one is slow."""
        lines_of_pairs: dict[Pair, Line] = {}
        for line, n_best in zip(lines, n_bests, strict=True):
            if line.terms:
                for translation in n_best:
                    lines_of_pairs[line.source, translation.text] = line
        self._align_pairs(lines_of_pairs)

    def doubtful_terms(self, line: Line, translation: Translation) -> list[str]:
        """Return a warning for each term that is in the translation, but in the place of another
        word."""
        found = [span for span in line.terms if not is_missing(span, translation.text)]
        aligned = self._align(line, translation.text, found)
        if not aligned:  # the warnings of its parts
            return [each for each in translation.warnings if each.startswith(TERM_DOUBTFUL)]
        doubtful = [span for span in found if is_elsewhere(span, aligned)]
        return [f"{TERM_DOUBTFUL}: {span.translation}" for span in doubtful]

    def terms_in_compounds(
        self, line: Line, text: str, terms: Sequence[FixedSpan]
    ) -> list[FixedSpan]:
        """Return the terms whose translation is in a compound that also translates another word."""
        aligned = self._align(line, text, terms)
        return [span for span in terms if aligned and aligned.compounds(span)]

    def score(self, pairs: Sequence[Pair]) -> list[Translation | None]:
        """Score translations; none for those that are too long."""
        return compute_valid(self._translator.score, pairs, DataError, None)

    def place(
        self,
        lines: Sequence[Line],
        originals: Sequence[Translation],
        constrained: Sequence[NBest],
    ) -> Iterator[NBest]:
        """Yield translations of each line in which its missing terms are placed, the most probable
        first.

        A constrained search may write a term beside the word that it replaces. Its translations
        compete with those in which the words are replaced: the model's log-probability decides.
        """
        candidates: list[NBest] = []
        for line, original, found in zip(lines, originals, constrained, strict=True):
            candidates.append(found + self._replace_words(line, original))
        self.align_all(lines, candidates)
        yield from map(self._rank, lines, originals, candidates)

    def _replace_words(self, line: Line, original: Translation) -> NBest:
        """Replace the words that are aligned with missing terms by the terms."""
        terms = missing_spans(line.terms, original.text)
        aligned = self._align(line, original.text, terms)
        if not aligned:
            return []
        found: NBest = []
        for whole_runs in (False, True):
            edits = term_edits(aligned, terms, whole_runs=whole_runs)
            edited = edit_words(original, edits)
            text = normalize(edited.text)
            keeps_prefix = text.startswith(normalize(line.prefix))
            keeps_constraints = all(normalize(each) in text for each in line.constraints)
            if edits and keeps_prefix and keeps_constraints:
                found.append(edited)
        return found

    def _rank(self, line: Line, original: Translation, n_best: NBest) -> NBest:
        """Return the translations in which no missing term is doubled, the most probable first.

        Neither may a term replace a half of a compound or be beside it.
        Those that have lost the preposition of a term are last: a rare term without it may be more
        probable (`hat uns Flugplatz abgeholt`).
        """
        terms = missing_spans(line.terms, original.text)
        aligned_original = self._align(line, original.text, terms)
        if not aligned_original:
            return n_best
        in_compounds = self.terms_in_compounds(line, original.text, terms)
        replaceable = [span for span in terms if span not in in_compounds]
        order: dict[str, tuple[bool, float]] = {}
        placed: NBest = []
        for translation in n_best:
            aligned = self._align(line, translation.text, terms)
            if not aligned or translation.text in order:
                continue
            is_wrong = _breaks_compound(in_compounds, replaceable, aligned) or any(
                is_doubled(span, aligned, aligned_original) for span in replaceable
            )
            if not is_wrong:
                is_incomplete = any(
                    has_lost_preposition(span, aligned, aligned_original) for span in replaceable
                )
                order[translation.text] = (is_incomplete, -aligned.log_prob)
                placed.append(translation)
        placed.sort(key=lambda each: order[each.text])
        return placed

    def _align(self, line: Line, text: str, terms: Sequence[FixedSpan]) -> AlignedText | None:
        """Align the words of a line; none without terms, or if it is too long to be scored."""
        if not terms:
            return None
        pair = (line.source, text)
        if pair not in self._aligned:
            self._align_pairs({pair: line})
        return self._aligned[pair]

    def _align_pairs(self, lines_of_pairs: dict[Pair, Line]) -> None:
        unknown = [pair for pair in lines_of_pairs if pair not in self._aligned]
        for pair, scored in zip(unknown, self.score(unknown), strict=True):
            self._aligned[pair] = None
            if scored:
                offset = len(pair[0]) - len(lines_of_pairs[pair].text)
                aligned = AlignedText(
                    *pair, scored.alignment, scored.log_prob, offset, scored.links
                )
                self._aligned[pair] = aligned


def has_rest(line: Line, text: str) -> bool:
    """Return whether a part of a glossary term is left beside its translation, such as the R of R&D
    in `R F&E`."""
    for span in line.terms:
        term = line.text[span.start : span.end]
        has_symbol = re.search(r"\w\s?[^\w\s'’-]+\s?\w", term)
        if not has_symbol:
            continue
        translation = re.escape(span.translation)
        rest = "|".join(re.findall(r"\w+", term))
        has_rest_beside = rf"\b(?:{rest})\s{translation}|{translation}\s(?:{rest})\b"
        if re.search(has_rest_beside, text):
            return True
    return False


def edit_words(translation: Translation, edits: Iterable[Edit]) -> Translation:
    """Return the translation after edits of its text; the words of a replaced range keep their
    alignment."""
    for edit in sorted(edits, reverse=True):
        text = apply_edits(translation.text, [edit])
        end = edit[1]
        [last] = word_indices_at(translation.text, [end - 1])
        num_words = len(translation.text.split())
        num_added = len(text.split()) - num_words
        alignment: set[tuple[int, int]] = set()
        new_last = last + num_added
        for source, word in translation.alignment:
            first_new = min(word, new_last)
            last_new = first_new
            if word >= last:
                last_new = word + num_added
            if word > last:
                first_new = last_new
            for i in range(first_new, last_new + 1):
                alignment.add((source, i))
        aligned = sorted(alignment, key=lambda pair: pair[::-1])
        translation = replace(translation, text=text, alignment=tuple(aligned))
    return translation


def _breaks_compound(
    in_compounds: Iterable[FixedSpan], replaceable: Sequence[FixedSpan], translation: AlignedText
) -> bool:
    """Return whether a term is in the place of a compound of the original or beside it.

    Args:
        in_compounds: terms whose translation is in a compound of the original.
        replaceable: the other missing terms, which may have the same translation.
        translation: a translation with terms.
    """
    for span in in_compounds:
        num_expected = sum(each.translation == span.translation for each in replaceable)
        count = count_occurrences(translation.text, span.translation, inflected=True)
        if count > num_expected and not is_in_compound(span, translation):
            return True
    return False
