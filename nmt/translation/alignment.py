"""Word alignment from cross-attention.

Shape suffixes: T target tokens, S source tokens, V source words, U target words.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from nmt.search.request import Floats
from nmt.text.tokenizer import SPACE

MIN_ATTENTION = 1e-3
"""The shares of a source word that receives less attention in total are not normalized: they would
be noise."""


class Link(NamedTuple):
    """A source word and a target word of which at least one has the other as its best
    counterpart."""

    source: int
    target: int
    share: float
    """The target word's share of the attention to the source word."""


def link_words(
    source: Sequence[str], target: Sequence[str], attention_TS: Floats | None
) -> list[Link]:
    """Link each target word to the source word of which it has the largest share, and each source
    word vice versa.

    Shares are used, because words such as articles receive much attention from all. Attention to
    the end token is ignored, and so is punctuation next to words, because final periods attend to
    each other, whatever word is before them.

    Args:
        source: source tokens, without the end token.
        target: target tokens, without the end token.
        attention_TS: cross-attention weights; None returns no links.
    """
    if attention_TS is None or not source or not target:
        return []
    # The tokens of a word are adjacent, so a word's attention is the sum over a range.
    source_starts, target_starts = (
        np.unique(_word_indices(x), return_index=True)[1] for x in (source, target)
    )
    attention_TS = attention_TS[: len(target), : len(source)] * np.outer(
        _is_counted(target), _is_counted(source)
    )
    attention_TV = np.add.reduceat(attention_TS, source_starts, axis=1)
    attention_UV = np.add.reduceat(attention_TV, target_starts, axis=0)
    total_V = attention_UV.sum(0)
    share_UV = attention_UV / np.maximum(total_V, MIN_ATTENTION)
    pairs = set(enumerate(share_UV.argmax(1).tolist()))
    for source_word, target_word in enumerate(share_UV.argmax(0).tolist()):
        if total_V[source_word] > MIN_ATTENTION:
            pairs.add((target_word, source_word))
    links = []
    for target_word, source_word in sorted(pairs):
        links.append(Link(source_word, target_word, float(share_UV[target_word, source_word])))
    return links


def align(links: Iterable[Link]) -> list[tuple[int, int]]:
    """Return each target word with the source word of which it has the largest share, as (source,
    target)."""
    best: dict[int, Link] = {}
    for link in links:
        if link.target not in best or link.share > best[link.target].share:
            best[link.target] = link
    return [(link.source, link.target) for link in best.values()]


def _word_indices(tokens: Sequence[str]) -> list[int]:
    """Return the index of each token's word."""
    indices, index = [], -1
    for token in tokens:
        index += token.startswith(SPACE) or index < 0
        indices.append(index)
    return indices


def _is_counted(tokens: Sequence[str]) -> list[bool]:
    """Return which tokens count: those with letters or digits, and all tokens of words without
    any."""
    has_text, words = [any(map(str.isalnum, token)) for token in tokens], _word_indices(tokens)
    words_with_text = {word for word, is_text in zip(words, has_text, strict=True) if is_text}
    return [
        is_text or word not in words_with_text
        for word, is_text in zip(words, has_text, strict=True)
    ]
