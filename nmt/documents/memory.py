"""Translation memories: translations of known texts."""

from __future__ import annotations

from pathlib import Path


class TranslationMemory:
    """Finds the translation of a text that equals a source text of the memory, apart from whitespace."""

    def __init__(self, translations: dict[str, str]) -> None:
        """Create a memory from source texts and their translations."""
        self._translations = {_collapse(source): target for source, target in translations.items()}

    @classmethod
    def load(cls, path: Path, src: str, tgt: str, errors: str = "strict") -> TranslationMemory:
        """Read a TMX file. If it translates a text in several ways, the first one is used.

        Raises:
            DataError: see `nmt.data.tmx.read_tmx`.
        """
        from nmt.data.tmx import read_tmx

        translations: dict[str, str] = {}
        for source, target in read_tmx(path, src, tgt, errors):
            translations.setdefault(source, target)
        return cls(translations)

    def find(self, text: str) -> str | None:
        """Return the translation of a text, None if the memory does not have it."""
        return self._translations.get(_collapse(text))


def _collapse(text: str) -> str:
    return " ".join(text.split())
