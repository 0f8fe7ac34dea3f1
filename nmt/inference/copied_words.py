"""Words that a translation copies, because the tokenizer of the model cannot spell them or does not know them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from nmt.data.normalization import UNSPACED, fold_compatibility, is_mark
from nmt.data.spans import ProtectedSpan
from nmt.data.tokenizer import UNK, Tokenizer

MAX_ABBREVIATION = 5
"""Maximum number of letters of an abbreviation in capitals. Longer words in capitals are emphasized."""
_WORD = re.compile(rf"[^\W\d_{UNSPACED}](?:[\w'’.-]*\w)?")
_OTHER = re.compile(rf"[{UNSPACED}]+|[^\w\s]")
_ABBREVIATION = re.compile(
    rf"(?<![\w'’-])[A-ZÄÖÜ]{{2,{MAX_ABBREVIATION}}}(?:-[A-ZÄÖÜ]{{1,{MAX_ABBREVIATION}}})?(?![\w'’-])"
)
_BYTE = re.compile(r"<0x[0-9A-F]{2}>")


class CopiedWords:
    """Finds the words of a text that a model with this tokenizer would garble."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._is_known: dict[str, bool] = {}

    def find(self, text: str) -> list[ProtectedSpan]:
        """Return words with characters that are spelled in bytes or unknown, and unknown abbreviations in capitals."""
        spans: list[ProtectedSpan] = []
        if not text.isascii():
            spans += self._with_unknown_characters(text)
        if _ABBREVIATION.search(text):
            spans += self._unknown_abbreviations(text)
        return spans

    def _with_unknown_characters(self, text: str) -> Iterator[ProtectedSpan]:
        for word in _WORD.finditer(text):
            if not all(map(self._knows, word[0])):
                yield ProtectedSpan(*word.span(), "unknown")
        for match in _OTHER.finditer(text):
            yield from self._unknown_runs(match[0], match.start())

    def _unknown_runs(self, text: str, offset: int) -> Iterator[ProtectedSpan]:
        """Yield the unknown characters of a text without spaces between words; neighbors are one span."""
        start: int | None = None
        for i, character in enumerate([*text, ""]):
            is_unknown = character != "" and not self._knows(character)
            if is_unknown and start is None:
                start = i
            elif not is_unknown and start is not None:
                yield ProtectedSpan(offset + start, offset + i, "unknown")
                start = None

    def _knows(self, character: str) -> bool:
        """Return whether the tokenizer has a piece of a character."""
        if character.isascii() or is_mark(character):
            return True
        if character not in self._is_known:
            ids = self._tokenizer.encode(fold_compatibility(character))
            pieces = self._tokenizer.ids_to_pieces(ids)
            self._is_known[character] = bool(ids) and UNK not in ids and not any(map(_BYTE.fullmatch, pieces))
        return self._is_known[character]

    def _unknown_abbreviations(self, text: str) -> Iterator[ProtectedSpan]:
        """Yield abbreviations that are no piece, in capitals or lower case; not in a text that is all in capitals."""
        has_lower_case = any(map(str.islower, text))
        alone = text.strip(" .!?")
        for match in _ABBREVIATION.finditer(text):
            if not has_lower_case and match[0] != alone:
                continue
            forms = [match[0], match[0].lower()]
            is_word = any(len(ids) == 1 for ids in self._tokenizer.encode_batch(forms))
            if not is_word:
                yield ProtectedSpan(*match.span(), "abbreviation")
