"""Sentences of test sets, which training data must not have."""

from __future__ import annotations

from collections.abc import Iterable

from nmt.data.sources.holdout import sentence_key
from nmt.evaluate.test_sets import load_test_pairs


def tested_sentences(names: Iterable[str], source: str, target: str) -> set[str]:
    """Return the keys of the sentences of test sets, in both languages; see `sentence_key`.

    The names are those of `nmt data check --test`.
    """
    keys: set[str] = set()
    for name in names:
        for _, pairs in load_test_pairs(name, (source, target), "strict"):
            keys.update(sentence_key(side) for pair in pairs for side in pair)
    return keys
