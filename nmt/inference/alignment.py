"""Word alignment from cross-attention."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nmt.data.tokenizer import SPACE
from nmt.search.request import Floats


def align(source: Sequence[str], target: Sequence[str], attention_TS: Floats | None) -> list[tuple[int, int]]:
    """Give each target word the source word that its pieces looked at most, the end of the source aside."""
    if attention_TS is None or not source or not target:
        return []
    # Sums over the pieces of each word: a word's pieces are neighbors.
    first_of_source, first_of_target = (np.unique(_words(pieces), return_index=True)[1] for pieces in (source, target))
    attention_TW = np.add.reduceat(attention_TS[: len(target), : len(source)], first_of_source, axis=1)
    attention_XW = np.add.reduceat(attention_TW, first_of_target, axis=0)
    return [(word, number) for number, word in enumerate(attention_XW.argmax(1).tolist())]


def _words(pieces: Sequence[str]) -> list[int]:
    """Return the number of the word that each piece is in."""
    words, number = [], -1
    for piece in pieces:
        number += piece.startswith(SPACE) or number < 0
        words.append(number)
    return words
