"""Translation memories: translations of known texts."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from nmt.text.normalization import normalize


class TranslationMemory:
    """Finds the translation of a text that equals a source text of the memory, apart from
    whitespace, invisible characters, and how letters with marks are encoded."""

    def __init__(self, pairs: Iterable[tuple[str, str]]) -> None:
        """Create a memory from source texts and their translations; the first translation of a text
        is used."""
        self._translations: dict[str, str] = {}
        for source, target in pairs:
            self._translations.setdefault(normalize(source), target)

    @classmethod
    def load(cls, path: Path, src: str, tgt: str, errors: str = "strict") -> TranslationMemory:
        """Read a TMX file.

        Raises:
            DataError: see `nmt.data.tmx.read_tmx`.
        """
        from nmt.data.tmx import read_tmx

        return cls(read_tmx(path, src, tgt, errors))

    def find(self, text: str) -> str | None:
        """Return the translation of a text, None if the memory does not have it."""
        return self._translations.get(normalize(text))
