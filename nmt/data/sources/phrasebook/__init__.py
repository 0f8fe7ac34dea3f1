"""The phrase book: some thirty thousand everyday sentences in English and German, made by a small grammar.

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
    pinned: list[Pair] = []
    others: list[Pair] = []
    seen: set[str] = set()
    for pattern in PINNED:
        pinned += _fresh(pattern(), seen)
    taken = {bare(de) for _, de in pinned}
    for pattern in PATTERNS:
        others += _fresh(pattern(), seen)
    others.sort(key=lambda pair: rank(*pair))
    count = Counter(word for pair in [*pinned, *others] for word in {*words(pair[0]), *words(pair[1])})
    result: dict[str, list[Pair]] = {"train": [], "valid": [], "test": []}
    home = dict.fromkeys(taken, "train")  # sentences with one German translation stay together
    for pair in others:
        german = bare(pair[1])
        if german not in home:
            known = all(count[word] >= FAMILIAR for text in pair for word in words(text))
            room = [split for split in ("test", "valid") if known and len(result[split]) < HELD_OUT]
            home[german] = room[0] if room else "train"
        result[home[german]].append(pair)
    result["train"] = sorted([*pinned, *result["train"]], key=lambda pair: rank("order", *pair))
    return result


def _fresh(made: Iterable[Pair], seen: set[str]) -> Iterator[Pair]:
    """Pass the first translation of each English sentence on."""
    for pair in made:
        key = bare(pair[0])
        if key not in seen:
            seen.add(key)
            yield pair
