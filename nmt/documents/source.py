"""Documents in which a text can contain other texts, such as the title of a link in a paragraph:
HTML and Markdown. Everything else is unchanged."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from nmt.documents.document import RichText
from nmt.documents.inline import InlineText
from nmt.documents.ranges import by_start
from nmt.documents.splicing import Edit, next_blocks
from nmt.documents.text_file import TextFile
from nmt.text.spans import apply_edits

FRONT_MATTER = re.compile(
    r"\A(?:---[ \t]*\r?\n.*?^(?:---|\.\.\.)|\+\+\+[ \t]*\r?\n.*?^\+\+\+)[ \t]*(?:\r?\n|\Z)",
    re.DOTALL | re.MULTILINE,
)
"""Metadata that generators of websites read at the start of Markdown and HTML: YAML between lines
with `---`, or TOML between lines with `+++`. YAML may also end with `...`."""
TEMPLATE_BLOCK = (
    r"\{%-?\s*(?P<block>highlight|comment)\b"
    r"(?:[^{<`]|\{(?!%-?\s*(?P=block)\b)|<(?!/(?:code|pre)\b)|`(?!``))*?\{%-?\s*end(?P=block)\b[^%]{0,200}%\}"
)
"""Code and comments of Liquid templates. The search for the end stops at the next start, so its
time is linear, and at the end of other code, in which a page about templates shows a start.
"""


@dataclass(frozen=True)
class Value:
    """A range of the source with a text without markup, such as the value of an attribute."""

    start: int
    end: int
    block: RichText
    encode: Callable[[str], str]
    """Returns the source of its translation."""

    @property
    def blocks(self) -> Sequence[RichText]:
        """The text, as the only block."""
        return [self.block]


class TranslatableSource:
    """A document with translatable ranges: texts with markup, and values, also in that markup."""

    encoding_errors = "strict"
    """Handling of characters that the encoding of the file does not have."""

    def __init__(
        self,
        file: TextFile,
        texts: Iterable[InlineText],
        values: Iterable[Value],
        edits: Sequence[Edit] = (),
    ) -> None:
        """Combine texts, values, and edits outside of them."""
        self._file, self._edits = file, edits
        parts: list[InlineText | Value] = [*values, *(text for text in texts if text.blocks)]
        self._parts = sorted(parts, key=by_start)
        self.blocks = [block for part in self._parts for block in part.blocks]

    def render(self, translations: Sequence[RichText]) -> bytes:
        """Return the document with the translation of each block."""
        edits = list(self._edits)
        translated_texts = list[tuple[InlineText, list[RichText]]]()
        remaining = iter(translations)
        for part in self._parts:
            of_part = next_blocks(remaining, part)
            if isinstance(part, InlineText):
                translated_texts.append((part, of_part))
            elif of_part[0].text != part.block.text:
                edits.append(Edit(part.start, part.end, part.encode(of_part[0].text)))
        edits.sort()
        output, position = list[str](), 0

        def source(start: int, end: int) -> str:
            return self._with_edits(start, end, edits)

        for text, of_text in translated_texts:
            output += [source(position, text.start), text.render(of_text, source)]
            position = text.end
        output.append(source(position, len(self._file.text)))
        return self._file.encode("".join(output), self.encoding_errors)

    def _with_edits(self, start: int, end: int, edits: Sequence[Edit]) -> str:
        first, last = (bisect_left(edits, (offset,)) for offset in (start, end))
        shifted = (
            Edit(edit.start - start, edit.end - start, edit.text) for edit in edits[first:last]
        )
        return apply_edits(self._file.text[start:end], shifted)
