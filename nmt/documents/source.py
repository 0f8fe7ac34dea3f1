"""A source file in which translations replace ranges; everything else is unchanged."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from nmt.documents.document import RichText
from nmt.documents.inline import InlineText


@dataclass(frozen=True)
class Value:
    """A range of the source with a text without markup, such as the value of an attribute."""

    start: int
    end: int
    block: RichText
    encode: Callable[[str], str]
    """Returns the source of its translation."""


class TranslatableSource:
    """The source of a document and its translatable ranges: texts with markup, and values, also in that markup."""

    def __init__(self, source: str, texts: Sequence[InlineText], values: Sequence[Value]) -> None:
        """Combine texts and values, each in the order of their starts."""
        self.source, self._texts, self._values = source, texts, values
        self._value_starts = [value.start for value in values]
        parts: list[InlineText | Value] = [*values, *texts]
        self._order = sorted(range(len(parts)), key=lambda i: parts[i].start)
        self.blocks = [parts[i].block for i in self._order]
        self.start = min((part.start for part in parts), default=len(source))
        """Start of the first text or value."""

    def render(self, translations: Sequence[RichText]) -> str:
        """Return the source with the translation of each block."""
        by_part = dict(zip(self._order, translations, strict=True))
        values = [by_part[i].text for i in range(len(self._values))]
        output, position = list[str](), 0

        def source(start: int, end: int) -> str:
            return self._with_values(start, end, values)

        for i, text in enumerate(self._texts, len(self._values)):
            output += [source(position, text.start), text.render(by_part[i], source)]
            position = text.end
        return "".join([*output, source(position, len(self.source))])

    def _with_values(self, start: int, end: int, translations: Sequence[str]) -> str:
        first, last = (bisect_left(self._value_starts, offset) for offset in (start, end))
        output, position = list[str](), start
        for value, text in zip(self._values[first:last], translations[first:last], strict=True):
            if text != value.block.text:
                output += [self.source[position : value.start], value.encode(text)]
                position = value.end
        return "".join([*output, self.source[position:end]])
