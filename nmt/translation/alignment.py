"""Word alignment from cross-attention.

Shape suffixes: T target tokens, S source tokens, V source words, U target words.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from nmt.search.request import Floats
from nmt.text.tokenizer import SPACE

Tokens = Sequence[str]
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


def link_words(source: Tokens, target: Tokens, attention_TS: Floats | None) -> list[Link]:
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
    is_counted_T = _is_counted(target)
    is_counted_TS = np.outer(is_counted_T, _is_counted(source))
    attention_TS = attention_TS[: len(target), : len(source)]
    attention_TS = attention_TS * is_counted_TS
    source_starts = _word_starts(source)
    target_starts = _word_starts(target)
    attention_TV = np.add.reduceat(attention_TS, source_starts, axis=1)
    attention_UV = np.add.reduceat(attention_TV, target_starts, axis=0)
    total_V = attention_UV.sum(0)
    divisor_V = np.maximum(total_V, MIN_ATTENTION)
    share_UV = attention_UV / divisor_V
    shares = share_UV.tolist()
    best_sources = share_UV.argmax(1).tolist()
    best_targets = share_UV.argmax(0).tolist()
    pairs = set(enumerate(best_sources))
    for source_word, target_word in enumerate(best_targets):
        if total_V[source_word] > MIN_ATTENTION:
            pairs.add((target_word, source_word))
    links = []
    for target_word, source_word in sorted(pairs):
        share = shares[target_word][source_word]
        links.append(Link(source_word, target_word, share))
    return links


def align(links: Iterable[Link]) -> list[tuple[int, int]]:
    """Return each target word with the source word of which it has the largest share, as (source,
    target)."""
    best: dict[int, Link] = {}
    for link in links:
        previous = best.get(link.target)
        if not previous or link.share > previous.share:
            best[link.target] = link
    best_links = best.values()
    return [(link.source, link.target) for link in best_links]


def _word_starts(tokens: Tokens) -> list[int]:
    """Return the indices of the first tokens of words."""
    starts = [i for i, token in enumerate(tokens) if token.startswith(SPACE)]
    return sorted({0, *starts})


def _is_counted(tokens: Tokens) -> list[bool]:
    """Return which tokens count: those with letters or digits, and all tokens of words without
    any."""
    starts = _word_starts(tokens)
    is_counted: list[bool] = []
    for start, end in pairwise([*starts, len(tokens)]):
        word = tokens[start:end]
        has_text = [any(map(str.isalnum, token)) for token in word]
        if not any(has_text):
            has_text = [True] * len(word)
        is_counted += has_text
    return is_counted


def best_run(
    gains: Mapping[int, float], cost: Callable[[int], float], gap_cost: float
) -> tuple[int, int] | None:
    """Return the first and last word of the contiguous run whose gains exceed the costs of its gaps
    most (Kadane 1984).

    Args:
        gains: the gain of each word that has one, by its index, in order.
        cost: returns the cost of each other word, relative to `gap_cost`.
        gap_cost: the cost of a gap of one word.
    """
    best: tuple[int, int] | None = None
    best_total = 0.0
    total = 0.0
    first = 0
    last = 0
    for i, gain in gains.items():
        # The run continues over a gap while its gains exceed the cost; these steps are no more than
        # the gains pay for.
        for gap in range(last + 1, i):
            if total <= 0:
                break
            total -= gap_cost * cost(gap)
        if total <= 0:
            first = i
            total = 0.0
        total += gain
        last = i
        if total > best_total:
            best = (first, i)
            best_total = total
    return best
