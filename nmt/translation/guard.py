"""`Guard` checks each translation of a `Translator`, and searches again where a check fails.

Protected spans and glossary terms of the source must occur in the translation, and it must not have
any of the problems that `nmt.translation.checks` detects. A line whose best translation fails is
translated again in other ways until one passes, or until its budget is used up. If none passes, the
translation has warnings. No line is dropped.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import copy
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from nmt.core.errors import UsageError
from nmt.search import parse_search
from nmt.text.abbreviations import is_gendered, write_out
from nmt.text.lazy_pattern import lazy_pattern
from nmt.text.normalization import remove_invisible
from nmt.text.sentences import split_sentences
from nmt.text.spans import Edit, ProtectedSpan, apply_edits, without_overlaps
from nmt.text.spoken_times import find_spoken_times, spell_hours
from nmt.text.whitespace import with_surrounding_whitespace
from nmt.translation.alignment import align
from nmt.translation.budget import Budget, search_work
from nmt.translation.capitals import with_capital
from nmt.translation.checks import (
    LETTER,
    count_occurrences,
    find_problems,
    is_missing,
    missing_spans,
)
from nmt.translation.chunking import chunked, compute_valid, regroup
from nmt.translation.content import (
    MISSING_DATE,
    MISSING_ITEM,
    MISSING_SENTENCE,
    NUMBER_ADDED,
    NUMBER_CHANGED,
    UNBALANCED,
    find_items,
    has_lone_mark,
    split_items,
)
from nmt.translation.formats import localized, restore_formats
from nmt.translation.gaps import join_gaps, split_at_spans
from nmt.translation.items import join_items
from nmt.translation.marks import restore_marks
from nmt.translation.pieces import (
    Column,
    divide,
    join_columns,
    join_parts,
    part_of_line,
    segment_around_spans,
)
from nmt.translation.placement import TermPlacement, has_rest
from nmt.translation.readings import is_more_probable, title_as_sentence
from nmt.translation.result import Translation
from nmt.translation.segments import FixedSpan, Line, as_fixed_spans
from nmt.translation.stand_ins import Substitution, digits_for_words, substitute
from nmt.translation.terms import TERM_DOUBTFUL
from nmt.translation.times import correct_times
from nmt.translation.translator import Translator, as_lines, check_lines
from nmt.translation.typography import correct_typography

if TYPE_CHECKING:
    from nmt.engines import Engine
    from nmt.translation.glossary import Glossary

STAND_INS = ("Tom", "Peter", "Anna", "Boston", "Berlin", "Paul", "Robert", "Paris")
"""Names that stand for protected spans that a translation has lost. Models copy names more often
than letters or rare words."""
WIDE_BEAM = "beam(beam_size=8, top_beams=8, no_repeat_ngram_size=4)"
QUICK = "greedy"
"""Search of lines beyond their budget, whose translations are not scored."""
CONSTRAINED = "constrained(beam_size=8, top_beams=2)"
ROWS_OF_SCORE = 3
"""Number of rows of a search that take as long as scoring a translation in float32."""
MIN_SHARE_OF_MARKED = 0.25
"""Minimum share of the attention to a word between marks that its translation receives. With less,
it has none."""
SPAN_PROBLEMS = ("missing", "repeated", "misplaced")
TERM_NOT_APPLIED = "term-not-applied"
UNTRANSLATED = "untranslated"
_SPACES = lazy_pattern(r"(?<=\S) {2,}(?=\S)")
_SENTENCE_BOUNDARY = lazy_pattern(r"[.!?…](?=\s+\w)")

Lines = Sequence[Line]
NBest = list[Translation]
NBests = list[NBest]
"""The n-best lists of several lines."""


class Attempt(NamedTuple):
    """A way to repair translations."""

    repair: Callable[[Lines, NBests], Iterable[NBest]]
    """Returns further translations of each line; none where it does not apply."""
    problems: tuple[str, ...] = ()
    """The problems that it repairs; none: all."""


class Guard:
    """Translates lines like a `Translator`, and protects their spans and checks their
    translations."""

    def __init__(
        self,
        translator: Translator,
        *,
        protect: Iterable[re.Pattern[str]] = (),
        glossary: Glossary | None = None,
    ) -> None:
        """Guard a translator.

        Args:
            translator: translates the lines.
            protect: patterns of further protected spans.
            glossary: terms and their translations.
        """
        self.translator = translator
        self.config = translator.config
        self.tokenizer = translator.tokenizer
        self.protect = tuple(protect)
        self.glossary = glossary
        self.languages = (self.config.data.src, self.config.data.tgt)
        self.budget: Budget | None = None
        """The budget that all lines share; None: each line has its own."""
        self.term_counts: Counter[tuple[str, bool]] = Counter()
        """How often each glossary term occurred, by its translation or, if it is left as it is, by
        the term, and whether it was applied."""

    def for_request(self, engine: Engine) -> Guard:
        """Return a guard with the same settings and another engine, whose lines share a budget."""
        guard = copy(self)
        guard.translator = self.translator.with_engine(engine)
        guard.budget = Budget()
        guard.term_counts = Counter()
        return guard

    def translate(self, lines: Iterable[str | Line], search: str | None = None) -> list[str]:
        """Return the best translation of each line; see `Translator.translate`."""
        n_bests = self.stream(chunked(check_lines(lines)), search)
        return [n_best[0].text for n_best in n_bests]

    def stream(
        self,
        chunks: Iterable[Sequence[str | Line]],
        search: str | None = None,
        *,
        details: bool = False,
        on_progress: Callable[[float], object] = lambda lines: None,
    ) -> Iterator[list[Translation]]:
        """Yield the n-best list of each line, those without warnings first; see
        `Translator.stream`.

        `on_progress` also gets parts of a line.
        """
        return chain.from_iterable(
            self._translate(as_lines(chunk), search, details, on_progress) for chunk in chunks
        )

    def _translate(
        self,
        lines: Lines,
        search: str | None,
        details: bool,
        on_progress: Callable[[float], object],
    ) -> Iterator[NBest]:
        columns_of_lines = [self._divide(line) for line in lines]
        columns = list(chain.from_iterable(columns_of_lines))
        pieces_of_columns = [column.pieces() for column in columns]
        pieces = list(chain.from_iterable(pieces_of_columns))
        lines_per_piece = len(lines) / max(1, len(pieces))

        def report(num_pieces: int) -> None:
            on_progress(num_pieces if lines_per_piece == 1 else num_pieces * lines_per_piece)

        guarded = _GuardedChunk(self, search, details)
        results: NBests = []
        for group in chunked(pieces):
            results += guarded.translate(group, report)
        self._count_terms(pieces, results)
        results_of_columns = regroup(results, map(len, pieces_of_columns))
        n_bests = map(Column.join, columns, results_of_columns)
        n_bests_of_lines = regroup(n_bests, map(len, columns_of_lines))
        yield from map(join_columns, columns_of_lines, n_bests_of_lines)

    def _divide(self, line: Line) -> list[Column]:
        """Return the columns of a line, with the budget of its repairs."""
        budget = self.budget or Budget()
        budget.extend(line.text)
        return divide(replace(line, budget=budget), self.with_fixed_spans, self._segments)

    def _segments(self, line: Line) -> list[tuple[int, int]]:
        """Return the segments of a text; none if it is not translated."""
        if not _is_translated(line):
            return []
        return segment_around_spans(line, self.translator.segmenter.spans)

    def _count_terms(self, lines: Lines, results: Sequence[NBest]) -> None:
        for line, n_best in zip(lines, results, strict=True):
            for span in line.fixed:
                if span.is_term or span.kept_term:
                    term = span.kept_term or span.translation
                    self.term_counts[term, _is_applied(span, n_best[0])] += 1

    def _protected_spans(self, text: str) -> list[ProtectedSpan]:
        """Return the protected spans of a text but those that are translated as words: the hours of
        times such as halb 9, and forms for all genders."""
        source = self.languages[0]
        times = find_spoken_times(text, source)
        hours = [ProtectedSpan(*time.number, "number") for time in times]
        spans: list[ProtectedSpan] = []
        for span in self.translator.segmenter.find_spans(text, self.protect):
            if span not in hours and not is_gendered(text[span.start : span.end], source):
                spans.append(span)
        return spans

    def with_fixed_spans(self, line: Line) -> Line:
        """Return the line with its protected spans, numbers and terms, and with its abbreviations
        and the hours of times such as halb 9 written out."""
        source = self.languages[0]
        spans = self._protected_spans(line.text)
        found = as_fixed_spans(line.text, spans)
        if _is_translated(Line(line.text, fixed=found)):  # no table of numbers
            found = localized(line.text, found, spans, self.languages)
        terms = self.glossary.find(line.text) if self.glossary else []
        # The longest first: a term or a URL.
        longest_first = sorted([*terms, *found], key=lambda span: span.start - span.end)
        fixed = without_overlaps([*line.fixed, *longest_first])
        language = line.language or self.tokenizer.language_token(line.text)
        prepared = replace(line, fixed=tuple(fixed), language=language)
        hours = spell_hours(line.text, source)
        abbreviations = write_out(line.text, source)
        return prepared.with_edits([*hours, *abbreviations])


class _GuardedChunk:
    """The translation of lines that the model translates as a unit."""

    def __init__(self, guard: Guard, search: str | None, details: bool) -> None:
        self.guard = guard
        self.details = details
        self.spec = guard.config.search if search is None else search
        self.num_best = parse_search(self.spec).n_best
        self.terms = TermPlacement(guard.translator)
        self.attempts = (
            Attempt(self._translate_sentences, (MISSING_SENTENCE,)),
            Attempt(partial(self._substitute, constrained=False), SPAN_PROBLEMS),
            Attempt(partial(self._substitute, constrained=True), SPAN_PROBLEMS),
            Attempt(self._constrain),
            Attempt(self._write_digits, (NUMBER_CHANGED, NUMBER_ADDED)),
            Attempt(self._require_dates, (MISSING_DATE,)),
            Attempt(self._fix_items, (MISSING_ITEM,)),
            Attempt(self._widen_beam),
            Attempt(self._translate_around_spans, SPAN_PROBLEMS),
            Attempt(self._restore_marks, (UNBALANCED,)),
        )

    def translate(
        self,
        lines: Lines,
        on_progress: Callable[[int], object] = lambda lines: None,
        *,
        is_repair: bool = False,
    ) -> NBests:
        """Return the n-best list of each line. Beyond its budget, a line is searched quickly, or
        copied; the budget of a repair is that of the line that it is a part of."""
        lines = list(lines)
        results: dict[int, NBest] = {}
        searched: list[int] = []
        quick: list[int] = []
        for i, line in enumerate(lines):
            copied = self._copy_if_not_translated(line)
            if copied:
                results[i] = [copied]
            elif is_repair or self._is_within_budget(line):
                searched.append(i)
            elif self._may_search_quickly(line):
                quick.append(i)
            else:
                results[i] = [_copy(line, (UNTRANSLATED,))]
        on_progress(len(results))
        searched_lines = [lines[i] for i in searched]
        quick_lines = [lines[i] for i in quick]
        found = self._search_all(searched_lines, quick_lines, on_progress)
        for i, n_best in zip(searched + quick, found, strict=True):
            results[i] = self._rank(lines[i], n_best)
        self._read_titles(lines, results, searched)
        self._repair(lines, results, searched)
        return [results[i] for i in sorted(results)]

    def _search_all(
        self, lines: Lines, quick: Lines, on_progress: Callable[[int], object]
    ) -> NBests:
        """Search lines, and then others quickly."""
        found = self._search(lines, self.spec, on_progress)
        found += self.guard.translator.stream([quick], QUICK, on_progress=on_progress)
        self.terms.align_all([*lines, *quick], found)
        return found

    def _read_titles(
        self, lines: list[Line], results: dict[int, NBest], indices: Sequence[int]
    ) -> None:
        """Read English titles as sentences, too, and keep the readings whose translations are more
        probable."""
        titles: dict[int, Line] = {}
        language = self.guard.languages[0]
        for i in indices:
            sentence = title_as_sentence(lines[i], self.guard.tokenizer, language)
            if sentence:
                titles[i] = sentence
        sentences = list(titles.values())
        found = self._search_again(sentences, self.spec)
        self.terms.align_all(sentences, found)
        for (i, sentence), n_best in zip(titles.items(), found, strict=True):
            if not n_best:
                continue
            title = (lines[i].source, results[i][0].text)
            best = n_best[0]
            other = (sentence.source, best.text)
            if is_more_probable(other, title, self.terms.score):
                lines[i] = sentence
                results[i] = self._rank(sentence, n_best)

    def _repair(self, lines: Lines, results: dict[int, NBest], indices: Sequence[int]) -> None:
        """Replace the results of lines that fail a check by better ones, as far as the attempts
        find any."""
        for attempt in self.attempts:
            failed = [i for i in indices if results[i][0].has_problem(attempt.problems)]
            if not failed:
                continue
            failed_lines = [lines[i] for i in failed]
            failed_results = [results[i] for i in failed]
            further = attempt.repair(failed_lines, failed_results)
            for i, n_best in zip(failed, further, strict=True):
                results[i] = self._rank(lines[i], n_best, results[i])

    def _is_within_budget(self, line: Line) -> bool:
        """Return whether a line may be searched with the search of the user, and subtract its work
        from its budget."""
        if line.budget is None or line.constraints:  # which the quick search does not support
            return True
        return line.budget.searches.take(self._search_work(line))

    def _may_search_quickly(self, line: Line) -> bool:
        """Return whether a quick search is within the budget of a line, and subtract its work."""
        if not line.budget:
            return False
        return line.budget.quick_searches.take(self._search_work(line))

    def _search_work(self, line: Line) -> float:
        return search_work(line.text, self._count_tokens(line))

    def _count_tokens(self, line: Line) -> int:
        [ids] = self.guard.translator.segmenter.encode([line.text])
        return len(ids)

    def _copy_if_not_translated(self, line: Line) -> Translation | None:
        """Return the line as its own translation if it has no text, or none that the model can
        read."""
        if not _is_translated(line):
            is_unknown = not self.guard.translator.segmenter.copied_words.can_spell(line.text)
        elif line.is_constrained or self.guard.translator.segmenter.is_readable(line):
            return None
        else:
            is_unknown = True
        return _copy(line, (UNTRANSLATED,) if is_unknown else ())

    def _search(
        self, lines: Lines, spec: str, on_progress: Callable[[int], object] = lambda lines: None
    ) -> NBests:
        return list(
            self.guard.translator.stream(
                [lines], spec, details=self.details, on_progress=on_progress
            )
        )

    def _search_again(self, requests: Iterable[Line | None], spec: str) -> NBests:
        """Search requests that are not None and within the budget of their lines; the others have
        no results, and neither have those whose constraints the engine or the model does not
        support."""
        allowed = [line if line and self._may_search(line, spec) else None for line in requests]
        lines = [line for line in allowed if line]
        search = partial(self._search, spec=spec)
        found = iter(compute_valid(search, lines, UsageError, NBest()))
        return [next(found) if line else [] for line in allowed]

    def _may_search(self, line: Line, spec: str) -> bool:
        """Return whether a search is within the budget of a line, and subtract its work."""
        search = parse_search(spec)
        num_scored = search.n_best if self.details else 0
        return self._take_repair(line, search.rows + ROWS_OF_SCORE * num_scored)

    def _may_divide(self, line: Line) -> bool:
        """Return whether the parts of a line may be searched one by one, and subtract the work."""
        return not line.is_constrained and self._may_search(line, self.spec)

    def _take_repair(self, line: Line, rows: int) -> bool:
        work = (self._count_tokens(line) + 1) * rows
        return line.budget is None or line.budget.repairs.take(work)

    def _rank(self, line: Line, translations: NBest, ranked: Sequence[Translation] = ()) -> NBest:
        """Return the best translations of a line with their warnings, those with the fewest
        problems first.

        Translations that are among those already `ranked` are left out.
        """
        checked = [*ranked]
        known = {each.text for each in ranked}
        has_spaces = _SPACES.search(line.text)
        for found in translations:
            translation = restore_formats(line, found)
            text = translation.text
            if not line.is_constrained:
                text = self._correct(line, text)
            if not has_spaces:
                text = _SPACES.sub(" ", text)
            if text not in known:
                translation = replace(translation, text=text)
                problems = find_problems(line, text, self.guard.languages)
                doubtful_terms = self.terms.doubtful_terms(line, translation)
                warnings = dict.fromkeys((*problems, *doubtful_terms))
                checked.append(replace(translation, warnings=tuple(warnings)))
        # The term may be right even if the alignment is doubtful.
        checked.sort(
            key=lambda each: (
                len(each.warnings),
                each.has_problem((TERM_NOT_APPLIED,)),
                has_lone_mark(each.text),
            )
        )
        return checked[: self.num_best]

    def _correct(self, line: Line, text: str) -> str:
        """Return a translation with times, punctuation and capitals as the source has them."""
        languages = self.guard.languages
        terms = [span.translation for span in line.fixed if span.is_term]
        source = " ".join([line.text, *terms])  # the punctuation of a term stays
        text = correct_times(line.text, text, *languages)
        text = correct_typography(source, text, *languages)
        return with_capital(line, text, languages[0])

    # Attempts: each returns further translations of each line, or none where it does not apply.

    def _translate_sentences(self, lines: Lines, results: NBests) -> Iterator[NBest]:
        """Translate each sentence by itself, because a model may translate one of two."""
        spans_of_lines: list[list[tuple[int, int]]] = []
        for line in lines:
            spans = split_sentences(line.text, self.guard.languages[0])
            is_divided = len(spans) > 1 and self._may_divide(line)
            spans_of_lines.append(spans if is_divided else [])
        parts = [
            [part_of_line(line, *span) for span in spans]
            for line, spans in zip(lines, spans_of_lines, strict=True)
        ]
        translated = self._translate_parts(parts)
        for line, spans, n_bests in zip(lines, spans_of_lines, translated, strict=True):
            yield join_parts(line.text, spans, n_bests) if spans else []

    def _translate_parts(self, parts_of_lines: Sequence[Lines]) -> Iterator[NBests]:
        """Guard the parts of all lines together, and return the n-best lists of the parts of each
        line."""
        parts = list(chain.from_iterable(parts_of_lines))
        n_bests = self.translate(parts, is_repair=True)
        return regroup(n_bests, map(len, parts_of_lines))

    def _substitute(self, lines: Lines, results: NBests, *, constrained: bool) -> Iterator[NBest]:
        """Replace the protected spans by names, which models copy more often.

        `constrained`: also search with the names and the missing numbers as constraints.
        """
        substitutions: list[Substitution | None] = []
        requests: list[Line | None] = []
        for line, n_best in zip(lines, results, strict=True):
            is_applicable = constrained or not line.constraints
            substitution = substitute(line, _stand_ins(line)) if is_applicable else None
            request = substitution.line if substitution else None
            if substitution and constrained:
                missing = missing_spans(substitution.line.fixed, n_best[0].text)
                translations = [span.translation for span in missing]
                request = substitution.line.with_constraints(*substitution.target, *translations)
            substitutions.append(substitution)
            requests.append(request)
        found = self._search_again(requests, CONSTRAINED if constrained else self.spec)
        for substitution, n_best in zip(substitutions, found, strict=True):
            yield _restore_complete(substitution, n_best) if substitution else []

    def _constrain(self, lines: Lines, results: NBests) -> Iterator[NBest]:
        """Search with the missing numbers and terms as constraints, but without adding sentences
        that contain them."""
        originals = [n_best[0] for n_best in results]
        requests = map(self._with_missing, lines, originals)
        found = self._search_again(requests, CONSTRAINED)
        constrained: NBests = []
        for line, n_best in zip(lines, found, strict=True):
            max_ends = _count_sentence_ends(line.text)
            complete: NBest = []
            for each in n_best:
                has_more = _count_sentence_ends(each.text) > max_ends
                if not has_more and not has_rest(line, each.text):
                    complete.append(each)
            constrained.append(complete)
        return self.terms.place(lines, originals, constrained)

    def _with_missing(self, line: Line, original: Translation) -> Line | None:
        """Return the line with the numbers and terms that a translation lacks as constraints; none
        if it lacks nothing or something else."""
        spans = missing_spans(line.fixed, original.text)
        if not spans or any(span.is_opaque for span in spans):
            return None
        terms = [span for span in spans if span.is_term]
        in_compounds = self.terms.terms_in_compounds(line, original.text, terms)
        # They are rarely placed, and must not keep the others from being placed.
        required = [span for span in spans if span not in in_compounds] or spans
        return line.with_constraints(*(span.translation for span in required))

    def _write_digits(self, lines: Lines, results: NBests) -> Iterator[NBest]:
        """Write the numbers in words as digits, which models copy, and spell them again in the
        translation."""
        substitutions: list[Substitution | None] = []
        requests: list[Line | None] = []
        constrained: list[Line | None] = []
        for line in lines:
            digits = None if line.prefix else digits_for_words(line, *self.guard.languages)
            request = digits.line if digits else None
            substitutions.append(digits)
            requests.append(request)
            constrained.append(digits.line.with_constraints(*digits.target) if digits else None)
        found = self._search_again(requests, self.spec)
        found_constrained = self._search_again(constrained, CONSTRAINED)
        for i, digits in enumerate(substitutions):
            if not digits:
                yield []
                continue
            n_best = found[i] + found_constrained[i]
            yield digits.restore_complete(n_best)

    def _require_dates(self, lines: Lines, results: NBests) -> list[NBest]:
        """Search with the names of the missing days and months as constraints."""
        requests: list[Line | None] = []
        for line, n_best in zip(lines, results, strict=True):
            best = n_best[0]
            names = best.details_of(MISSING_DATE)
            requests.append(line.with_constraints(*names))
        return self._search_again(requests, CONSTRAINED)

    def _fix_items(self, lines: Lines, results: NBests) -> Iterator[NBest]:
        """Translate the items of a list one by one, and copy all of them into the translation of
        the line."""
        for line in lines:
            match = find_items(line.text)
            if not match or not self._may_divide(line):
                yield []
                continue
            items, _ = split_items(match[0])
            parts = [Line(item, budget=line.budget) for item in items]
            translated = self.translate(parts, is_repair=True)
            best = [n_best[0] for n_best in translated]
            text = join_items(match[0], best, self.guard.languages, self.guard.tokenizer)
            span = FixedSpan(match.start(), match.end(), text)
            fixed = tuple(without_overlaps([span, *line.fixed]))
            request = replace(line, fixed=fixed)
            substitution = substitute(request, _stand_ins(request))
            assert substitution  # for the items
            found, candidates = self._search_again([request, substitution.line], self.spec)
            restored = substitution.restore_complete(candidates)
            yield [each for each in found + restored if text in each.text]

    def _restore_marks(self, lines: Lines, results: NBests) -> Iterator[NBest]:
        """Put brackets and quotation marks around the words that are aligned with those of the
        source."""
        pairs: dict[int, tuple[str, str]] = {}
        for i, line in enumerate(lines):
            if self._take_repair(line, ROWS_OF_SCORE):
                pairs[i] = (line.source, results[i][0].text)
        scores = self.terms.score(list(pairs.values()))
        scored = dict(zip(pairs, scores, strict=True))
        for i, n_best in enumerate(results):
            aligned = scored.get(i)
            if not aligned:  # or too long to be scored
                yield []
                continue
            links = [link for link in aligned.links if link.share >= MIN_SHARE_OF_MARKED]
            source, text = pairs[i]
            restored = restore_marks(source, text, align(links))
            yield [replace(n_best[0], text=restored)]

    def _widen_beam(self, lines: Lines, results: NBests) -> NBests:
        """Search with a wider beam and without repetitions, and consider all of its hypotheses."""
        requests = [None if line.constraints else line for line in lines]
        return self._search_again(requests, WIDE_BEAM)

    def _translate_around_spans(self, lines: Lines, results: NBests) -> Iterator[NBest]:
        """Translate the text around the protected spans and numbers, and keep the spans in their
        places."""
        gaps_of_lines = []
        for line in lines:
            is_divided = self._may_divide(line)
            gaps_of_lines.append(list(split_at_spans(line)) if is_divided else [])
        texts = [[gap.text for gap in gaps] for gaps in gaps_of_lines]
        for line, gaps, n_bests in zip(
            lines, gaps_of_lines, self._translate_parts(texts), strict=True
        ):
            if not gaps:
                yield []
                continue
            best = [n_best[0] for n_best in n_bests]
            target = self.guard.languages[1]
            yield [join_gaps(line, gaps, best, self.guard.tokenizer, target)]


def _is_applied(span: FixedSpan, translation: Translation) -> bool:
    """Return whether a term is in the translation, without doubt."""
    if is_missing(span, translation.text):
        return False
    doubt = f"{TERM_DOUBTFUL}: {span.translation}"
    return doubt not in translation.warnings


def _stand_ins(line: Line) -> list[str]:
    """Return the names that do not occur in a line or in what its translation must have."""
    translations = [span.translation for span in line.fixed]
    texts = (line.text, line.prefix, *line.constraints, *translations)
    used = " ".join(texts).casefold()
    return [name for name in STAND_INS if name.casefold() not in used]


def _restore_complete(substitution: Substitution, n_best: NBest) -> NBest:
    """Return the translations with their spans, except for those with inflected names, such as
    Toms."""
    restored: NBest = []
    for translation in map(substitution.restore, n_best):
        text = translation.text
        names = [name for name in substitution.target if name in text]
        if all(count_occurrences(text, substitution.target[name]) for name in names):
            restored.append(translation)
    return restored


def _count_sentence_ends(text: str) -> int:
    return len(_SENTENCE_BOUNDARY.findall(text))


def _is_translated(line: Line) -> bool:
    """Return whether there is anything to translate: a letter outside the protected spans."""
    if line.is_constrained:
        return True
    protected = ((span.start, span.end, "") for span in line.protected)
    text = apply_edits(line.text, protected).removeprefix(line.language)
    return LETTER.search(text) is not None


def _copy(line: Line, warnings: tuple[str, ...]) -> Translation:
    """Return a line as its translation."""
    edits: list[Edit] = []
    for span in line.fixed:
        edits.append((span.start, span.end, span.translation))
    text = apply_edits(line.text, edits)
    without_language = text.removeprefix(line.language)
    offset = without_language != text  # the token is a word of the source
    text = remove_invisible(without_language).strip()
    text = with_surrounding_whitespace(text, line.text)
    num_words = len(text.split())
    alignment = tuple((i + offset, i) for i in range(num_words))
    return Translation(text, alignment=alignment, warnings=warnings)
