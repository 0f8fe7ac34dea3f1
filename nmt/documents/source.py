"""A source file in which translations replace ranges; everything else is unchanged."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from nmt.data.spans import apply_edits
from nmt.documents.document import RichText
from nmt.documents.inline import InlineText
from nmt.documents.splicing import Edit


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

    def __init__(
        self, source: str, texts: Sequence[InlineText], values: Sequence[Value], edits: Sequence[Edit] = ()
    ) -> None:
        """Combine texts and values, each in the order of their starts, and edits outside of them."""
        self.source, self._texts, self._values, self._edits = source, texts, values, edits
        parts: list[InlineText | Value] = [*values, *texts]
        self._order = sorted(range(len(parts)), key=lambda i: parts[i].start)
        self.blocks = [parts[i].block for i in self._order]

    def render(self, translations: Sequence[RichText]) -> str:
        """Return the source with the translation of each block."""
        by_part = dict(zip(self._order, translations, strict=True))
        changed = (
            Edit(value.start, value.end, value.encode(by_part[i].text))
            for i, value in enumerate(self._values)
            if by_part[i].text != value.block.text
        )
        edits = sorted([*self._edits, *changed])
        output, position = list[str](), 0

        def source(start: int, end: int) -> str:
            return self._with_edits(start, end, edits)

        for i, text in enumerate(self._texts, len(self._values)):
            output += [source(position, text.start), text.render(by_part[i], source)]
            position = text.end
        return "".join([*output, source(position, len(self.source))])

    def _with_edits(self, start: int, end: int, edits: Sequence[Edit]) -> str:
        first, last = (bisect_left(edits, (offset,)) for offset in (start, end))
        shifted = (Edit(edit.start - start, edit.end - start, edit.text) for edit in edits[first:last])
        return apply_edits(self.source[start:end], shifted)
