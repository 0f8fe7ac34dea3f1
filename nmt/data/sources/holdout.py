"""Validation and test sets held out from a corpus without such splits.

The sentences of one language are held out rather than pairs, because many corpora have several
translations of a sentence. The language is the same in both directions (`sides`), and here called
the source. Sentences that differ only in case, punctuation or whitespace are considered equal. A
hash of the sentence decides whether it is held out, so the result does not depend on the order of
the corpus and changes little when the corpus grows. Training pairs whose target sentence is held
out with another source are dropped, so that the reverse direction is not contaminated.

Sentences of one or two words ("Good morning", "Danke schön") are never held out: they are
uninformative as test sentences, and every model should learn them. Neither are whole documents in a
line, which crawled text has.
"""

from __future__ import annotations

import heapq
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cache

from nmt.core.console import progress
from nmt.core.errors import DataError
from nmt.data.pairs import Pair, UnequalLineCountsError, hash_text
from nmt.data.sources.corpus import PairReader
from nmt.text.normalization import UNSPACED, is_mark

MAX_SENTENCES = 2000
"""Maximum number of sentences per held-out split."""
MIN_RATIO = 20
"""A held-out split has at most one in this many source sentences."""
MIN_WORDS = 3
"""Minimum number of words of a held-out sentence, or of letters in scripts without spaces."""
MAX_CHARACTERS = 2000
"""Maximum length of a held-out sentence. A validation with a longer one may not fit in memory."""
VERSION = "holdout-3"

_APOSTROPHES = re.compile("['’ʼ`´‘]")
_NON_WORD = re.compile(r"[\W_]+")
_WORD_OR_LETTER = re.compile(rf"[{UNSPACED}]|\S+")


def sentence_key(sentence: str) -> str:
    """Return the words of a sentence: NFKC-normalized and case-folded, without punctuation."""
    text = unicodedata.normalize("NFKC", sentence).casefold()
    without_apostrophes = _APOSTROPHES.sub("", text)
    words = _NON_WORD.sub(_remove_punctuation, without_apostrophes).split()
    return " ".join(words or text.split())


def _remove_punctuation(match: re.Match[str]) -> str:
    """Replace characters other than letters and digits by spaces, except vowel signs and other
    marks of letters."""
    run = match[0]
    if run.isascii():
        return " "
    return "".join(c if is_mark(c) else " " for c in run)


def sides(first: str, second: str) -> tuple[str, str]:
    """Return two languages, the one whose sentences are held out first: English, or the first in
    alphabetical order."""
    held_out, other = sorted((first, second), key=lambda language: (language != "en", language))
    return held_out, other


def hold_out(read: PairReader, splits: Sequence[str] = ("valid", "test")) -> dict[str, PairReader]:
    """Divide a corpus into train and the held-out `splits`; return a reader for each.

    A held-out split has 2,000 source sentences, or one in twenty if fewer than 40,000 source
    sentences are long enough. It has one pair per sentence: the first with a target that is long
    enough and not too long. Train has the pairs of all other sentences, except those whose target
    is held out with another source. The corpus is read once to select the sentences, once per
    held-out split and twice for train.
    """

    @cache
    def hashes() -> dict[str, set[int]]:
        with progress(
            None, "selecting held-out sentences", " pairs", unit_scale=True, iterable=read()
        ) as pairs:
            return _select(_until_unequal(pairs), splits)

    def held_out_reader(split: str) -> PairReader:
        return lambda: _read_held_out(read(), hashes()[split])

    def read_train() -> Iterator[Pair]:
        return _read_train(read, set[int]().union(*hashes().values()))

    return {"train": read_train} | {split: held_out_reader(split) for split in splits}


def _select(pairs: Iterable[Pair], splits: Sequence[str]) -> dict[str, set[int]]:
    """Return the hashes of the sentences of the held-out splits: the smallest are test, the next
    ones valid.

    Only the 40,000 smallest hashes are kept in memory. If there are fewer, their number determines
    the size of the splits.
    """
    hashes: set[int] = set()
    heap: list[int] = []  # the same hashes, negated, so that the largest is at the top
    for source, target in pairs:
        value = _hash(source)
        if value is None or _hash(target) is None or value in hashes:
            continue
        is_full = len(heap) == MAX_SENTENCES * MIN_RATIO
        if is_full and value >= -heap[0]:
            continue
        hashes.add(value)
        if is_full:
            hashes.discard(-heapq.heapreplace(heap, -value))
        else:
            heapq.heappush(heap, -value)
    size = len(heap) // MIN_RATIO
    if not size:
        raise DataError(
            f"{len(heap)} different sentences of {MIN_WORDS} words or more are too few to hold out"
            " a test set",
            "specify your sets with files(train=..., valid=..., test=...), or add sentences: at"
            f" least {MIN_RATIO}",
        )
    ordered = sorted(hashes)
    held_out = {"test": ordered[:size], "valid": ordered[size : 2 * size]}
    return {split: set(held_out[split]) for split in splits}


def _read_train(read: PairReader, held_out: set[int]) -> Iterator[Pair]:
    """Yield the pairs of which no side is held out."""
    held_out_pairs = _read_held_out(_until_unequal(read()), held_out)
    targets = {_hash(target) for _, target in held_out_pairs}
    return (
        pair for pair in read() if _hash(pair[0]) not in held_out and _hash(pair[1]) not in targets
    )


def _until_unequal(pairs: Iterable[Pair]) -> Iterator[Pair]:
    """Yield pairs up to the end of the shorter side. The last reading of a split raises the error,
    after its pairs."""
    with suppress(UnequalLineCountsError):
        yield from pairs


def _read_held_out(pairs: Iterator[Pair], held_out: set[int]) -> Iterator[Pair]:
    """Yield the first pair of each held-out sentence that has a target that is long enough."""
    remaining = set(held_out)
    for source, target in pairs:
        value = _hash(source)
        if value in remaining and _hash(target) is not None:
            remaining.remove(value)
            yield source, target


def _hash(sentence: str) -> int | None:
    """Return a 64-bit hash of the sentence key, or None if the sentence is too short or too long to
    be held out."""
    if len(sentence) > MAX_CHARACTERS:
        return None
    words = sentence_key(sentence)
    if len(_WORD_OR_LETTER.findall(words)) < MIN_WORDS:
        return None
    return hash_text(words)
