"""The interface of what translates lines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol

from nmt.core.config import Config
from nmt.translation.result import Translation
from nmt.translation.segments import Line


class LanguageTokens(Protocol):
    """Chooses the target language of a model with several, as a `Tokenizer` does."""

    def language_token(self, text: str) -> str:
        """Return the token at the start of a source text; see `Tokenizer.language_token`."""


class LineTranslator(Protocol):
    """Translates lines: a `Translator`, a `Guard`, or one that uses a guard."""

    @property
    def config(self) -> Config:
        """The config of the model."""

    @property
    def tokenizer(self) -> LanguageTokens:
        """The tokenizer of the model."""

    @property
    def term_counts(self) -> Counter[tuple[str, bool]]:
        """How often each glossary term occurred, and whether it was applied."""

    def stream(
        self,
        chunks: Iterable[Sequence[str | Line]],
        search: str | None = None,
        *,
        details: bool = False,
        on_progress: Callable[[float], object] = lambda lines: None,
    ) -> Iterator[list[Translation]]:
        """Yield the n-best list of each line; see `Translator.stream`."""
