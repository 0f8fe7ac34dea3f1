"""Text that contains tags of HTML as characters, as strings of programs do."""

from __future__ import annotations

import re
from collections.abc import Callable

from nmt.documents.builder import SourceMarkup, TextBuilder
from nmt.documents.html import ENDS, ENDS_PARAGRAPH
from nmt.documents.paired_codes import ended_range, started_range

_TAG = re.compile(r"</?(?P<name>[a-zA-Z0-9][\w:-]*)[^<>]*>")
_BLOCKS = ENDS_PARAGRAPH | ENDS.keys()


def add_tagged_text(
    builder: TextBuilder[SourceMarkup], text: str, encode: Callable[[str], str] = str
) -> None:
    """Add a text with its inline elements, whose tags become markup of the text.

    Other tags are a part of the text: those of blocks and of elements without content, which divide
    sentences.

    Args:
        builder: the text so far.
        text: the text to add.
        encode: returns the source of a tag.
    """
    position = 0
    for tag in _paired_tags(text):
        builder.add_text(text[position : tag.start()])
        markup = SourceMarkup(encode(tag[0]))
        started = started_range(tag[0])
        if started:
            builder.start(started, markup)
        else:
            builder.close(ended_range(tag[0])).closing = markup.opening
        position = tag.end()
    builder.add_text(text[position:])


def _paired_tags(text: str) -> list[re.Match[str]]:
    """Return the start and end tags of the inline elements in a text."""
    if "</" not in text:  # like most texts
        return []
    paired = []
    open_tags: list[re.Match[str]] = []
    for tag in _TAG.finditer(text):
        if tag["name"].lower() in _BLOCKS:
            open_tags.clear()
        elif started_range(tag[0]):
            open_tags.append(tag)
        elif open_tags and started_range(open_tags[-1][0]) == ended_range(tag[0]):
            start = open_tags.pop()
            paired += [start, tag]
    return sorted(paired, key=re.Match.start)
