"""Glossaries: terms whose translation is given."""

from __future__ import annotations

import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from nmt.core.console import log
from nmt.core.errors import DataError
from nmt.data.pairs import read_lines
from nmt.data.tmx import read_tmx
from nmt.text.language_codes import base_language
from nmt.text.lazy_pattern import lazy_pattern
from nmt.text.searchable import SearchableText, searchable
from nmt.translation.checks import GERMAN_ENDINGS
from nmt.translation.segments import FixedSpan

LEAVE = "-"
"""In place of a target term: the source term is not translated."""
_PREFIX_LENGTH = 3
"""Letters by which terms are indexed; the inflection of a term does not change them."""
MAX_LISTED = 5
"""Maximum number of terms in a log line."""
_TERM_START = lazy_pattern(r"(?<!\w)\S")
_IN_WORD = lazy_pattern(r"\w")


@dataclass(frozen=True)
class Term:
    """A source term and its translation."""

    source: str
    target: str
    language: str
    """Language of the source term."""

    def composed(self) -> Term:
        """Return the term in Unicode NFC."""
        source = searchable(self.source)
        target = unicodedata.normalize("NFC", self.target)
        return replace(self, source=source, target=target)

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """Matches the term and its inflected forms, in any case unless it is an abbreviation in
        capitals."""
        stem = r"\s+".join(map(re.escape, self.source.split()))
        form = stem
        if base_language(self.language) == "en":
            form = (
                rf"(?:{stem}(?:e?s)?|{stem[:-1]}ies)"
                if self.source.endswith("y")
                else rf"{stem}(?:e?s)?"
            )
        elif base_language(self.language) == "de":
            form = stem + GERMAN_ENDINGS
        return re.compile(rf"{form}(?!\w)", 0 if self.is_abbreviation else re.IGNORECASE)

    @property
    def key(self) -> str:
        """The source without case, or that of an abbreviation."""
        return self.source if self.is_abbreviation else self.source.casefold()

    @property
    def is_abbreviation(self) -> bool:
        """Whether the term is an abbreviation in capitals, such as IT, which is another term than
        the word it."""
        return self.source.isupper() and len(self.source) > 1


class Glossary:
    """Finds terms in text, with simple inflection; the longest term at each place."""

    def __init__(self, terms: Iterable[Term], base: Glossary | None = None) -> None:
        """Create a glossary; of several terms with the same source, the first is used.

        Args:
            terms: the terms.
            base: further terms, which are used for other sources than those of `terms`.
        """
        self._terms: dict[str, list[Term]] = dict(base._terms) if base else {}
        new_terms: dict[str, dict[str, Term]] = defaultdict(dict)
        for term in (each.composed() for each in terms):
            stem = term.source.removesuffix("y") or term.source  # the plural of sky is skies
            first_word = next(iter(stem.split()), "")
            new_terms[first_word[:_PREFIX_LENGTH].casefold()].setdefault(term.key, term)
        for prefix, new in new_terms.items():
            known = [term for term in self._terms.get(prefix, ()) if term.key not in new]
            merged = [*known, *new.values()]
            merged.sort(key=lambda term: (-len(term.source), not term.is_abbreviation))
            self._terms[prefix] = merged

    @classmethod
    def load(cls, path: Path, src: str, tgt: str) -> Glossary:
        """Read terms from `src` to `tgt`: a TSV file (source, target, optional note), or a TBX or
        TMX file.

        Raises:
            DataError: the file is missing, corrupted or has no terms, or a line has no target term.
        """
        pairs = (
            read_tmx(path, src, tgt) if path.suffix.lower() in (".tbx", ".tmx") else _read_tsv(path)
        )
        terms = [Term(source, target, src).composed() for source, target in pairs]
        if not terms:
            raise DataError(f"{path} has no terms", "each line is SOURCE TERM, a tab, TARGET TERM")
        first: dict[str, Term] = {}
        ambiguous = {
            term.key for term in terms if first.setdefault(term.key, term).target != term.target
        }
        if ambiguous:
            names = ", ".join(first[key].source for key in sorted(ambiguous)[:MAX_LISTED])
            more = f" and {len(ambiguous) - MAX_LISTED:,} more" * (len(ambiguous) > MAX_LISTED)
            log(f"{path}: the first translation is used for {names}{more}")
        return cls(terms)

    def find(self, text: str) -> list[FixedSpan]:
        """Return the terms of a text, in order and without overlaps."""
        searchable_text = SearchableText(text)
        spans: list[FixedSpan] = []
        end = 0
        for term_start in _TERM_START.finditer(searchable_text.words):
            start = term_start.start()
            if start < end:
                continue
            found = self._find_at(searchable_text, start)
            if not found:
                continue
            term, end = found
            original_start, original_end = searchable_text.original_span(start, end)
            is_left = term.target == LEAVE
            translation = text[original_start:original_end] if is_left else term.target
            span = FixedSpan(
                original_start,
                original_end,
                translation,
                is_opaque=is_left,
                is_term=not is_left,
                kept_term=term.source if is_left else "",
            )
            spans.append(span)
        return spans

    def _find_at(self, text: SearchableText, start: int) -> tuple[Term, int] | None:
        """Return the first term that matches at an offset of a text, and its end."""
        for n in range(_PREFIX_LENGTH, 0, -1):
            prefix = text.text[start : start + n].casefold()
            for term in self._terms.get(prefix, ()):
                match = term.pattern.match(text.text, start)
                # A mark, such as a vowel sign, is no \w, but the word continues.
                if match and not _IN_WORD.match(text.words, match.end()):
                    return term, match.end()
        return None


def _read_tsv(path: Path) -> Iterator[tuple[str, str]]:
    for number, line in enumerate(read_lines(path), 1):
        if not line.strip():
            continue
        source, *target = (column.strip() for column in line.split("\t"))
        if not (source and target and target[0]):
            raise DataError(
                f"{path}, line {number}: no target term",
                f"each line is SOURCE TERM, a tab, TARGET TERM or {LEAVE} to leave the term"
                " untranslated",
            )
        yield source, target[0]
