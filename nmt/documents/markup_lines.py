"""Lines of text with markup: their tags are placed by word alignment, as in documents."""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING

from nmt.text.lazy_pattern import lazy_pattern
from nmt.translation.guard import Guard
from nmt.translation.result import Translation
from nmt.translation.segments import Line

if TYPE_CHECKING:  # the parser is imported when a line has markup
    from nmt.documents.document import Document
    from nmt.documents.document_translator import TranslatedBlocks
    from nmt.documents.formats import DocumentOptions
    from nmt.documents.strings import StringLines

_ELEMENT = lazy_pattern(r"<([a-z][a-z0-9]{0,20})(?:\s[^<>]{0,999})?>[^<>]*</\1>", re.IGNORECASE)
"""An element with text, in a line that is HTML or has some of its tags."""


class MarkupLines:
    """Translates lines as a `Guard` does, but the text of those with elements apart from its
    tags."""

    def __init__(self, guard: Guard) -> None:
        self.guard = guard
        self.config = guard.config
        self.tokenizer = guard.tokenizer
        self.term_counts = guard.term_counts

    def stream(
        self,
        chunks: Iterable[Sequence[str | Line]],
        search: str | None = None,
        *,
        details: bool = False,
        on_progress: Callable[[float], object] = lambda lines: None,
    ) -> Iterator[list[Translation]]:
        """Yield the n-best list of each line; see `Guard.stream`. A line with elements has one
        translation.

        With details, or if a line has a prefix or constraints, its tags are protected spans.
        """
        for chunk in chunks:
            lines = [Line(line) if isinstance(line, str) else line for line in chunk]
            plain = []
            marked_up = {}  # by their indices
            for i, line in enumerate(lines):
                if not details and _has_markup(line):
                    marked_up[i] = line.text
                else:
                    plain.append(line)
            results = self.guard.stream([plain], search, details=details, on_progress=on_progress)
            translated = iter(self._translate(list(marked_up.values()), search))
            on_progress(len(marked_up))
            for i in range(len(lines)):
                yield [next(translated)] if i in marked_up else next(results)

    def _translate(self, texts: Sequence[str], search: str | None) -> list[Translation]:
        if not texts:
            return []
        from nmt.documents.document_translator import DocumentTranslator
        from nmt.documents.formats import DocumentOptions

        options = DocumentOptions(*self.guard.languages)
        documents = [_parse(text, options) for text in texts]
        blocks = [block for document in documents for block in document.blocks]
        translated = DocumentTranslator(self.guard, search).translate(blocks)
        results = []
        start = 0
        for document in documents:
            end = start + len(document.blocks)
            results.append(_rendered(document, translated, start, end))
            start = end
        return results


def _has_markup(line: Line) -> bool:
    return not (line.prefix or line.constraints) and _ELEMENT.search(line.text) is not None


def _parse(text: str, options: DocumentOptions) -> Document | StringLines:
    """Parse a line: as a string if all of its tags are those of inline elements, else as HTML."""
    from nmt.documents import html
    from nmt.documents.strings import StringLines

    lines = StringLines(text)
    if any(block.tags for block in lines.blocks):
        return lines
    return html.parse(codecs.BOM_UTF8 + text.encode(), options)


def _rendered(
    document: Document | StringLines, translated: TranslatedBlocks, start: int, end: int
) -> Translation:
    """Return the translation of a line, whose blocks are those from `start` to `end`, with their
    warnings."""
    content = document.render(translated.blocks[start:end])
    warnings = dict.fromkeys(chain.from_iterable(translated.warnings_of_blocks[start:end]))
    if isinstance(content, bytes):
        content = content.removeprefix(codecs.BOM_UTF8).decode()
    return Translation(content, 0.0, 0.0, warnings=tuple(warnings))
