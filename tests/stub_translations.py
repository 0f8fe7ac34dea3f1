"""Stand-ins for a translator, to test document formats."""

from __future__ import annotations

import re
from collections.abc import Callable

from nmt.documents.document import Document, RichText, Tag

OPTIONS = {"src": "en", "tgt": "de"}


def uppercase(block: RichText) -> RichText:
    """Return the text in capitals, with its tags, except for fixed spans."""
    text = "".join(char.upper() if len(char.upper()) == 1 else char for char in block.text)
    for span in block.fixed:
        text = text[: span.start] + span.translation + text[span.end :]
    return RichText(text, block.tags)


def reverse_words(block: RichText) -> RichText:
    """Return the words in reverse order; a tag is where its words are, and a point at the end."""
    words = [match.span() for match in re.finditer(r"\S+", block.text)]
    text, starts = "", {}
    for start, end in reversed(words):
        starts[start] = len(text)
        text += block.text[start:end] + " "
    text = text.rstrip(" ")
    tags = []
    for tag in block.tags:
        inside = [span for span in words if max(span[0], tag.start) < min(span[1], tag.end)]
        if inside:
            end = starts[inside[0][0]] + inside[0][1] - inside[0][0]
            tags.append(Tag(starts[inside[-1][0]], end, tag.id))
        else:
            tags.append(Tag(len(text), len(text), tag.id))
    return RichText(text, tuple(tags))


def translated(document: Document, translate: Callable[[RichText], RichText] = uppercase) -> bytes:
    """Return the document with all blocks translated."""
    return document.render([translate(block) for block in document.blocks])


def texts(document: Document) -> list[str]:
    """Return the texts of all blocks."""
    return [block.text for block in document.blocks]
