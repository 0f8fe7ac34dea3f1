"""Text that contains tags of HTML as characters, as strings of programs do."""

from __future__ import annotations

import re
from collections.abc import Callable

from nmt.documents.builder import SourceMarkup, TextBuilder
from nmt.documents.html import ENDS, ENDS_PARAGRAPH, UNTRANSLATED_ELEMENTS
from nmt.documents.paired_codes import ended_range, started_range

_TAG = re.compile(r"</?(?P<name>[a-zA-Z0-9][\w:-]*+)[^<>]*+>")
_OTHERS = ENDS_PARAGRAPH | ENDS.keys() | UNTRANSLATED_ELEMENTS
_TRANSLATE = re.compile(r"\btranslate\b|\bnotranslate\b|\blang\b")
"""Attributes that may exclude an element from the translation."""


def add_tagged_text(
    builder: TextBuilder[SourceMarkup], text: str, encode: Callable[[str], str] = str
) -> None:
    """Add a text with inline elements, whose tags become markup of the text.

    A text with other tags, which divide sentences or exclude text, or with elements that touch,
    which may be labels of their own, is added with all tags as characters.

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
    """Return the tags of a text with only inline elements; none for other texts."""
    if "</" not in text or "<!" in text:  # like most texts
        return []
    tags = list(_TAG.finditer(text))
    open_names: list[str] = []
    for i, tag in enumerate(tags):
        started = started_range(tag[0])
        is_other = tag["name"].lower() in _OTHERS or _TRANSLATE.search(tag[0])
        touches = i > 0 and tags[i - 1].end() == tag.start()
        if is_other or (started and touches and not open_names):
            return []
        if started:
            open_names.append(started)
        elif not open_names or open_names.pop() != ended_range(tag[0]):
            return []
    return [] if open_names else tags
