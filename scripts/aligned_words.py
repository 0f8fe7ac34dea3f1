"""Pairs of words that are translations of each other, from the words that occur together in
sentence pairs."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import product

from nmt.data.pairs import Pair


def aligned_words(pairs: Iterable[Pair], min_dice: float, min_count: int = 4) -> Iterator[Pair]:
    """Yield the pairs of words that are each other's best partners by the Dice coefficient (Dice
    1945).

    The first word of a sentence counts in lower case, unless it is German: nouns are capitalized.

    Args:
        pairs: sentence pairs, the second in German.
        min_dice: smallest coefficient, 2 n(s, t) / (n(s) + n(t)), where n counts sentences.
        min_count: smallest number of sentence pairs that have both words.
    """
    sources: Counter[str] = Counter()
    targets: Counter[str] = Counter()
    both: Counter[Pair] = Counter()
    for source, target in pairs:
        source_words, target_words = _words(source[:1].lower() + source[1:]), _words(target)
        sources.update(source_words)
        targets.update(target_words)
        both.update(product(source_words, target_words))
    best_target: dict[str, tuple[float, str]] = {}
    best_source: dict[str, tuple[float, str]] = {}
    for (source, target), count in both.items():
        dice = 2 * count / (sources[source] + targets[target])
        if count >= min_count and dice >= min_dice:
            best_target[source] = max(best_target.get(source, (0.0, "")), (dice, target))
            best_source[target] = max(best_source.get(target, (0.0, "")), (dice, source))
    return (
        (source, target)
        for source, (_, target) in best_target.items()
        if best_source[target][1] == source
    )


def _words(text: str) -> list[str]:
    """Return the different words, in a fixed order."""
    return list(dict.fromkeys(re.findall(r"(?<![\w'’])[^\W\d_]{2,}(?![\w'’])", text)))
