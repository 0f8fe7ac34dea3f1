"""Limits of the work that the translation of a line or of a request may take."""

from __future__ import annotations

import re
from collections.abc import Iterable

from nmt.data.normalization import UNSPACED

TOKENS_PER_CHARACTER = 0.35
"""Prose has a token in four characters."""
MIN_TOKENS = 2000
REPAIRS_PER_CHARACTER = 0.8
"""Repairs may take about as long as the translation of prose, with a beam of 4."""
MIN_REPAIRS = 8000
"""A line of up to 140 tokens has all attempts."""
LETTERS_OF_SIGN = 3
"""Number of letters that a sign of a script without spaces, such as Han, counts as."""
_SIGN = re.compile(f"[{UNSPACED}]")


class Budget:
    """The work that a line may take. All of its parts share it, and on a server all lines of a request."""

    def __init__(self, texts: Iterable[str]) -> None:
        """Return the budget of a line, or of the texts of a request."""
        num_letters = sum(len(text) + count_extra_letters(text) for text in texts)
        self.tokens = max(MIN_TOKENS, TOKENS_PER_CHARACTER * num_letters)
        """Source tokens that may be searched with the search of the user. The others have the greedy search."""
        self.repairs = max(MIN_REPAIRS, REPAIRS_PER_CHARACTER * num_letters)
        """Work of repairs, in source tokens times the rows that are searched and scored."""

    def take_tokens(self, count: int) -> bool:
        """Subtract tokens and return True, or return False if fewer remain."""
        if count > self.tokens:
            return False
        self.tokens -= count
        return True

    def take_repair(self, work: int) -> bool:
        """Subtract the work of a repair and return True, or return False if less remains."""
        if work > self.repairs:
            return False
        self.repairs -= work
        return True


def count_extra_letters(text: str) -> int:
    """Return how many more letters a text has in an alphabet than in a script without spaces."""
    return 0 if text.isascii() else (LETTERS_OF_SIGN - 1) * len(_SIGN.findall(text))
