"""One line of text as nmt reads it: normalized for training and users alike, and how shouting is read."""

from __future__ import annotations

import re
import unicodedata

# Control characters and the invisible ones that only split words. Joiners (U+200C, U+200D) and direction marks
# carry meaning in other scripts and stay. What counts as white space (tab, U+0085, U+2028, ...) becomes a space first.
_SURROGATES = re.compile("[\ud800-\udfff]")
_INVISIBLE = re.compile("[\x00-\x1f\x7f-\x9f\u00ad\u200b\u2060\ufeff]+")


def normalize_case(text: str, *, lowercase_all_caps: bool) -> str:
    """Return a source text as a model reads it: in small letters where it shouts and the model wants that."""
    return _lowercase_all_caps(text) if lowercase_all_caps else text


def _lowercase_all_caps(text: str) -> str:
    """Write a text in small letters if it is in capitals throughout, but for an ß, and more than an abbreviation."""
    shouted = text.replace("ß", "").isupper() and sum(map(str.isupper, text)) >= 4
    return text.lower() if shouted else text


def normalize(text: str) -> str:
    """Compose characters (NFC), make every run of white space one space, strip, remove control characters.

    U+2581 becomes an underscore: SentencePiece writes a space with it and would lose one that is text. A lone
    surrogate, which no encoding can write, becomes U+FFFD.
    """
    text = " ".join(text.split())
    if text.isascii() and text.isprintable():
        return text
    visible = _SURROGATES.sub("\ufffd", _INVISIBLE.sub("", text)).replace("\u2581", "_")
    return " ".join(unicodedata.normalize("NFC", visible).split())  # last: what was taken out may have stood between
