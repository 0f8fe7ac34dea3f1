"""Other readings of a line: a title as a sentence."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from nmt.text.language_codes import base_language
from nmt.text.titles import as_sentence, is_title
from nmt.text.tokenizer import Tokenizer
from nmt.translation.result import Translation
from nmt.translation.segments import Line

Reading = tuple[str, str]
"""A source and its best translation."""


def title_as_sentence(line: Line, tokenizer: Tokenizer, language: str) -> Line | None:
    """Return an English title with capitals in names only; None for other lines."""
    if base_language(language) != "en" or line.is_constrained or not is_title(line.text):
        return None

    def count_pieces(words: Sequence[str]) -> list[int]:
        return list(map(len, tokenizer.encode_batch(words)))

    return line.with_edits(as_sentence(line.text, count_pieces))


def is_more_probable(
    reading: Reading,
    other: Reading,
    score: Callable[[list[Reading]], list[Translation | None]],
) -> bool:
    """Return whether the tokens of a translation have a higher mean log-probability than those of
    the other reading. `score` returns None for texts that are too long."""
    first, second = score([reading, other])
    if first is None or second is None:
        return False
    return _mean_log_prob(first) > _mean_log_prob(second)


def _mean_log_prob(translation: Translation) -> float:
    return translation.log_prob / len(translation.tokens)
