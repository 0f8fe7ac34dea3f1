"""Documents: paragraphs, parted by blank lines, are translated sentence by sentence and laid out as they were.

Within a paragraph the ends of lines mean nothing, as in text that was wrapped by hand: sentences may run over them. The
translation is wrapped as wide as the paragraph was. A paragraph of one line stays one. An indented line, a heading or
an item of a list begins a paragraph of its own, and what marks it is kept.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from nmt.data.segmentation import split_sentences
from nmt.inference.chunking import WINDOW, chunked
from nmt.inference.translator import Line, Translator
from nmt.inference.whitespace import gap

_MARK = re.compile(r"\s*(?:(?:[-*+•–]|\d{1,3}[.)]|#{1,6}|>+)\s+)?")


@dataclass
class Paragraph:
    """Lines that belong together, or a blank line."""

    mark: str
    """White space and the sign of a list or heading before the text; all of a blank line."""
    lines: list[str] = field(default_factory=list)
    """Its lines without white space at their ends; none of a blank line."""
    indent: str = ""
    """White space before the lines after the first."""

    @property
    def text(self) -> str:
        """The paragraph as one line."""
        return " ".join(self.lines)

    def goes_on(self, indent: str) -> bool:
        """Say whether a line that is indented like this may be the next of the paragraph."""
        if len(self.lines) > 1:
            return indent == self.indent
        return len(indent) <= len(self.mark) and "#" not in self.mark

    def laid_out(self, text: str) -> Iterator[str]:
        """Yield the lines of `text` in this paragraph's layout."""
        if len(self.lines) < 2:
            yield self.mark + text
            return
        width = max(len(self.mark) + len(self.lines[0]), *(len(self.indent) + len(line) for line in self.lines[1:]))
        yield from textwrap.wrap(
            text, width, initial_indent=self.mark, subsequent_indent=self.indent,
            break_long_words=False, break_on_hyphens=False,
        ) or [self.mark]  # fmt: skip


def paragraphs(lines: Iterable[str]) -> Iterator[Paragraph]:
    """Group lines; joined again with their marks they are the input, up to white space at ends of lines."""
    current: Paragraph | None = None
    for line in lines:
        mark = _MARK.match(line)[0]  # type: ignore[index]  # it matches anything
        text = line[len(mark) :].rstrip()
        if current and text and not mark.strip() and current.goes_on(mark):
            current.indent = mark
            current.lines.append(text)
            continue
        if current:
            yield current
        current = Paragraph(mark, [text]) if text else None
        if current is None:
            yield Paragraph(line)
    if current:
        yield current


def translate(translator: Translator, lines: Iterable[str], spec: str | None = None) -> Iterator[str]:
    """Yield the lines of a translated document.

    Args:
        translator: what translates its sentences.
        lines: the document.
        spec: search; None takes the one in the model's config.

    Raises:
        ConfigError: unknown search or option.
    """
    for group in chunked(paragraphs(lines), WINDOW // 8):
        spans = [split_sentences(paragraph.text, translator.config.data.src) for paragraph in group]
        parts: list[str | Line] = [
            paragraph.text[slice(*span)] for paragraph, of in zip(group, spans, strict=True) for span in of
        ]
        translated = iter([best[0].text for best in translator.stream([parts] if parts else [], spec)])
        for paragraph, of in zip(group, spans, strict=True):
            text = "".join(
                (gap(paragraph.text, of[i - 1][1], start) if i else "") + next(translated)
                for i, (start, _) in enumerate(of)
            )
            yield from paragraph.laid_out(text)
