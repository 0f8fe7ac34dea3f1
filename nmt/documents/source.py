"""What HTML and Markdown have in common: metadata, code of templates, and texts without markup."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from nmt.documents.document import RichText
from nmt.documents.inline import InlineText
from nmt.documents.ranges import by_start
from nmt.documents.splicing import Edit

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

    def edits(self, translations: Sequence[RichText]) -> Iterable[Edit]:
        """Yield the changed text."""
        text = translations[0].text
        if text != self.block.text:
            yield Edit(self.start, self.end, self.encode(text))


def in_order(parts: Iterable[InlineText | Value]) -> list[InlineText | Value]:
    """Return the parts with text in the order of the file."""
    with_text = (part for part in parts if part.blocks)
    return sorted(with_text, key=by_start)
