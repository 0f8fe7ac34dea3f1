"""Substitution of fixed spans by symbols that a model copies: placeholders or names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import zip_longest
from operator import attrgetter
from typing import NamedTuple

from nmt.data.placeholders import contains_separate, separate_pattern
from nmt.text.halves import find_english_halves
from nmt.text.language_codes import base_language
from nmt.text.number_words import MAX_SPELLED, NumberWord, find_number_words, is_time, spell_number
from nmt.text.spans import without_overlaps
from nmt.text.spoken_times import find_spoken_times
from nmt.translation.alignment import Link, align
from nmt.translation.result import Translation
from nmt.translation.segments import FixedSpan, Line

Spans = dict[str, FixedSpan]
"""Spans by the symbols that replace them."""
Texts = dict[str, str]
"""Texts by symbols."""


class Substitution(NamedTuple):
    """A line in which symbols replace fixed spans."""

    line: Line
    target: Texts
    """The text in the translation that each symbol stands for."""
    source: Texts
    """The text of the line that each symbol replaces."""
    written: Texts
    """How the line has each symbol: with a space between it and a word next to it, so that a model
    reads the word."""

    def is_complete(self, translation: Translation) -> bool:
        """Return whether a translation has all symbols."""
        return all(contains_separate(translation.text, symbol) for symbol in self.target)

    def restore_complete(self, n_best: Iterable[Translation]) -> list[Translation]:
        """Return the translations that have all symbols, restored."""
        complete = filter(self.is_complete, n_best)
        return list(map(self.restore, complete))

    def restore(self, translation: Translation) -> Translation:
        """Return the translation with the translation of each span in place of its symbol. Tokens
        keep the symbols."""
        links: list[Link] = []
        if translation.alignment:
            sources = self._word_ranges(self.line.text, self.source)
            targets = self._word_ranges(translation.text, self.target)
            for link in translation.known_links():
                if link.source >= len(sources) or link.target >= len(targets):
                    continue  # a tokenizer may count more words
                source_words = sources[link.source]
                last = source_words[-1]
                for i, word in enumerate(targets[link.target], source_words[0]):
                    links.append(Link(min(i, last), word, link.share))
        return replace(
            translation,
            text=self._expand(translation.text, self.target),
            alignment=tuple(align(links)),
            links=tuple(links),
        )

    def _expand(self, text: str, replacements: Texts) -> str:
        """Replace symbols, and remove the spaces between them and words."""
        pattern = "|".join(map(self._pattern, replacements))
        return re.sub(pattern, lambda match: replacements[match[0].strip()], text)

    def _pattern(self, symbol: str) -> str:
        written = self.written.get(symbol, symbol)
        return written.replace(" ", r"\s*").replace(symbol, separate_pattern(symbol))

    def _word_ranges(self, text: str, replacements: Texts) -> list[range]:
        """Return, for each word of `text`, the indices of its words after the replacements."""
        ranges: list[range] = []
        start = 0
        is_glued = False
        for word in text.split():
            expanded = self._expand(f" {word} ", replacements)
            if ranges and (is_glued or expanded[:1] != " "):
                start -= 1
            end = start + max(1, len(expanded.split()))
            ranges.append(range(start, end))
            start = end
            is_glued = expanded[-1:] != " "
        return ranges


def substitute(line: Line, symbols: Sequence[str]) -> Substitution | None:
    """Replace the opaque spans of a line by symbols, as many as there are; None if the line has no
    such spans."""
    opaque = [span for span in line.fixed if span.is_opaque]
    spans = dict(zip(symbols, opaque, strict=False))
    target = {symbol: span.translation for symbol, span in spans.items()}
    return _write_symbols(line, spans, target)


class _InDigits(NamedTuple):
    """Words for a number or time, and its digits."""

    start: int
    end: int
    """Offsets of its characters."""
    source: str
    """Its digits in the source."""
    target: str
    """Its digits in the translation."""
    spelled: str
    """What replaces them there."""


def digits_for_words(line: Line, src: str, tgt: str) -> Substitution | None:
    """Replace the numbers in words by digits, which are spelled again in the translation; None if
    the line has none.

    Times, ordinals and numbers above `MAX_SPELLED` stay digits.
    """
    spans: list[FixedSpan | _InDigits | NumberWord] = [*line.fixed]
    spans += _times_and_halves(line.text, src, tgt)
    spans += find_number_words(line.text, src)
    found: list[_InDigits] = []
    numbers: list[NumberWord] = []
    for span in without_overlaps(spans):
        if isinstance(span, _InDigits):
            found.append(span)
        elif isinstance(span, NumberWord):
            numbers.append(span)
    found += _numbers_in_digits(line.text, numbers, src, tgt)
    in_source: Spans = {}
    in_target: Texts = {}
    for each in found:
        in_source[each.source] = FixedSpan(each.start, each.end, each.spelled)
        in_target[each.target] = each.spelled
    return _write_symbols(line, in_source, in_target)


def _times_and_halves(text: str, src: str, tgt: str) -> Iterator[_InDigits]:
    for time in find_spoken_times(text, src):
        yield _InDigits(time.start, time.end, time.clock, time.clock, time.clock)
    for half in find_english_halves(text, src, tgt):
        yield _InDigits(half.start, half.end, half.english, half.german, half.german_word)


def _numbers_in_digits(
    text: str, numbers: Sequence[NumberWord], src: str, tgt: str
) -> Iterator[_InDigits]:
    """Yield the digits of numbers, and those of times such as at two-twenty."""
    minutes = None
    for number, following in zip_longest(numbers, numbers[1:]):
        if number is minutes:
            continue
        if following and is_time(text, number, following):
            minutes = following
            time = f"{number.value}:{following.value:02d}"
            yield _InDigits(number.start, following.end, time, time, time)
            continue
        digits = _in_digits(number, tgt)
        spelled = digits
        if not number.is_ordinal and number.value <= MAX_SPELLED:
            spelled = spell_number(number.value, tgt)
        yield _InDigits(number.start, number.end, _in_digits(number, src), digits, spelled)


def _write_symbols(line: Line, in_source: Spans, in_target: Texts) -> Substitution | None:
    """Replace spans of a line by their symbols; the other fixed spans move."""
    if not in_source:
        return None
    symbols = {span: symbol for symbol, span in in_source.items()}
    source: Texts = {}
    written: Texts = {}
    moved: list[FixedSpan] = []
    text = ""
    end = 0
    for span in sorted({*line.fixed, *symbols}, key=attrgetter("start")):
        text += line.text[end : span.start]
        end = span.end
        replaced = line.text[span.start : end]
        symbol = symbols.get(span)
        if symbol is None:
            start = len(text)
            text += replaced
            moved.append(replace(span, start=start, end=len(text)))
        else:
            source[symbol] = replaced
            written[symbol] = _with_spaces(symbol, line.text, span)
            text += written[symbol]
    text += line.text[end:]
    new = replace(line, text=text, fixed=tuple(moved))
    return Substitution(new, in_target, source, written)


def _with_spaces(symbol: str, text: str, span: FixedSpan) -> str:
    """Return a symbol with a space between it and a word next to it."""
    if text[span.start - 1 : span.start].isalnum():
        symbol = f" {symbol}"
    if text[span.end : span.end + 1].isalnum():
        symbol += " "
    return symbol


def _in_digits(number: NumberWord, language: str) -> str:
    """Return a number in digits: 21, or of an ordinal 21st in English and 21. in German."""
    if not number.is_ordinal:
        return str(number.value)
    if base_language(language) == "de":
        return f"{number.value}."
    last = number.value % 100
    if last > 20:
        last %= 10
    ending = {1: "st", 2: "nd", 3: "rd"}.get(last, "th")
    return f"{number.value}{ending}"
