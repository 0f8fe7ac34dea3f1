"""Tags of fixed text, such as inline code, are placed where the text is in the translation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from itertools import chain

from nmt.data.placeholders import find_separate
from nmt.documents.document import RichText, Tag
from nmt.documents.ranges import Nearest
from nmt.documents.rich_text import outer_first


def with_tags_on_own_text(rich: RichText, own_texts: Mapping[int, str]) -> RichText:
    """Move the tags of fixed text to where the text is, because it is found more reliably than by
    word alignment.

    Args:
        rich: a translation.
        own_texts: by the id of a tag, its text.
    """
    tags = list(rich.tags)
    borders = Counter(chain.from_iterable(tag.span for tag in tags))

    @cache
    def starts_of(text: str) -> Nearest:
        return Nearest(find_separate(rich.text, text))

    def is_on_text(tag: Tag) -> bool:
        return rich.text[tag.start : tag.end] == own_texts.get(tag.id)

    used = {tag.start for tag in tags if is_on_text(tag)}

    def is_free(start: int) -> bool:
        return start not in used

    for i, tag in enumerate(tags):
        text = own_texts.get(tag.id)
        if not text or is_on_text(tag):
            continue
        start = starts_of(text).find(0, is_free)
        if start is None:
            continue
        placed = Tag(start, start + len(text), tag.id)
        if _has_border_inside(placed, borders):
            continue
        used.add(start)
        borders.subtract(tag.span)
        borders.update(placed.span)
        tags[i] = placed
    return replace(rich, tags=outer_first(tags))


def _has_border_inside(tag: Tag, borders: Mapping[int, int]) -> bool:
    """Return whether another tag starts or ends in a tag, given the number of borders by their
    positions."""
    inside = range(tag.start + 1, tag.end)
    return any(map(borders.get, inside))
