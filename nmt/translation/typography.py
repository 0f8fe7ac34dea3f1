"""Punctuation that models copy from the source or write in another way."""

from __future__ import annotations

import re
from collections.abc import Iterator

from nmt.text.language_codes import base_language
from nmt.text.lazy_pattern import lazy_pattern
from nmt.text.spans import Edit, apply_edits

_CLOSING = '["”“]'
_AMERICAN_ORDER = lazy_pattern(rf"\.{_CLOSING}")
_ABBREVIATIONS = "|".join(
    rf"(?<=\b{word})"
    for word in ("Ave", "Bros", "Co", "Corp", "etc", "Inc", "Jr", "Ltd", "Sr", "St")
)
_QUOTED_PART = lazy_pattern(
    rf'(?<=[^\s:,.!?–—"“”-] )["„“][^"„“”.!?:]*(?!{_ABBREVIATIONS})(?P<end>\.(?P<quote>{_CLOSING}))'
    r"(?=\s*$|\s+[^\sa-zäöüß])"
)
"""The quoted last words of a sentence; after a colon, comma or dash, they may be a sentence of
their own, and the period of an abbreviation stays with it."""
_GENITIVE = lazy_pattern(
    r"(?<![\w'’-])(?P<name>[A-ZÄÖÜ][\w-]*(?:['’][\w-]{2,})*)['’](?P<ending>s?)(?=\s\w)"
)
_OPENING = lazy_pattern(r"(?<!\w)['‘‚](?=\w)")
_WITHOUT_S = lazy_pattern(r"(?:[sßxz]|ce)$")
"""The end of a name whose genitive has an apostrophe only."""


def correct_typography(source: str, text: str, src: str, tgt: str) -> str:
    """Return a translation with the dashes, ellipses and brackets of the source; in German, with
    the period of a sentence after the quotation mark of its last words, and the s of genitives."""
    if " - " in source and not re.search("[–—]", source):
        text = text.replace(" – ", " - ")
    for bracket in "([":
        if f"{bracket} " not in source:  # a constraint begins with a space
            text = text.replace(f"{bracket} ", bracket)
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
    names = {match["name"] for match in _GENITIVE.finditer(source) if match["ending"]}
    if not names or _OPENING.search(text):  # the apostrophe may end a quotation
        return
    for match in _GENITIVE.finditer(text):
        name = match["name"]
        is_lost = not match["ending"] and not _WITHOUT_S.search(name)
        if is_lost and name in names:
            yield *match.span(), f"{name}s"
