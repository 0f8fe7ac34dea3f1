"""Substitution of fixed spans by symbols that a model copies: placeholders or names."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from nmt.data.placeholders import occurrence_pattern
from nmt.inference.segments import FixedSpan, Line
from nmt.inference.translation import Translation


@dataclass(frozen=True)
class Substitution:
    """A line in which symbols replace fixed spans."""

    line: Line
    spans: Mapping[str, FixedSpan]
    """The span of each symbol."""
    source: Mapping[str, str]
    """The text of the line that each symbol replaces."""

    def restore(self, translation: Translation) -> Translation:
        """Return the translation with the translation of each span in place of its symbol. Tokens keep the symbols."""
        target = {symbol: span.translation for symbol, span in self.spans.items()}
        alignment = translation.alignment
        if alignment:
            sources = _word_ranges(self.line.text, self.source)
            targets = _word_ranges(translation.text, target)
            alignment = tuple(
                (sources[source][min(i, len(sources[source]) - 1)], word)
                for source, target_word in alignment
                if source < len(sources) and target_word < len(targets)  # a tokenizer may count more words
                for i, word in enumerate(targets[target_word])
            )
        return replace(translation, text=_expand(translation.text, target), alignment=alignment)


def substitute(line: Line, symbols: Sequence[str]) -> Substitution | None:
    """Replace the opaque spans of a line by symbols, as many as there are; None if the line has no such spans."""
    unused, pairs, moved = iter(symbols), dict[str, FixedSpan](), []
    text, end = "", 0
    for span in line.fixed:
        text, end = text + line.text[end : span.start], span.end
        if symbol := next(unused, "") if span.is_opaque else "":
            pairs[symbol], text = span, text + symbol
        else:
            start, text = len(text), text + line.text[span.start : span.end]
            moved.append(replace(span, start=start, end=len(text)))
    source = {symbol: line.text[span.start : span.end] for symbol, span in pairs.items()}
    new = replace(line, text=text + line.text[end:], fixed=tuple(moved))
    return Substitution(new, pairs, source) if pairs else None


def _expand(text: str, replacements: Mapping[str, str]) -> str:
    if not replacements:
        return text
    pattern = "|".join(occurrence_pattern(symbol).pattern for symbol in replacements)
    return re.sub(pattern, lambda match: replacements[match[0]], text)


def _word_ranges(text: str, replacements: Mapping[str, str]) -> list[range]:
    """Return, for each word of `text`, the indices of its words after the replacements."""
    ranges, start = [], 0
    for word in text.split():
        count = max(1, len(_expand(word, replacements).split()))
        ranges.append(range(start, start + count))
        start += count
    return ranges
