"""Word alignment from cross-attention.

Shape suffixes: T target tokens, S source tokens, V source words, U target words.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nmt.data.tokenizer import SPACE
from nmt.search.request import Floats


def align(source: Sequence[str], target: Sequence[str], attention_TS: Floats | None) -> list[tuple[int, int]]:
    """Align each target word to the source word that receives most of its attention, ignoring the end token.

    Args:
        source: source tokens, without the end token.
        target: target tokens, without the end token.
        attention_TS: cross-attention weights; None returns no alignment.
    """
    if attention_TS is None or not source or not target:
        return []
    # The tokens of a word are adjacent, so a word's attention is the sum over a range.
    source_starts, target_starts = (np.unique(_word_indices(x), return_index=True)[1] for x in (source, target))
    attention_TV = np.add.reduceat(attention_TS[: len(target), : len(source)], source_starts, axis=1)
    attention_UV = np.add.reduceat(attention_TV, target_starts, axis=0)
    return [(source_word, target_word) for target_word, source_word in enumerate(attention_UV.argmax(1).tolist())]


def _word_indices(tokens: Sequence[str]) -> list[int]:
    """Return the index of each token's word."""
    indices, index = [], -1
    for token in tokens:
        index += token.startswith(SPACE) or index < 0
        indices.append(index)
    return indices
