"""Documents of the formats of plug-ins, which may be something else than documents."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from nmt.core.plugins import wrong_type
from nmt.documents.document import RichText, Tag
from nmt.translation.segments import FixedSpan

if TYPE_CHECKING:
    from nmt.documents.formats import DocumentOptions


class PluginDocument:
    """A document that checks the blocks and the file of the one that a plug-in returns."""

    def __init__(self, document: Any, format: str) -> None:
        """Check a document.

        Raises:
            PluginError: it lacks a part of the interface, or its blocks are something else.
        """
        if not (hasattr(document, "blocks") and hasattr(document, "render")):
            raise wrong_type(format, document, "a document with blocks and render")
        self._render = document.render
        self._format = format
        blocks = document.blocks
        if not isinstance(blocks, Iterable):
            raise wrong_type(f"blocks of {format}", blocks, "a list of RichText")
        self.blocks = list(blocks)
        """The blocks to translate, in reading order."""
        for block in self.blocks:
            self._check_block(block)

    def render(self, translations: Sequence[RichText]) -> bytes:
        """Return the document with the translation of each block.

        Raises:
            PluginError: it is not bytes.
        """
        content = self._render(translations)
        if not isinstance(content, bytes):
            raise wrong_type(f"render of {self._format}", content, "bytes")
        return content

    def _check_block(self, block: Any) -> None:
        owner = f"blocks of {self._format}"
        if not isinstance(block, RichText):
            raise wrong_type(owner, block, "a RichText")
        if not isinstance(block.text, str):
            raise wrong_type(f"text of a block of {self._format}", block.text, "text")
        self._check_parts(block.tags, Tag, "tags")
        self._check_parts(block.fixed, FixedSpan, "fixed")

    def _check_parts(self, parts: Any, kind: type, name: str) -> None:
        owner = f"{name} of a block of {self._format}"
        expected = f"a tuple of {kind.__name__}"
        if not isinstance(parts, tuple):
            raise wrong_type(owner, parts, expected)
        for part in parts:
            if not isinstance(part, kind):
                raise wrong_type(owner, part, expected)


def parse(
    suffix: str,
    parser: Callable[[bytes, DocumentOptions], Any],
    data: bytes,
    options: DocumentOptions,
) -> PluginDocument:
    """Return the document that the parser of a plug-in reads.

    Raises:
        PluginError: it is not a document.
    """
    return PluginDocument(parser(data, options), f"the format '{suffix}'")
