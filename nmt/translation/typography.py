"""Punctuation that models copy from the source or write in another way."""

from __future__ import annotations

import re
from collections.abc import Iterator

from nmt.text.language_codes import base_language
from nmt.text.lazy_pattern import lazy_pattern
from nmt.text.spans import Edit, apply_edits

_CLOSING = '["”“]'
_AMERICAN_ORDER = lazy_pattern(rf"\.{_CLOSING}")
_QUOTED_PART = lazy_pattern(
    rf'(?<=[^\s:,.!?] )["„“][^"„“”.!?:]*(?P<end>\.(?P<quote>{_CLOSING}))(?!\S)'
)
"""A quoted part of a sentence; after a colon or comma, it may be a sentence of its own."""
_GENITIVE = lazy_pattern(r"(?<![\w'’])(?P<name>[A-ZÄÖÜ][\w-]*)['’]s?(?=\s\w)")
_WITHOUT_S = lazy_pattern(r"(?:[sßxz]|ce)$")
"""The end of a name whose genitive has an apostrophe only."""


def correct_typography(source: str, text: str, src: str, tgt: str) -> str:
    """Return a translation with the dashes, ellipses and brackets of the source; in German, with
    the period of a sentence after the quotation mark of its last words, and the s of genitives."""
    if " - " in source and not re.search("[–—]", source):
        text = text.replace(" – ", " - ")
    if "( " not in source:  # a constraint begins with a space
        text = text.replace("( ", "(")
    if "..." in source and "…" not in source:
        text = text.replace("…", "...")
    if (base_language(src), base_language(tgt)) == ("en", "de"):
        text = apply_edits(text, _period_edits(source, text))
        text = apply_edits(text, _genitive_edits(source, text))
    return text


def _period_edits(source: str, text: str) -> Iterator[Edit]:
    if _AMERICAN_ORDER.search(source):
        for match in _QUOTED_PART.finditer(text):
            yield *match.span("end"), f"{match['quote']}."


def _genitive_edits(source: str, text: str) -> Iterator[Edit]:
    """Yield the edits of names such as Anna' for Anna's, of which models lose the s."""
    names = {match["name"] for match in _GENITIVE.finditer(source)}
    for match in _GENITIVE.finditer(text):
        name = match["name"]
        is_lost = not match[0].endswith("s") and not _WITHOUT_S.search(name)
        if is_lost and name in names:
            yield *match.span(), f"{name}s"
