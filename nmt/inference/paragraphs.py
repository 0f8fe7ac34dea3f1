"""Translate line-wrapped text sentence by sentence: split paragraphs, and restore their layout.

Blank lines separate paragraphs. A sentence may continue on the next line of its paragraph. The translation is wrapped
to the width of the paragraph, unless the paragraph is a single line. A heading, the line after it, a list item, and a
line indented further than the paragraph's text start a new paragraph. From the third line of a paragraph on, a line
that is not indented like the second starts one, too. The marker of a paragraph, such as a list bullet, a number, `#`
or `>`, is preserved.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from nmt.data.sentences import split_sentences
from nmt.inference.chunking import CHUNK_SIZE, chunked
from nmt.inference.guard import Guard
from nmt.inference.translator import Line, Translator
from nmt.inference.whitespace import separator

_MARKER = re.compile(r"\s*(?:(?:[-*+•–]|\d{1,3}[.)]|#{1,6}|>+)\s+)?")


@dataclass
class Paragraph:
    """A paragraph, or a blank line."""

    marker: str
    """Whitespace and list or heading marker before the text; for a blank line, the entire line."""
    lines: list[str] = field(default_factory=list)
    """Lines without surrounding whitespace; empty for a blank line."""
    indent: str = ""
    """Whitespace before the lines after the first."""

    @property
    def text(self) -> str:
        """The paragraph as one line."""
        return " ".join(self.lines)

    def continues_with(self, indent: str) -> bool:
        """Return whether a line with this indentation can be the next line of the paragraph."""
        if len(self.lines) > 1:
            return indent == self.indent
        return len(indent) <= len(self.marker) and "#" not in self.marker

    def format(self, text: str) -> Iterator[str]:
        """Yield the lines of `text` in the layout of this paragraph."""
        if len(self.lines) < 2:
            yield self.marker + text
            return
        width = max(len(self.marker) + len(self.lines[0]), *(len(self.indent) + len(line) for line in self.lines[1:]))
        yield from textwrap.wrap(
            text, width, initial_indent=self.marker, subsequent_indent=self.indent,
            break_long_words=False, break_on_hyphens=False,
        ) or [self.marker]  # fmt: skip


def paragraphs(lines: Iterable[str]) -> Iterator[Paragraph]:
    """Group lines into paragraphs, which preserve the input except for trailing whitespace."""
    current: Paragraph | None = None
    for line in lines:
        marker = _MARKER.match(line)[0]  # type: ignore[index]  # the pattern matches any string
        text = line[len(marker) :].rstrip()
        if current and text and not marker.strip() and current.continues_with(marker):
            current.indent = marker
            current.lines.append(text)
            continue
        if current:
            yield current
        current = Paragraph(marker, [text]) if text else None
        if current is None:
            yield Paragraph(line)
    if current:
        yield current


def translate(translator: Translator | Guard, lines: Iterable[str], search: str | None = None) -> Iterator[str]:
    """Yield the lines of line-wrapped text, translated sentence by sentence.

    Args:
        translator: translates the sentences.
        lines: lines of the text.
        search: spec string of a search; None uses the search of the model's config.

    Raises:
        ConfigError: unknown search or option.
    """
    for chunk in chunked(paragraphs(lines), CHUNK_SIZE // 8):  # a paragraph has several sentences
        spans_of = [split_sentences(paragraph.text, translator.config.data.src) for paragraph in chunk]
        pairs = list(zip(chunk, spans_of, strict=True))
        source: list[str | Line] = [paragraph.text[start:end] for paragraph, spans in pairs for start, end in spans]
        translations = iter([n_best[0].text for n_best in translator.stream([source] if source else [], search)])
        for paragraph, spans in pairs:
            text = "".join(
                (separator(paragraph.text, spans[i - 1][1], start) if i else "") + next(translations)
                for i, (start, _) in enumerate(spans)
            )
            yield from paragraph.format(text)
