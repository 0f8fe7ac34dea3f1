"""`Guard` checks each translation of a `Translator`, and searches again where a check fails.

Protected spans and glossary terms of the source must occur in the translation, and it must not have any of
the problems that `nmt.inference.problems` detects. A line whose best translation fails is translated again in other
ways until one passes. If none does, the translation has warnings. No line is dropped.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, islice, pairwise
from typing import TYPE_CHECKING

from nmt.data.language_codes import base_language
from nmt.data.normalization import remove_invisible
from nmt.data.sentences import split_sentences
from nmt.data.spans import ProtectedSpan, apply_edits, without_overlaps
from nmt.errors import DataError, UsageError
from nmt.inference.chunking import chunked
from nmt.inference.content import (
    MISSING_ITEM,
    MISSING_SENTENCE,
    NUMBER_ADDED,
    NUMBER_CHANGED,
    UNBALANCED,
    find_items,
    has_lone_mark,
    split_items,
)
from nmt.inference.marks import restore_marks
from nmt.inference.numbers import equivalent_pattern, number_localizer
from nmt.inference.problems import LETTER, count_occurrences, find_problems, is_missing
from nmt.inference.segments import FixedSpan, Line, spans_within, with_language
from nmt.inference.substitution import digits_for_words, substitute
from nmt.inference.terms import TERM_DOUBTFUL, AlignedText, Edit, is_doubled, is_elsewhere, term_edits
from nmt.inference.translation import Part, Translation, concatenate, n_best_of_line
from nmt.inference.translator import Translator, as_lines, check_lines, restore_whitespace
from nmt.inference.whitespace import inline, separator, surrounding_whitespace
from nmt.search import parse_search

if TYPE_CHECKING:
    from nmt.inference.glossary import Glossary

STAND_INS = ("Tom", "Peter", "Anna", "Boston", "Berlin", "Paul", "Robert", "Paris")
"""Names that stand for protected spans that a translation has lost. Models copy names more often than letters or rare
words."""
WIDE_BEAM = "beam(beam_size=8, top_beams=8, no_repeat_ngram_size=4)"
CONSTRAINED = "constrained(beam_size=8, top_beams=2)"
CONJUNCTIONS = ({"en": "and", "de": "und"}, {"en": "or", "de": "oder"})
MAX_ALIGNED_CHARACTERS = 2000
"""Maximum length of a line that is aligned with its translation as a whole: attention takes quadratic time."""
MIN_SHARE_OF_MARKED = 0.25
"""Minimum share of the attention to a word between marks that its translation receives. With less, it has none."""
SPAN_PROBLEMS = ("missing", "repeated", "misplaced")
TERM_NOT_APPLIED = "term-not-applied"
_NUMBERS = ("quantity", "version", "format", "number")
"""Kinds of protected spans that may be numbers in the format of the source language."""
_MARKER = re.compile(r"\s*[-–—•*·▪◦‣]\s+(?=[^\W\d_])")
_ENCLOSING_TAG = re.compile(r"\s*<(?P<name>[a-z][\w-]*)(?:\s[^<>]*)?>(?P<rest>(?:(?!</?(?P=name)\b).)*)</(?P=name)>\s*")
_SPACES = re.compile(r"(?<=\S) {2,}(?=\S)")
_LEADING_PUNCTUATION = re.compile(r"[\s,;:.!?)\]}”“»'\"-]*")
_LABEL = re.compile(
    r"\b(?:version|release|section|chapter|figure|table|abschnitt|kapitel|abbildung|tabelle)\s$", re.IGNORECASE
)
"""A word whose number is a name, such as version 3.1, and has no decimal separator."""
_SENTENCE_BOUNDARY = re.compile(r"[.!?…](?=\s+\w)")
_ADDED_PERIOD = re.compile(r"[.!?…。！？।॥؟۔]+$")
_SENTENCE_END = re.compile(r"[.!?…。！？।॥؟۔\u037e]['\"”’»“)\]]*$")

Lines = Sequence[Line]
NBest = list[Translation]
Attempt = Callable[[Lines, list[NBest]], Iterable[NBest]]
"""Returns further translations of each line; none where it does not apply."""


class Guard:
    """Translates lines like a `Translator`, and protects their spans and checks their translations."""

    def __init__(
        self,
        translator: Translator,
        *,
        protect: Iterable[re.Pattern[str]] = (),
        localize_numbers: bool = False,
        glossary: Glossary | None = None,
    ) -> None:
        """Guard a translator.

        Args:
            translator: translates the lines.
            protect: patterns of further protected spans.
            localize_numbers: write numbers in the format of the target language.
            glossary: terms and their translations.

        Raises:
            UsageError: the number format of a language is unknown.
        """
        self.translator, self.config, self.tokenizer = translator, translator.config, translator.tokenizer
        self.protect, self.glossary = tuple(protect), glossary
        self.languages = (self.config.data.src, self.config.data.tgt)
        self.term_counts: Counter[tuple[str, bool]] = Counter()
        """How often each glossary term occurred, and whether it was applied."""
        self.localize = number_localizer(*self.languages) if localize_numbers else str

    def translate(self, lines: Iterable[str | Line], search: str | None = None) -> list[str]:
        """Return the best translation of each line; see `Translator.translate`."""
        return [n_best[0].text for n_best in self.stream(chunked(check_lines(lines)), search)]

    def stream(
        self,
        chunks: Iterable[Sequence[str | Line]],
        search: str | None = None,
        *,
        details: bool = False,
        on_progress: Callable[[int], object] = lambda lines: None,
    ) -> Iterator[list[Translation]]:
        """Yield the n-best list of each line, those without warnings first; see `Translator.stream`."""

        def translate(chunk: Sequence[str | Line]) -> list[NBest]:
            columns = [split_columns(line) for line in as_lines(chunk)]
            has_tabs = len(columns) < sum(map(len, columns))
            frames = [split_frame(part) for parts in columns for part in parts]
            lines = [self._with_fixed_spans(line) for _, line, _ in frames]
            report = (lambda lines: None) if has_tabs else on_progress
            results = _GuardedChunk(self, search, details).translate(lines, report)
            framed = []
            for (before, _, after), n_best in zip(frames, results, strict=True):
                has_frame = bool(before or after)
                framed.append([_with_frame(before, each, after) for each in n_best] if has_frame else n_best)
            for line, n_best in zip(lines, results, strict=True):
                for span in line.fixed:
                    if span.is_term:
                        self.term_counts[span.translation, _is_applied(span, n_best[0])] += 1
            if has_tabs:
                on_progress(len(columns))
                remaining = iter(framed)
                framed = [_join_columns(parts, list(islice(remaining, len(parts)))) for parts in columns]
            return framed

        return chain.from_iterable(map(translate, chunks))

    def _with_fixed_spans(self, line: Line) -> Line:
        """Return the line with its protected spans, numbers and terms."""
        found = [
            self._fixed_span(line.text, span) for span in self.translator.segmenter.find_spans(line.text, self.protect)
        ]
        terms = self.glossary.find(line.text) if self.glossary else []
        spans = sorted([*terms, *found], key=lambda span: span.start - span.end)  # the longest first: a term or a URL
        language = line.language or self.translator.tokenizer.language_token(line.text)
        return replace(line, fixed=tuple(without_overlaps([*line.fixed, *spans])), language=language)

    def _fixed_span(self, text: str, span: ProtectedSpan) -> FixedSpan:
        content = text[span.start : span.end]
        is_number = span.kind in _NUMBERS and not _LABEL.search(text[max(0, span.start - 20) : span.start])
        return FixedSpan(span.start, span.end, self.localize(content) if is_number else content, span.is_opaque)


def _is_applied(span: FixedSpan, translation: Translation) -> bool:
    """Return whether a term is in the translation, without doubt."""
    return not is_missing(span, translation.text) and f"{TERM_DOUBTFUL}: {span.translation}" not in translation.warnings


def split_columns(line: Line) -> list[Line]:
    """Return the parts of a line between tabs, which separate texts that are translated one by one."""
    if "\t" not in line.text.strip() or line.prefix or line.constraints:
        return [line]
    tabs = [match.start() for match in re.finditer("\t", line.text)]
    starts, ends = [0, *(tab + 1 for tab in tabs)], [*tabs, len(line.text)]
    return [_part(line, start, end) for start, end in zip(starts, ends, strict=True)]


def _join_columns(parts: Sequence[Line], n_best_of_parts: list[NBest]) -> NBest:
    """Return the n-best list of a line from those of its parts between tabs."""
    if len(parts) == 1:
        return n_best_of_parts[0]
    offsets: list[int] = []
    num_words = 0
    for part in parts:
        offsets.append(num_words)
        num_words += len(part.text.split())
    separators = ["", *("\t" for _ in parts[1:])]
    joined: NBest = []
    for ranked in n_best_of_line(n_best_of_parts):
        translation = concatenate(list(map(Part, ranked, separators, offsets)))
        warnings = dict.fromkeys(warning for each in ranked for warning in each.warnings)
        joined.append(replace(translation, warnings=tuple(warnings)))
    return joined


def split_frame(line: Line) -> tuple[str, Line, str]:
    """Return the text before the words of a line, the words, and the text after them.

    The marker of a list item, and a tag around the whole line, would only disturb the translation.
    """
    match = None if line.prefix else _MARKER.match(line.text) or _ENCLOSING_TAG.fullmatch(line.text)
    if not match:
        return "", line, ""
    start, end = match.span("rest") if "rest" in match.groupdict() else (match.end(), len(line.text))
    rest = replace(line, text=line.text[start:end], fixed=spans_within(line.fixed, start, end))
    return line.text[:start], rest, line.text[end:]


def _with_frame(before: str, translation: Translation, after: str) -> Translation:
    """Return the translation between the text before and after the words, which is equal in both languages."""
    num_words = len(before.split())
    is_word = before[-1:].isspace()  # a tag is a part of the first word
    copy = Translation(before, 0.0, 0.0, alignment=tuple((i, i) for i in range(num_words)) if is_word else ())
    joined = concatenate([Part(copy), Part(translation, "", num_words if is_word else max(0, num_words - 1))])
    return replace(translation, text=joined.text + after, alignment=joined.alignment, links=joined.links)


class _GuardedChunk:
    """The translation of a chunk of lines."""

    def __init__(self, guard: Guard, search: str | None, details: bool) -> None:
        self.guard, self.details = guard, details
        self.spec = guard.config.search if search is None else search
        self.num_best = parse_search(self.spec).n_best
        self.aligned: dict[tuple[str, str], AlignedText | None] = {}

    def translate(self, lines: Lines, on_progress: Callable[[int], object] = lambda lines: None) -> list[NBest]:
        """Return the n-best list of each line."""
        requests = [line if line.prefix or line.constraints or _has_text(line) else None for line in lines]
        translated = _search_where(requests, lambda lines: self._search(lines, self.spec, on_progress))
        on_progress(requests.count(None))
        self._align_all(lines, translated)
        results = [
            self._rank(line, n_best) if n_best else [_copy(line)]
            for line, n_best in zip(lines, translated, strict=True)
        ]
        attempts: tuple[tuple[Attempt, tuple[str, ...]], ...] = (  # and the problems that they repair; none: all
            (partial(map, self._translate_segments), ()),
            (partial(map, self._translate_sentences), (MISSING_SENTENCE,)),
            (partial(self._substitute, constrained=False), SPAN_PROBLEMS),
            (partial(self._substitute, constrained=True), SPAN_PROBLEMS),
            (self._constrain, ()),
            (self._write_digits, (NUMBER_CHANGED, NUMBER_ADDED)),
            (self._fix_items, (MISSING_ITEM,)),
            (self._widen_beam, ()),
            (partial(map, self._translate_around_spans), SPAN_PROBLEMS),
            (partial(map, self._restore_marks), (UNBALANCED,)),
        )
        for attempt, problems in attempts:
            failed = [i for i, n_best in enumerate(results) if n_best[0].has_problem(problems)]
            if not failed:
                continue
            found = attempt([lines[i] for i in failed], [results[i] for i in failed])
            for i, n_best in zip(failed, found, strict=True):
                results[i] = self._rank(lines[i], n_best, results[i])
        return results

    def _search(
        self, lines: Lines, spec: str, on_progress: Callable[[int], object] = lambda lines: None
    ) -> list[NBest]:
        return list(self.guard.translator.stream([lines], spec, details=self.details, on_progress=on_progress))

    def _rank(self, line: Line, translations: NBest, ranked: Sequence[Translation] = ()) -> NBest:
        """Return the best translations of a line with their warnings, those with the fewest problems first.

        Translations that are among those already `ranked` are left out.
        """
        checked, known = [*ranked], {each.text for each in ranked}
        has_spaces = _SPACES.search(line.text)
        for translation in (_restore_formats(line, each) for each in translations):
            if not has_spaces:
                translation = replace(translation, text=_SPACES.sub(" ", translation.text))
            if translation.text not in known:
                problems = find_problems(line, translation.text, self.guard.languages)
                warnings = dict.fromkeys((*problems, *self._doubtful_terms(line, translation)))
                checked.append(replace(translation, warnings=tuple(warnings)))
        # The term may be right even if the alignment is doubtful.
        checked.sort(
            key=lambda each: (len(each.warnings), each.has_problem((TERM_NOT_APPLIED,)), has_lone_mark(each.text))
        )
        return checked[: self.num_best]

    def _doubtful_terms(self, line: Line, translation: Translation) -> list[str]:
        """Return a warning for each term that is in the translation, but in the place of another word."""
        of_parts = [warning for warning in translation.warnings if warning.startswith(TERM_DOUBTFUL)]
        terms = [span for span in line.fixed if span.is_term and not is_missing(span, translation.text)]
        aligned = self._align(line, translation.text) if terms else None
        if not aligned:
            return of_parts
        return [f"{TERM_DOUBTFUL}: {span.translation}" for span in terms if is_elsewhere(span, aligned)]

    def _align(self, line: Line, text: str) -> AlignedText | None:
        """Align the words of a line; none if it has several segments, or if it is too long to be scored."""
        pair = (with_language(line.text, line.language), text)
        if pair not in self.aligned:
            self._align_pairs({pair: line})
        return self.aligned[pair]

    def _align_all(self, lines: Lines, results: Sequence[NBest]) -> None:
        """Align the lines with terms for `_align`, because aligning them one by one is slow."""
        lines_of_pairs: dict[tuple[str, str], Line] = {}
        for line, n_best in zip(lines, results, strict=True):
            if not any(span.is_term for span in line.fixed):
                continue
            source = with_language(line.text, line.language)
            for translation in n_best:
                lines_of_pairs[source, translation.text] = line
        self._align_pairs(lines_of_pairs)

    def _align_pairs(self, lines_of_pairs: dict[tuple[str, str], Line]) -> None:
        unknown: list[tuple[str, str]] = []
        for pair, line in lines_of_pairs.items():
            if pair not in self.aligned:
                self.aligned[pair] = None
                if len(self._segments(line)) == 1:
                    unknown.append(pair)
        for pair, scored in zip(unknown, self._score(unknown), strict=True):
            if scored:
                offset = len(pair[0]) - len(lines_of_pairs[pair].text)
                self.aligned[pair] = AlignedText(*pair, scored.alignment, scored.log_prob, offset)

    def _score(self, pairs: list[tuple[str, str]]) -> list[Translation | None]:
        """Score translations; none for those that are too long, which are found by halving."""
        try:
            return list(self.guard.translator.score(pairs))
        except DataError:
            if len(pairs) < 2:
                return [None]
            middle = len(pairs) // 2
            return self._score(pairs[:middle]) + self._score(pairs[middle:])

    # Attempts: each returns further translations of each line, or none where it does not apply.

    def _translate_segments(self, line: Line, n_best: NBest) -> NBest:
        """Guard each segment of a line that has several, because constraints apply to one segment."""
        return self._translate_parts(line, self._segments(line))

    def _translate_sentences(self, line: Line, n_best: NBest) -> NBest:
        """Translate each sentence by itself, because a model may translate one of two."""
        return self._translate_parts(line, split_sentences(line.text, self.guard.languages[0]))

    def _translate_parts(self, line: Line, spans: Sequence[tuple[int, int]]) -> NBest:
        """Guard each part of a line; no translation if it has only one."""
        if len(spans) < 2 or line.prefix or line.constraints:
            return []
        n_best_of_parts = n_best_of_line(self.translate([_part(line, *span) for span in spans]))
        separators = ["", *(separator(line.text, end, start) for (_, end), (start, _) in pairwise(spans))]
        offsets = [_word_index(line.text, start) for start, _ in spans]
        found = []
        for ranked in n_best_of_parts:
            doubtful = [warning for each in ranked for warning in each.warnings if warning.startswith(TERM_DOUBTFUL)]
            joined = concatenate(list(map(Part, ranked, separators, offsets)))
            found.append(replace(joined, warnings=tuple(doubtful)))
        return restore_whitespace(line.text, found)

    def _substitute(self, lines: Lines, results: list[NBest], *, constrained: bool) -> Iterator[NBest]:
        """Replace the protected spans by names, which models copy more often.

        `constrained`: also search with the names and the missing numbers as constraints.
        """
        substitutions, requests = [], []
        for line, n_best in zip(lines, results, strict=True):
            others = (line.text, line.prefix, *line.constraints, *(span.translation for span in line.fixed))
            names = [name for name in STAND_INS if name.casefold() not in " ".join(others).casefold()]
            is_applicable = (constrained or not line.constraints) and len(self._segments(line)) == 1
            substitution = substitute(line, names) if is_applicable else None
            substitutions.append(substitution)
            request = substitution.line if substitution else None
            if substitution and constrained:
                missing = (span.translation for span in substitution.line.fixed if is_missing(span, n_best[0].text))
                request = replace(substitution.line, constraints=(*line.constraints, *substitution.spans, *missing))
            requests.append(request)
        search = self._search_constrained if constrained else lambda lines: self._search(lines, self.spec)
        for substitution, n_best in zip(substitutions, _search_where(requests, search), strict=True):
            restored = [substitution.restore(each) for each in n_best] if substitution else []
            stand_ins = substitution.spans.items() if substitution else ()
            yield [
                each
                for each in restored
                if not any(name in each.text and is_missing(span, each.text) for name, span in stand_ins)
            ]  # without inflected names, such as Toms

    def _constrain(self, lines: Lines, results: list[NBest]) -> Iterator[NBest]:
        """Search with the missing numbers and terms as constraints, but without adding sentences that contain them."""
        requests = []
        for line, n_best in zip(lines, results, strict=True):
            spans = [span for span in line.fixed if is_missing(span, n_best[0].text)]
            missing = tuple(span.translation for span in spans)
            is_applicable = missing and not any(span.is_opaque for span in spans) and len(self._segments(line)) == 1
            requests.append(replace(line, constraints=line.constraints + missing) if is_applicable else None)
        found = _search_where(requests, self._search_constrained)
        constrained = [
            [
                each
                for each in n_best
                if _count_sentence_ends(each.text) <= _count_sentence_ends(line.text) and not _has_rest(line, each.text)
            ]
            for line, n_best in zip(lines, found, strict=True)
        ]
        return self._place_terms(lines, results, constrained)

    def _write_digits(self, lines: Lines, results: list[NBest]) -> Iterator[NBest]:
        """Write the numbers in words as digits, which models copy, and spell them again in the translation."""
        src, tgt = self.guard.languages
        rewritten = [digits_for_words(line, src, tgt) if len(self._segments(line)) == 1 else None for line in lines]
        requests = [each.line if each and not each.line.prefix else None for each in rewritten]
        found = _search_where(requests, lambda lines: self._search(lines, self.spec))
        constrained = [
            replace(request, constraints=(*request.constraints, *each.spans)) if request and each else None
            for request, each in zip(requests, rewritten, strict=True)
        ]
        found_constrained = _search_where(constrained, self._search_constrained)
        for each, n_best, more in zip(rewritten, found, found_constrained, strict=True):
            complete = [translation for translation in (*n_best, *more) if each and each.is_complete(translation)]
            yield [each.restore(translation) for translation in complete if each]

    def _fix_items(self, lines: Lines, results: list[NBest]) -> Iterator[NBest]:
        """Translate the items of a list one by one, and copy all of them into the translation of the line."""
        for line in lines:
            match = find_items(line.text)
            if not match or line.prefix or line.constraints or len(self._segments(line)) != 1:
                yield []
                continue
            span = FixedSpan(match.start(), match.end(), self._translate_items(match[0]))
            request = replace(line, fixed=tuple(without_overlaps([span, *line.fixed])))
            names = [name for name in STAND_INS if name.casefold() not in line.text.casefold()]
            substitution = substitute(request, names)
            found = self._search([request], self.spec)[0]
            if substitution:
                candidates = self._search([substitution.line], self.spec)[0]
                found += [substitution.restore(each) for each in candidates if substitution.is_complete(each)]
            yield [each for each in found if span.translation in each.text]

    def _translate_items(self, text: str) -> str:
        """Translate each item of a list."""
        items, separators = split_items(text)
        translated = [n_best[0] for n_best in self.translate([Line(item) for item in items])]
        result = ""
        for item, translation, mark in zip(items, translated, [*separators, ""], strict=True):
            without_period = without_added_period(Line(item), translation).text
            begins_with_name = without_period.split()[:1] == item.split()[:1]
            result += without_period if begins_with_name else self._inside_sentence(without_period)
            result += self._translate_separator(mark)
        return result

    def _translate_separator(self, text: str) -> str:
        for conjunctions in CONJUNCTIONS:
            src, tgt = (conjunctions.get(base_language(code)) for code in self.guard.languages)
            if src and tgt and text.strip(" ,") == src:
                return f" {tgt} "
        return text

    def _inside_sentence(self, text: str) -> str:
        """Return a translated item in lower case, unless the tokenizer knows its capitalized form better."""
        in_lower_case = text[:1].lower() + text[1:]
        lengths = [len(ids) for ids in self.guard.tokenizer.encode_batch([text, in_lower_case], target=True)]
        return in_lower_case if lengths[1] < lengths[0] and text[1:].islower() else text

    def _restore_marks(self, line: Line, n_best: NBest) -> NBest:
        """Put brackets and quotation marks around the words that are aligned with those of the source."""
        translation = n_best[0]
        if len(line.text) > MAX_ALIGNED_CHARACTERS:
            return []
        source = with_language(line.text, line.language)
        try:
            links = next(self.guard.translator.score([(source, translation.text)])).links
        except DataError:  # too long to be scored
            return []
        pairs = [(link.source, link.target) for link in links if link.share >= MIN_SHARE_OF_MARKED]
        return [replace(translation, text=restore_marks(source, translation.text, pairs))]

    def _place_terms(self, lines: Lines, results: list[NBest], constrained: list[NBest]) -> Iterator[NBest]:
        """Put the missing terms in the place of the words that are aligned with them in the source.

        A constrained search may write a term beside the word that it replaces. Its translations compete with those in
        which the words are replaced: the model's log-probability decides.
        """
        candidates: list[NBest] = []
        for line, n_best, found in zip(lines, results, constrained, strict=True):
            candidates.append(found + self._replace_words(line, n_best[0]))
        self._align_all(lines, candidates)
        for line, n_best, found in zip(lines, results, candidates, strict=True):
            yield self._rank_by_terms(line, n_best[0], found)

    def _replace_words(self, line: Line, original: Translation) -> NBest:
        """Replace the words that are aligned with missing terms by the terms."""
        terms = _missing_terms(line, original.text)
        aligned = self._align(line, original.text) if terms else None
        if not aligned:
            return []
        found: NBest = []
        for whole_runs in (False, True):
            edits = term_edits(aligned, terms, whole_runs=whole_runs)
            edited = _edit(original, edits)
            keeps_prefix = edited.text.lstrip().startswith(line.prefix)
            if edits and keeps_prefix and all(each in edited.text for each in line.constraints):
                found.append(edited)
        return found

    def _rank_by_terms(self, line: Line, original: Translation, n_best: NBest) -> NBest:
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

    def _widen_beam(self, lines: Lines, results: list[NBest]) -> list[NBest]:
        """Search with a wider beam and without repetitions, and consider all of its hypotheses.

        A line with several segments is not searched again: this has been done with each of them.
        """
        requests = [
            None if line.constraints or (not line.prefix and len(self._segments(line)) > 1) else line for line in lines
        ]
        return _search_where(requests, lambda lines: self._search(lines, WIDE_BEAM))

    def _translate_around_spans(self, line: Line, n_best: NBest) -> NBest:
        """Translate the text around the protected spans and numbers, and keep the spans in their places."""
        if line.prefix or line.constraints:
            return []
        spans = [span for span in line.fixed if not span.is_term]
        starts, ends = [0, *(span.end for span in spans)], [*(span.start for span in spans), len(line.text)]
        around = [_part(line, *span) for span in zip(starts, ends, strict=True)]
        before = [_LEADING_PUNCTUATION.match(part.text)[0] for part in around]  # type: ignore[index]  # may be empty
        offsets = [_word_index(line.text, start + len(each)) for start, each in zip(starts, before, strict=True)]
        texts = [_part(part, len(each), len(part.text)) for part, each in zip(around, before, strict=True)]
        translated = map(without_added_period, texts, (each[0] for each in self.translate(texts)))
        parts: list[Part] = []
        for span, punctuation, translation, offset in zip([None, *spans], before, translated, offsets, strict=True):
            if span:
                num_words = len(span.translation.split())
                copy = Translation(span.translation, 0.0, 0.0, alignment=tuple((0, i) for i in range(num_words)))
                parts.append(Part(copy, "", _word_index(line.text, span.start)))
            parts += [Part(Translation(inline(punctuation), 0.0, 0.0)), Part(translation, "", offset)]
        translation = concatenate(parts)
        return restore_whitespace(line.text, [replace(translation, text=translation.text.strip())])

    def _search_constrained(self, lines: Lines) -> list[NBest]:
        """Search with constraints; a line whose constraints the engine or the model does not support has no results.

        The other lines are found by halving, because searching them one by one is slow.
        """
        try:
            return self._search(lines, CONSTRAINED)
        except UsageError:
            if len(lines) < 2:
                return [[] for _ in lines]
            middle = len(lines) // 2
            return self._search_constrained(lines[:middle]) + self._search_constrained(lines[middle:])

    def _segments(self, line: Line) -> list[tuple[int, int]]:
        return self.guard.translator.segmenter.spans(line)


def _missing_terms(line: Line, text: str) -> list[FixedSpan]:
    return [span for span in line.fixed if span.is_term and is_missing(span, text)]


def _has_rest(line: Line, text: str) -> bool:
    """Return whether a part of a glossary term is left beside its translation, such as the R of R&D in `R F&E`."""
    for span in line.fixed:
        term, translation = line.text[span.start : span.end], re.escape(span.translation)
        rest = "|".join(re.findall(r"\w+", term)) if re.search(r"\w\s?[^\w\s'’-]+\s?\w", term) else ""
        if span.is_term and rest and re.search(rf"\b(?:{rest})\s{translation}|{translation}\s(?:{rest})\b", text):
            return True
    return False


def _edit(translation: Translation, edits: Iterable[Edit]) -> Translation:
    """Return the translation after edits of its text; the words of a replaced range keep their alignment."""
    for start, end, new in sorted(edits, reverse=True):
        text = apply_edits(translation.text, [(start, end, new)])
        last = _word_index(translation.text, end - 1)
        num_added = len(text.split()) - len(translation.text.split())
        alignment = set[tuple[int, int]]()
        for source, word in translation.alignment:
            if word == last:
                alignment |= {(source, i) for i in range(last + min(0, num_added), last + num_added + 1)}
            else:
                alignment.add((source, word + num_added if word > last else min(word, last + num_added)))
        aligned = sorted(alignment, key=lambda pair: pair[::-1])
        translation = replace(translation, text=text, alignment=tuple(aligned))
    return translation


def _search_where(requests: Sequence[Line | None], search: Callable[[Lines], list[NBest]]) -> list[NBest]:
    """Return the n-best lists of the lines that are not None, and empty lists for the others."""
    n_best = iter(search([line for line in requests if line]))
    return [next(n_best) if line else [] for line in requests]


def _count_sentence_ends(text: str) -> int:
    return len(_SENTENCE_BOUNDARY.findall(text))


def _part(line: Line, start: int, end: int) -> Line:
    """Return a part of a line with its fixed spans."""
    return Line(line.text[start:end], fixed=spans_within(line.fixed, start, end), language=line.language)


def _word_index(text: str, start: int) -> int:
    """Return the index of the word at or after `start`."""
    is_inside_word = 0 < start < len(text) and not (text[start - 1].isspace() or text[start].isspace())
    return len(text[:start].split()) - is_inside_word


def _has_text(line: Line) -> bool:
    """Return whether there is anything to translate: a letter outside the protected spans."""
    protected = ((span.start, span.end, "") for span in line.fixed if not span.is_term)
    return LETTER.search(apply_edits(line.text, protected).removeprefix(line.language)) is not None


def _copy(line: Line) -> Translation:
    """Return a line without text as its translation."""
    text = apply_edits(line.text, ((span.start, span.end, span.translation) for span in line.fixed))
    before, after = surrounding_whitespace(line.text)
    without_language = text.removeprefix(line.language)
    offset = without_language != text  # the token is a word of the source
    text = before + remove_invisible(without_language).strip() + after
    return Translation(text, 0.0, 0.0, alignment=tuple((i + offset, i) for i in range(len(text.split()))))


def _restore_formats(line: Line, translation: Translation) -> Translation:
    """Correct the format of numbers that only differ in separators: 1.234,50 becomes 1,234.50, 5 % becomes 5%."""
    numbers = Counter(span.translation for span in line.fixed if not span.is_term)
    for number, expected in numbers.items():
        num_missing = expected - count_occurrences(translation.text, number)
        if num_missing > 0 and (pattern := equivalent_pattern(number)):
            matches = (match for match in pattern.finditer(translation.text) if match[0] not in numbers)
            translation = _edit(translation, [(*match.span(), number) for match in islice(matches, num_missing)])
    return translation


def without_added_period(source: Line, translation: Translation) -> Translation:
    """Return the translation of a heading or part of a sentence without the period that the source does not have."""
    words = translation.text.split()
    is_copied = bool(words) and words.count(words[-1]) <= source.text.split().count(words[-1])  # such as Yahoo!
    if is_copied or _SENTENCE_END.search(source.text.rstrip()):
        return translation
    text = _ADDED_PERIOD.sub("", translation.text.strip())
    return restore_whitespace(translation.text, [replace(translation, text=text)])[0]
