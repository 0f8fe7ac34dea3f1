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
import itertools
import re
import unicodedata
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from typing import TypeVar

from nmt.core.console import progress
from nmt.core.errors import DataError
from nmt.core.processes import map_chunks
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
MIN_PARALLEL_PAIRS = 50_000
"""Pairs that one process hashes before others are started, which takes about a second."""
VERSION = "holdout-3"
Result = TypeVar("Result")

_APOSTROPHES = re.compile("['’ʼ`´‘]")
_ASCII_NON_WORD = re.compile(r"[^\w\x80-\U0010ffff]+|_+")
_OTHER_NON_WORD = re.compile(r"[^\w\x00-\x7f]+")
_WORD_OR_LETTER = re.compile(rf"[{UNSPACED}]|\S+")


def sentence_key(sentence: str) -> str:
    """Return the words of a sentence: NFKC-normalized and case-folded, without punctuation."""
    text = unicodedata.normalize("NFKC", sentence).casefold()
    without_apostrophes = _APOSTROPHES.sub("", text)
    spaced = _ASCII_NON_WORD.sub(" ", without_apostrophes)
    if not spaced.isascii():
        spaced = _OTHER_NON_WORD.sub(_remove_punctuation, spaced)
    return " ".join(spaced.split() or text.split())


def _remove_punctuation(match: re.Match[str]) -> str:
    """Replace characters by spaces, except vowel signs and other marks of letters."""
    return "".join(c if is_mark(c) else " " for c in match[0])


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
    is held out with another source. The corpus is read once to select the pairs, and once for
    train.
    """

    @cache
    def selection() -> _Selection:
        with progress(
            None, "selecting held-out sentences", " pairs", unit_scale=True, iterable=read()
        ) as pairs:
            return _select(pairs, splits)

    def held_out_reader(split: str) -> PairReader:
        return lambda: selection().read(split)

    return {"train": lambda: _read_train(read(), selection())} | {
        split: held_out_reader(split) for split in splits
    }


@dataclass
class _Selection:
    """The pairs of held-out splits."""

    pairs: dict[str, list[Pair]] = field(default_factory=dict)
    """Pairs by split, in the order of the corpus."""
    sources: set[int] = field(default_factory=set)
    """Hashes of the held-out sentences."""
    targets: set[int | None] = field(default_factory=set)
    """Hashes of the other sides of their pairs."""
    error: UnequalLineCountsError | None = None
    """The error at the end of the corpus, which the last reading of a split raises, after its
    pairs."""

    def read(self, split: str) -> Iterator[Pair]:
        """Yield the pairs of a split."""
        yield from self.pairs[split]
        if self.error:
            raise self.error


def _select(pairs: Iterable[Pair], splits: Sequence[str]) -> _Selection:
    """Select the pairs of the held-out splits: those with the smallest hashes are test, the next
    ones valid. If there are few, their number determines the size of the splits."""
    selection = _Selection()
    candidates = _find_candidates(_until_unequal(pairs, selection))
    size = len(candidates) // MIN_RATIO
    if not size:
        raise DataError(
            f"{len(candidates)} different sentences of {MIN_WORDS} words or more are too few to"
            " hold out a test set",
            "specify your sets with files(train=..., valid=..., test=...), or add sentences: at"
            f" least {MIN_RATIO}",
        )
    ordered = sorted(candidates)
    held_out = {"test": ordered[:size], "valid": ordered[size : 2 * size]}
    for split in splits:
        chosen = sorted(candidates[value] for value in held_out[split])
        selection.pairs[split] = [pair for _, pair in chosen]
        selection.sources.update(held_out[split])
        selection.targets.update(_hash(target) for _, target in selection.pairs[split])
    return selection


def _find_candidates(pairs: Iterable[Pair]) -> dict[int, tuple[int, Pair]]:
    """Return the position and the first pair of the sentences with the 40,000 smallest hashes, by
    hash. Only these are kept in memory."""
    max_candidates = MAX_SENTENCES * MIN_RATIO
    candidates: dict[int, tuple[int, Pair]] = {}
    heap: list[int] = []  # the same hashes, negated, so that the largest is at the top
    limit = 1 << 64
    for position, (pair, value) in enumerate(_map_pairs(_hash_candidates, pairs)):
        if value is None or value >= limit or value in candidates:
            continue
        candidates[value] = position, pair
        if len(candidates) <= max_candidates:
            heapq.heappush(heap, -value)
        else:
            del candidates[-heapq.heapreplace(heap, -value)]
        if len(heap) == max_candidates:
            limit = -heap[0]
    return candidates


def _read_train(pairs: Iterable[Pair], selection: _Selection) -> Iterator[Pair]:
    """Yield the pairs of which no side is held out."""
    keep = partial(_are_kept, sources=selection.sources, targets=selection.targets)
    for pair, is_kept in _map_pairs(keep, _until_unequal(pairs, selection)):
        if is_kept:
            yield pair
    if selection.error:
        raise selection.error


def _until_unequal(pairs: Iterable[Pair], selection: _Selection) -> Iterator[Pair]:
    """Yield pairs up to the end of the shorter side, and keep the error."""
    try:
        yield from pairs
    except UnequalLineCountsError as error:
        selection.error = error


def _map_pairs(
    function: Callable[[Sequence[Pair]], Sequence[Result]], pairs: Iterable[Pair]
) -> Iterator[tuple[Pair, Result]]:
    """Yield each pair with its result of a function of many pairs, which several processes compute
    if there are many."""
    remaining = iter(pairs)
    first = list(itertools.islice(remaining, MIN_PARALLEL_PAIRS))
    yield from zip(first, function(first), strict=True)
    computed, returned = itertools.tee(remaining)
    results = itertools.chain.from_iterable(map_chunks(function, computed))
    yield from zip(returned, results, strict=False)


def _hash_candidates(pairs: Sequence[Pair]) -> list[int | None]:
    """Return the hash of each source, or None if one of the sides cannot be held out."""
    hashes = []
    for source, target in pairs:
        value = _hash(source)
        if value is not None and _hash(target) is None:
            value = None
        hashes.append(value)
    return hashes


def _are_kept(
    pairs: Sequence[Pair], *, sources: Collection[int], targets: Collection[int | None]
) -> list[bool]:
    """Return for each pair whether no side is held out."""
    return [
        _hash(source) not in sources and _hash(target) not in targets for source, target in pairs
    ]


def _hash(sentence: str) -> int | None:
    """Return a 64-bit hash of the sentence key, or None if the sentence is too short or too long to
    be held out."""
    if len(sentence) > MAX_CHARACTERS:
        return None
    words = sentence_key(sentence)
    is_ascii = words.isascii()
    num_words = words.count(" ") + 1 if is_ascii else len(_WORD_OR_LETTER.findall(words))
    if num_words < MIN_WORDS:
        return None
    return hash_text(words)
