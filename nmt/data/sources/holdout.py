"""Validation and test sets held out of a corpus that has none, so that no sentence of them is trained on.

The split goes by source sentence, not by pair: everyday corpora hold many translations of one sentence. Sentences
that differ in case, punctuation or spacing only count as one. Which are held out depends on a hash of the sentence
alone, so neither the order of the corpus nor a few sentences more change who is where. A pair whose target sentence
was held out with another source is not trained on either: translated back, it would be known.

A sentence of one or two words is never held out, nor a pair that has one: "Good morning" and "Danke schön" are no test
of anything, and every translator should have learned them.
"""

from __future__ import annotations

import hashlib
import heapq
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain

from nmt.data.pairs import Pair
from nmt.data.sources.corpus import Text
from nmt.errors import DataError

MOST = 2000
SHARE = 20
WORDS = 3
"""The fewest words of a sentence that is held out, or letters where words are not divided."""
VERSION = "holdout-3"

_APOSTROPHES = re.compile("['’ʼ`´‘]")
_NOT_A_WORD = re.compile(r"[\W_]+")
_WORD = re.compile(
    r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]|\S+"
)
"""A word, or a letter of a script that is written without spaces between them (Thai, Burmese, Khmer, kana, Han)."""


def key(sentence: str) -> str:
    """Reduce a sentence to its words: compatibility characters composed, case folded, punctuation out."""
    text = unicodedata.normalize("NFKC", sentence).casefold()
    return _NOT_A_WORD.sub(" ", _APOSTROPHES.sub("", text)).strip() or " ".join(text.split())


def hold_out(text: Text, splits: Sequence[str] = ("valid", "test")) -> dict[str, Text]:
    """Divide a text into train and the held-out `splits` by its source sentences.

    Each held-out split gets 2,000 source sentences, or one in twenty where the corpus has fewer than 40,000 that are
    long enough, with one pair for each sentence: the first whose target is long enough. Every pair of other sentences
    goes to train. The text is read once to choose, once for each split and once more for train.
    """
    chosen: dict[int, str] = {}

    def labels() -> dict[int, str]:
        if not chosen:
            chosen.update(_choose(text(), splits))
        return chosen

    parts: dict[str, Text] = {"train": lambda: _rest(text, labels())}
    return parts | {split: _part(text, labels, split) for split in splits}


def _part(text: Text, labels: Callable[[], dict[int, str]], split: str) -> Text:
    return lambda: _firsts(text(), labels(), split)


def _choose(pairs: Iterable[Pair], splits: Sequence[str]) -> dict[int, str]:
    """Map the hash of each sentence to hold out to its split, test having the smallest hashes and valid the next.

    Only the 40,000 smallest hashes are kept in memory: fewer means they are all, so the twentieth is known exactly.
    """
    kept: set[int] = set()
    heap: list[int] = []  # the kept hashes, negated, so that the largest comes out first
    for source, target in pairs:
        mark = _hash(source)
        if mark is None or _hash(target) is None or mark in kept or (len(heap) == MOST * SHARE and mark >= -heap[0]):
            continue
        kept.add(mark)
        if len(heap) < MOST * SHARE:
            heapq.heappush(heap, -mark)
        else:
            kept.discard(-heapq.heapreplace(heap, -mark))
    size = len(heap) // SHARE
    if not size:
        raise DataError(
            f"{len(heap)} different sentences of {WORDS} words or more are too few to hold out a test set",
            f"files(train=..., valid=..., test=...) takes sets of yours; or bring at least {SHARE} such sentences",
        )
    ordered = sorted(kept)
    blocks = {"test": ordered[:size], "valid": ordered[size : 2 * size]}
    return {mark: split for split in splits for mark in blocks[split]}


def _rest(text: Text, labels: dict[int, str]) -> Iterator[Pair]:
    held_out = [_firsts(text(), labels, split) for split in set(labels.values())]
    targets = {_hash(target) for _, target in chain.from_iterable(held_out)}
    return (pair for pair in text() if _hash(pair[0]) not in labels and _hash(pair[1]) not in targets)


def _firsts(pairs: Iterator[Pair], labels: dict[int, str], split: str) -> Iterator[Pair]:
    seen: set[int] = set()
    for source, target in pairs:
        mark = _hash(source)
        if mark is not None and labels.get(mark) == split and mark not in seen and _hash(target) is not None:
            seen.add(mark)
            yield source, target


def _hash(sentence: str) -> int | None:
    """Hash a sentence's key to 64 bits; one too short to be held out has none."""
    words = key(sentence)
    if len(_WORD.findall(words)) < WORDS:
        return None
    return int.from_bytes(hashlib.blake2b(words.encode("utf-8", "replace"), digest_size=8).digest())
