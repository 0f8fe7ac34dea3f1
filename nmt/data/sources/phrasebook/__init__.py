"""The phrase book: nearly forty thousand everyday sentences in English and German, made by a small grammar.

    numbers, german, english   morphology
    words, lexicon             nouns, adjectives and people in both languages
    clause, predicates         one clause said in two word orders; what people do, are and have
    patterns                   the sentences, by what they teach
    sampling                   choice by a stable hash

Every English sentence has one German translation. English marks what German needs: plain "you" is du, "you two" and
"children" are ihr, a name with Mr or Mrs is Sie.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache

from nmt.data.sources.phrasebook.clause import Pair
from nmt.data.sources.phrasebook.patterns import PATTERNS, PINNED
from nmt.data.sources.phrasebook.sampling import rank
from nmt.errors import DataError, suggest

VERSION = 1
SPLITS = ("train", "valid", "test")
HELD_OUT = 1000  # pairs in valid and in test
FAMILIAR = 8  # a held-out sentence has only words that occur this often among all


def pairs(split: str) -> Iterator[Pair]:
    """Yield the (English, German) pairs of train, valid or test, always in the same shuffled order.

    Raises:
        DataError: there is no such split.
    """
    if split not in SPLITS:
        raise DataError(f"the phrase book has no split '{split}'", suggest(split, SPLITS))
    yield from _splits()[split]


def bare(text: str) -> str:
    """Reduce a sentence to its lower-case words, so that a split cannot leak through case or punctuation."""
    return " ".join(re.findall(r"[\w]+", text.lower().replace("'", "")))


def words(text: str) -> list[str]:
    """List the lower-case words of a sentence."""
    return re.findall(r"[\w'-]+", text.lower())


@cache
def _splits() -> dict[str, list[Pair]]:
    """Share the sentences out; those with one German translation (I'm, I am) stay together."""
    seen: set[str] = set()
    pinned = [pair for pattern in PINNED for pair in _fresh(pattern(), seen)]
    others = [pair for pattern in PATTERNS for pair in _fresh(pattern(), seen)]
    count = Counter(word for pair in [*pinned, *others] for text in pair for word in set(words(text)))
    groups: dict[str, list[Pair]] = {}
    for pair in others:
        groups.setdefault(bare(pair[1]), []).append(pair)
    result: dict[str, list[Pair]] = {"train": pinned, "valid": [], "test": []}
    known_german = {bare(german) for _, german in pinned}
    for german in sorted(groups, key=rank):
        group = groups[german]
        familiar = all(count[word] >= FAMILIAR for pair in group for text in pair for word in words(text))
        free = familiar and german not in known_german
        rooms = [split for split in ("test", "valid") if free and len(result[split]) + len(group) <= HELD_OUT]
        result[rooms[0] if rooms else "train"] += group
    return {split: sorted(made, key=lambda pair: rank("order", *pair)) for split, made in result.items()}


def _fresh(made: Iterable[Pair], seen: set[str]) -> Iterator[Pair]:
    """Pass the first translation of each English sentence on."""
    for pair in made:
        key = bare(pair[0])
        if key not in seen:
            seen.add(key)
            yield pair
