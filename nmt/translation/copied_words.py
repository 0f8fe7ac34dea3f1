"""Words that a translation copies, because the tokenizer of the model cannot spell them or does not
know them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from nmt.text.lazy_pattern import lazy_pattern
from nmt.text.normalization import UNSPACED, fold_compatibility, is_mark
from nmt.text.searchable import SearchableText
from nmt.text.spans import ProtectedSpan
from nmt.text.tokenizer import UNK, Tokenizer

MAX_ABBREVIATION = 5
"""Maximum number of letters of an abbreviation in capitals. Longer words in capitals are
emphasized."""
MAX_WORD = 100
"""Maximum number of letters and digits of a word."""
MIN_UNKNOWN = 20
"""Minimum number of letters without a piece in a text that cannot be spelled. A few are names."""
_WORD_OR_SYMBOL = lazy_pattern(
    rf"(?P<word>[^\W\d_{UNSPACED}](?:[\w'’.-]*\w)?)|[{UNSPACED}]+|[^\w\s]"
)
_LONG_WORD = lazy_pattern(rf"[^\W{UNSPACED}]{{{MAX_WORD + 1},}}")
_ABBREVIATION = lazy_pattern(
    rf"(?<![\w'’-])[A-ZÄÖÜ]{{2,{MAX_ABBREVIATION}}}(?:-[A-ZÄÖÜ]{{1,{MAX_ABBREVIATION}}})?(?![\w'’-])"
)
_BYTE = lazy_pattern(r"<0x[0-9A-F]{2}>")


class CopiedWords:
    """Finds the words of a text that a model with this tokenizer would garble."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._is_known: dict[str, bool] = {}

    def find(self, text: str) -> list[ProtectedSpan]:
        """Return words with characters that are spelled in bytes or unknown, unknown abbreviations
        in capitals, and words that are too long to be words of a language.
        """
        searchable = SearchableText(text)
        found: list[ProtectedSpan] = []
        if len(text) > MAX_WORD:
            for match in _LONG_WORD.finditer(searchable.words):
                found.append(ProtectedSpan(*match.span(), "unknown"))
        if not text.isascii():
            found += self._with_unknown_characters(searchable)
        if _ABBREVIATION.search(searchable.words):
            found += self._unknown_abbreviations(searchable.words)
        spans = []
        for span in found:
            start, end = searchable.original_span(span.start, span.end)
            spans.append(ProtectedSpan(start, end, span.kind))
        return spans

    def can_spell(self, text: str) -> bool:
        """Return whether the tokenizer has pieces for most letters of a text; always for a few
        letters."""
        if text.isascii():
            return True
        letters = list(filter(str.isalpha, text))
        num_unknown = sum(not self._knows(letter) for letter in letters)
        return num_unknown < max(MIN_UNKNOWN, len(letters) / 2)

    def _with_unknown_characters(self, text: SearchableText) -> Iterator[ProtectedSpan]:
        position = 0
        while match := _WORD_OR_SYMBOL.search(text.words, position):
            start = match.start()
            position = _end_of_marks(text.text, match.end())
            word = text.text[start:position]
            if all(map(self._knows, word)):
                continue
            if match["word"]:
                yield ProtectedSpan(start, position, "unknown")
            else:
                yield from self._unknown_runs(word, start)

    def _unknown_runs(self, text: str, offset: int) -> Iterator[ProtectedSpan]:
        """Yield the unknown characters of a text without spaces between words; neighbors are one
        span."""
        for is_known, characters in groupby(text, self._knows):
            end = offset + len(list(characters))
            if not is_known:
                yield ProtectedSpan(offset, end, "unknown")
            offset = end

    def _knows(self, character: str) -> bool:
        """Return whether the tokenizer has a piece of a character."""
        if character.isascii():
            return True
        if character not in self._is_known:
            ids = self._tokenizer.encode(fold_compatibility(character))
            pieces = self._tokenizer.ids_to_pieces(ids)
            self._is_known[character] = (
                bool(ids) and UNK not in ids and not any(map(is_byte, pieces))
            )
        return self._is_known[character]

    def _unknown_abbreviations(self, text: str) -> Iterator[ProtectedSpan]:
        """Yield abbreviations that are no piece, in capitals or lower case; not in a text that is
        all in capitals."""
        has_lower_case = any(map(str.islower, text))
        alone = text.strip(" .!?")
        for match in _ABBREVIATION.finditer(text):
            if not has_lower_case and match[0] != alone:
                continue
            forms = [match[0], match[0].lower()]
            is_word = any(len(ids) == 1 for ids in self._tokenizer.encode_batch(forms))
            if not is_word:
                yield ProtectedSpan(*match.span(), "abbreviation")


def is_byte(piece: str) -> bool:
    """Return whether a piece is a byte of a character that has no piece."""
    return _BYTE.fullmatch(piece) is not None


def _end_of_marks(text: str, start: int) -> int:
    """Return the offset after the marks of a letter."""
    end = start
    while end < len(text) and is_mark(text[end]):
        end += 1
    return end
