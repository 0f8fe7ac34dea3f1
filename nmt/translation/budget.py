"""Limits of the work that the translation of a line or of a request may take.

Whatever a text is, it takes at most about 2.5 times as long as prose of its length. The figures are
measured with `en-de`.
"""

from __future__ import annotations

from nmt.text.lazy_pattern import lazy_pattern
from nmt.text.normalization import UNSPACED

TOKENS_PER_LETTER = 0.36
"""Maximum number of tokens per letter of prose, with an end token for each line."""
MAX_DENSITY = 2.0
"""Maximum factor of the work of a text with more tokens than prose."""
SHORT_TEXT = 5
"""Number of further letters for which a text may have tokens as dense as in prose."""
LETTERS_OF_SIGN = 3
"""Number of letters that a sign of a script without spaces, such as Han, counts as."""
_SIGN = lazy_pattern(f"[{UNSPACED}]")


class Allowance:
    """An amount of work that remains."""

    def __init__(self, work: float, per_letter: float) -> None:
        self.work, self.per_letter = work, per_letter

    def take(self, work: float) -> bool:
        """Subtract work and return True, or return False if less remains."""
        if work > self.work:
            return False
        self.work -= work
        return True


class Budget:
    """The work that a line may take. All of its parts share it, and on a server all lines of a
    request."""

    def __init__(self) -> None:
        self.searches = Allowance(300, TOKENS_PER_LETTER)
        """Source tokens that may be searched with the search of the user."""
        self.quick_searches = Allowance(300, 0.25)
        """Further tokens that may be searched with the greedy search. The others are not
        searched."""
        self.repairs = Allowance(4000, 0.1)
        """Source tokens times rows. Nearly all sentences have all attempts."""

    def extend(self, text: str) -> None:
        """Add the work that the translation of a text may take."""
        num_letters = len(text) + count_extra_letters(text)
        for allowance in (self.searches, self.quick_searches, self.repairs):
            allowance.work += allowance.per_letter * num_letters


def search_work(text: str, num_tokens: int) -> float:
    """Return the number of tokens of a text and its end, and more for a text with more tokens than
    prose, unless it is short, because beam search finds no end of it."""
    num_letters = len(text) + count_extra_letters(text) + SHORT_TEXT
    density = (num_tokens + 1) / (TOKENS_PER_LETTER * num_letters)
    return (num_tokens + 1) * min(max(1.0, density), MAX_DENSITY)


def count_extra_letters(text: str) -> int:
    """Return how many more letters a text has in an alphabet than in a script without spaces."""
    return 0 if text.isascii() else (LETTERS_OF_SIGN - 1) * len(_SIGN.findall(text))
