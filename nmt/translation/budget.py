"""Limits of the work that the translation of a line or of a request may take."""

from __future__ import annotations

import re

from nmt.text.normalization import UNSPACED

TOKENS_PER_LETTER = 0.33
"""Prose has a token in four letters."""
MIN_TOKENS = 500
QUICK_TOKENS_PER_LETTER = 0.2
REPAIRS_PER_LETTER = 0.1
MIN_REPAIRS = 4000
"""Nearly all sentences have all attempts."""
LETTERS_OF_SIGN = 3
"""Number of letters that a sign of a script without spaces, such as Han, counts as."""
_SIGN = re.compile(f"[{UNSPACED}]")


class Budget:
    """The work that a line may take. All of its parts share it, and on a server all lines of a
    request."""

    def __init__(self) -> None:
        self.tokens: float = MIN_TOKENS
        """Source tokens that may be searched with the search of the user."""
        self.quick_tokens: float = MIN_TOKENS
        """Further tokens that may be searched with the greedy search. The others are not
        searched."""
        self.repairs: float = MIN_REPAIRS
        """Work of repairs, in source tokens times the rows that are searched and scored."""

    def extend(self, text: str) -> None:
        """Add the work that the translation of a text may take."""
        num_letters = len(text) + count_extra_letters(text)
        self.tokens += TOKENS_PER_LETTER * num_letters
        self.quick_tokens += QUICK_TOKENS_PER_LETTER * num_letters
        self.repairs += REPAIRS_PER_LETTER * num_letters

    def take_tokens(self, count: int) -> bool:
        """Subtract tokens and return True, or return False if fewer remain."""
        if count > self.tokens:
            return False
        self.tokens -= count
        return True

    def take_quick_tokens(self, count: int) -> bool:
        """Subtract tokens of the greedy search and return True, or return False if fewer remain."""
        if count > self.quick_tokens:
            return False
        self.quick_tokens -= count
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
