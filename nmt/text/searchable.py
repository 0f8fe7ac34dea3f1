"""Text in which patterns find words however their letters are encoded: a letter with a mark is one
or two characters, and soft hyphens may be anywhere in a word."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from functools import cached_property

from nmt.text.lazy_pattern import lazy_pattern
from nmt.text.normalization import UNSPACED, is_mark

_IGNORED = lazy_pattern("[\u00ad\u2060\ufeff]")
"""Invisible characters that do not separate words, unlike U+200B."""
_JOINERS = "\u200c\u200d"
_AFTER_LETTER = lazy_pattern(r"(?<=\w)[^\w\s\x00-\u02ff\u2000-\u200b\u200e-\u20cf]+")
"""What may begin with marks and joiners of a word. The excluded characters are frequent, and no
marks."""
_LETTER = "\u00aa"
_UNSPACED_LETTER = "\u0e01"
"""Letters without case that no pattern names."""
_UNSPACED_CHARACTER = lazy_pattern(f"[{UNSPACED}]")


class SearchableText:
    """A text in Unicode NFC and without soft hyphens, and the offsets of its characters in the
    original."""

    def __init__(self, original: str) -> None:
        self.text = original
        self._starts: list[int] = []  # no offsets: they are those of the original
        self._ends: list[int] = []
        if original.isascii():
            return
        is_composed = unicodedata.is_normalized("NFC", original)
        if not is_composed or _IGNORED.search(original):
            self._compose(original)

    @cached_property
    def words(self) -> str:
        """The text with letters in place of the marks in words, of the same length: `\\w` does not
        match marks."""
        return marks_as_letters(self.text)

    def original_span(self, start: int, end: int) -> tuple[int, int]:
        """Return the offsets in the original of a range of the text that is not empty.

        It is longer where it begins or ends inside a composed character.
        """
        if not self._starts:
            return start, end
        return self._starts[start], self._ends[end - 1]

    def _compose(self, original: str) -> None:
        pieces: list[str] = []
        for start, end in _composable(original):
            piece = original[start:end]
            composed = unicodedata.normalize("NFC", piece)
            if composed == piece:
                self._starts += range(start, end)
                self._ends += range(start + 1, end + 1)
            else:
                self._starts += [start] * len(composed)
                self._ends += [end] * len(composed)
            pieces.append(composed)
        self.text = "".join(pieces)


def searchable(text: str) -> str:
    """Return a text in Unicode NFC and without soft hyphens."""
    return SearchableText(text).text


def marks_as_letters(text: str) -> str:
    """Replace each mark of a word, such as a vowel sign, and each joiner in it by a letter.

    The letter of a script without spaces between words is one of such a script, too.
    """
    if text.isascii():
        return text
    return _AFTER_LETTER.sub(_replace_marks, text)


def _replace_marks(match: re.Match[str]) -> str:
    characters = list(match[0])
    for i, character in enumerate(characters):
        if not is_mark(character) and character not in _JOINERS:
            break
        is_unspaced = _UNSPACED_CHARACTER.match(character)
        characters[i] = _UNSPACED_LETTER if is_unspaced else _LETTER
    return "".join(characters)


def _composable(text: str) -> Iterator[tuple[int, int]]:
    """Yield the ranges that NFC changes independently of each other, without ignored characters:
    a character with the marks and the parts of a Hangul syllable after it."""
    start = 0
    for end in range(1, len(text) + 1):
        following = text[end : end + 1]
        if following and _continues(following):
            continue
        if _IGNORED.match(text, start):
            start += 1
        if start < end:
            yield start, end
        start = end


def _continues(character: str) -> bool:
    is_hangul_part = "\u1160" <= character <= "\u11ff"
    return is_hangul_part or unicodedata.category(character).startswith("M")
