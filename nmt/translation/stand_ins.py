"""Substitution of fixed spans by symbols that a model copies: placeholders or names."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest

from nmt.data.placeholders import contains_separate, separate_pattern
from nmt.text.language_codes import base_language
from nmt.text.number_words import MAX_SPELLED, NumberWord, find_number_words, is_time, spell_number
from nmt.translation.alignment import Link, align
from nmt.translation.result import Translation
from nmt.translation.segments import FixedSpan, Line


@dataclass(frozen=True)
class Glued:
    """Symbols without a space before or after them."""

    before: frozenset[str] = frozenset()
    after: frozenset[str] = frozenset()

    def with_spaces(self, symbol: str) -> str:
        """Return a symbol with spaces where it is glued to a word."""
        space_before = " " if symbol in self.before else ""
        space_after = " " if symbol in self.after else ""
        return f"{space_before}{symbol}{space_after}"

    def pattern(self, symbol: str) -> str:
        """Return a regular expression of a symbol in a translation, with the spaces to remove."""
        space_before = r"\s*" if symbol in self.before else ""
        space_after = r"\s*" if symbol in self.after else ""
        return f"{space_before}{separate_pattern(symbol)}{space_after}"


@dataclass(frozen=True)
class Substitution:
    """A line in which symbols replace fixed spans."""

    line: Line
    spans: Mapping[str, FixedSpan]
    """The span of each symbol."""
    source: Mapping[str, str]
    """The text of the line that each symbol replaces."""
    glued: Glued = Glued()
    """The symbols that are next to a word in the line, and have a space between, so that a model
    reads the word."""

    def is_complete(self, translation: Translation) -> bool:
        """Return whether a translation has all symbols."""
        return all(contains_separate(translation.text, symbol) for symbol in self.spans)

    def restore(self, translation: Translation) -> Translation:
        """Return the translation with the translation of each span in place of its symbol. Tokens
        keep the symbols."""
        target = {symbol: span.translation for symbol, span in self.spans.items()}
        links: list[Link] = []
        if translation.alignment:
            sources = _word_ranges(self.line.text, self.source, self.glued)
            targets = _word_ranges(translation.text, target, self.glued)
            for link in translation.known_links():
                if link.source >= len(sources) or link.target >= len(targets):
                    continue  # a tokenizer may count more words
                source_words = sources[link.source]
                for i, word in enumerate(targets[link.target]):
                    links.append(
                        Link(source_words[min(i, len(source_words) - 1)], word, link.share)
                    )
        return replace(
            translation,
            text=_expand(translation.text, target, self.glued),
            alignment=tuple(align(links)),
            links=tuple(links),
        )


def substitute(line: Line, symbols: Sequence[str]) -> Substitution | None:
    """Replace the opaque spans of a line by symbols, as many as there are; None if the line has no
    such spans."""
    opaque = [span for span in line.fixed if span.is_opaque]
    spans = dict(zip(symbols, opaque, strict=False))
    return _write_symbols(line, spans, spans) if spans else None


def digits_for_words(line: Line, src: str, tgt: str) -> Substitution | None:
    """Replace the numbers in words by digits, which are spelled again in the translation; None if
    the line has none.

    Ordinals and numbers above `MAX_SPELLED` stay digits.
    """
    in_source: dict[str, FixedSpan] = {}
    in_target: dict[str, FixedSpan] = {}
    numbers = [
        number for number in find_number_words(line.text, src) if not _is_fixed(number, line)
    ]
    minutes: set[NumberWord] = set()
    for number, following in zip_longest(numbers, numbers[1:]):
        if number in minutes:
            continue
        if following and is_time(line.text, number, following):
            minutes.add(following)
            time = f"{number.value}:{following.value:02d}"
            in_source[time] = in_target[time] = FixedSpan(number.start, following.end, time)
            continue
        digits = _in_digits(number, tgt)
        is_spelled = not number.is_ordinal and number.value <= MAX_SPELLED
        spelled = spell_number(number.value, tgt) if is_spelled else digits
        span = FixedSpan(number.start, number.end, spelled)
        in_source[_in_digits(number, src)] = span
        in_target[digits] = span
    return _write_symbols(line, in_source, in_target) if in_source else None


def _is_fixed(number: NumberWord, line: Line) -> bool:
    return any(span.start < number.end and number.start < span.end for span in line.fixed)


def _write_symbols(
    line: Line, in_source: Mapping[str, FixedSpan], in_target: Mapping[str, FixedSpan]
) -> Substitution:
    """Replace spans of a line by their symbols; the other fixed spans move."""
    symbols = {span: symbol for symbol, span in in_source.items()}
    glued = _find_glued(line.text, in_source)
    moved: list[FixedSpan] = []
    text = ""
    end = 0
    for span in sorted({*line.fixed, *symbols}, key=lambda span: span.start):
        text += line.text[end : span.start]
        end = span.end
        if symbol := symbols.get(span):
            text += glued.with_spaces(symbol)
        else:
            start = len(text)
            text += line.text[span.start : span.end]
            moved.append(replace(span, start=start, end=len(text)))
    new = replace(line, text=text + line.text[end:], fixed=tuple(moved))
    source = {symbol: line.text[span.start : span.end] for symbol, span in in_source.items()}
    return Substitution(new, in_target, source, glued)


def _find_glued(text: str, spans: Mapping[str, FixedSpan]) -> Glued:
    before: set[str] = set()
    after: set[str] = set()
    for symbol, span in spans.items():
        if text[max(0, span.start - 1) : span.start].isalnum():
            before.add(symbol)
        if text[span.end : span.end + 1].isalnum():
            after.add(symbol)
    return Glued(frozenset(before), frozenset(after))


def _in_digits(number: NumberWord, language: str) -> str:
    """Return a number in digits: 21, or of an ordinal 21st in English and 21. in German."""
    if not number.is_ordinal:
        return str(number.value)
    if base_language(language) == "de":
        return f"{number.value}."
    is_teen = 10 < number.value % 100 < 20
    ending = "th" if is_teen else {1: "st", 2: "nd", 3: "rd"}.get(number.value % 10, "th")
    return f"{number.value}{ending}"


def _expand(text: str, replacements: Mapping[str, str], glued: Glued) -> str:
    """Replace symbols, and remove the spaces between glued ones and their words."""
    if not replacements:
        return text
    pattern = "|".join(map(glued.pattern, replacements))
    return re.sub(pattern, lambda match: replacements[match[0].strip()], text)


def _word_ranges(text: str, replacements: Mapping[str, str], glued: Glued) -> list[range]:
    """Return, for each word of `text`, the indices of its words after the replacements."""
    ranges: list[range] = []
    start = 0
    is_glued = False
    for word in text.split():
        symbols = [symbol for symbol in replacements if symbol in word]
        is_glued |= any(symbol in glued.before and word.startswith(symbol) for symbol in symbols)
        if is_glued and start:
            start -= 1
        count = max(1, len(_expand(word, replacements, glued).split()))
        ranges.append(range(start, start + count))
        start += count
        is_glued = any(symbol in glued.after and word.endswith(symbol) for symbol in symbols)
    return ranges
