"""Tags of fixed text, such as inline code, are placed where the text is in the translation."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from functools import cache, partial
from itertools import chain, compress

from nmt.data.placeholders import is_separate
from nmt.documents.document import RichText, Tag
from nmt.documents.ranges import Nearest
from nmt.documents.rich_text import outer_first
from nmt.text.searchable import marks_as_letters


def with_tags_on_own_text(rich: RichText, own_texts: Mapping[int, str]) -> RichText:
    """Move the tags of fixed text to where the text is, because it is found more reliably than by
    word alignment.

    Args:
        rich: a translation.
        own_texts: by the id of a tag, its text.
    """
    tags = list(rich.tags)
    borders = Counter(chain.from_iterable(tag.span for tag in tags))
    starts_of = cache(partial(_starts_of, rich.text))
    # A tag that is on its text stays there.
    is_placed = []
    for tag in tags:
        tagged = rich.text[tag.start : tag.end]
        is_placed.append(tagged == own_texts.get(tag.id))
    used = {tag.start for tag in compress(tags, is_placed)}

    def is_free(start: int) -> bool:
        return start not in used

    for i, tag in enumerate(tags):
        text = own_texts.get(tag.id)
        if not text or is_placed[i]:
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


def _starts_of(text: str, part: str) -> Nearest:
    """Return where a part of a text starts that is not inside a longer word."""
    letters = marks_as_letters(text)
    starts = []
    for match in re.finditer(re.escape(part), text):
        if is_separate(letters, *match.span(), len(text)):
            starts.append(match.start())
    return Nearest(starts)
