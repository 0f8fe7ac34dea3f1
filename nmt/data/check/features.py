"""Features of sentence pairs: problems of a single pair, and hashes and digests to compare it with others.

Shape suffix: N pairs.
"""

from __future__ import annotations

import functools
import re
import unicodedata
import zlib
from collections import Counter
from collections.abc import Container, Sequence
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nmt.data.check import checks
from nmt.data.check.checks import BITS, bits_with_fix
from nmt.data.check.encoding import encoding_problems, repair_encoding
from nmt.data.check.languages import is_wrong_language
from nmt.data.check.minhash import NUM_HASHES, hash_words, minhash, normalized_words
from nmt.data.check.overlap_index import OverlapIndex, Words
from nmt.data.clean import is_blank
from nmt.data.normalization import UNSPACED, estimate_num_words
from nmt.data.pairs import Pair, hash_text

NUM_BUCKETS = 256
"""Buckets into which word stems are hashed for the alignment."""
STEM_LENGTH = 5
"""Letters of a stem: enough to distinguish words, few enough that inflected forms and cognates agree."""
MIN_COPY_WORDS = 4
"""Minimum number of words of an untranslated pair; short names and commands are equal in many languages."""
MAX_CHANGED_FRACTION = 0.2
"""Maximum fraction of words that differ in an untranslated pair."""

RECORD = np.dtype(
    [
        ("problems", "<u4"),
        ("chars", "<u2", 2),
        ("pair", "<u8"),
        ("source", "<u8"),
        ("digest", "u1", NUM_HASHES),
        ("words", "u1", (2, NUM_BUCKETS // 8)),
        ("test", "<i4"),
    ]
)
"""Features of a pair. `pair` and `source` are hashes of the text, `digest` is a b-bit MinHash (Li and König 2010) of
the words of both sides, `words` are bitmaps of their stems, `test` is the index of the overlapping test sentence
or -1."""
Records = NDArray[Any]

_UNSPACED = re.compile(f"[{UNSPACED}]")


def extract_features(
    pairs: Sequence[Pair], languages: tuple[str, str], overlap_index: OverlapIndex, ignored: Container[str] = ()
) -> Records:
    """Return the record of each pair; all features except encoding problems are those of the repaired text.

    The language of a side whose code is empty is not checked. `ignored` are names of checks that repair nothing.
    """
    records = np.zeros(len(pairs), RECORD)
    problems = [encoding_problems(source) | encoding_problems(target) for source, target in pairs]
    rewrite_bits = bits_with_fix("rewrite")
    pairs = [
        (repair_encoding(pair[0], ignored), repair_encoding(pair[1], ignored)) if bits & rewrite_bits else pair
        for pair, bits in zip(pairs, problems, strict=True)
    ]
    sides = [[normalized_words(pair[side]) for pair in pairs] for side in (0, 1)]
    digests = [minhash(sentences, side) for side, sentences in enumerate(sides)]
    records["digest"] = np.minimum(*digests).astype(np.uint8)
    for side, sentences in enumerate(sides):
        records["chars"][:, side] = [min(len(pair[side]), 0xFFFF) for pair in pairs]
        records["words"][:, side] = _stem_bitmaps(sentences)
    records["pair"] = [hash_text(f"{len(source)} {source}{target}") for source, target in pairs]
    records["source"] = [hash_words(words) for words in sides[0]]
    records["problems"] = [
        bits | _pair_problem(pair, words, languages)
        for bits, pair, words in zip(problems, pairs, zip(*sides, strict=True), strict=True)
    ]
    records["test"] = -1
    if overlap_index.places:
        _mark_test_overlap(records, sides, [digest.astype(np.uint8) for digest in digests], overlap_index)
    return records


def _pair_problem(pair: Pair, words: tuple[Sequence[str], Sequence[str]], languages: tuple[str, str]) -> int:
    if any(map(is_blank, pair)):
        return BITS[checks.BLANK.name]
    if is_copy(*words):
        return BITS[checks.UNTRANSLATED.name]
    if any(map(is_wrong_language, pair, languages)):
        return BITS[checks.WRONG_LANGUAGE.name]
    return 0


def _mark_test_overlap(
    records: Records, sides: Sequence[Words], digests: Sequence[NDArray[np.uint8]], index: OverlapIndex
) -> None:
    near = index.find_near(sides, digests)
    for i, words in enumerate(zip(*sides, strict=True)):
        exact = index.find_exact(*words)
        if exact >= 0:
            records["problems"][i] |= BITS[checks.TEST_OVERLAP.name]
            records["test"][i] = exact
        elif i in near:
            records["problems"][i] |= BITS[checks.NEAR_TEST_OVERLAP.name]
            records["test"][i] = near[i]


def is_copy(source: Sequence[str], target: Sequence[str]) -> bool:
    """Return whether the target has all or nearly all words of the source."""
    length = max(len(source), len(target))
    max_changed = int(MAX_CHANGED_FRACTION * length + 1e-9)
    if length - min(len(source), len(target)) > max_changed:
        return False
    if length < MIN_COPY_WORDS and estimate_num_words(source) < MIN_COPY_WORDS:
        return False
    if len(set(target).difference(source)) > max_changed:  # fast path for most pairs
        return False
    return length - (Counter(source) & Counter(target)).total() <= max_changed


def _stem_bitmaps(sentences: Words) -> NDArray[np.uint8]:
    """Return the buckets of the stems of each sentence as bits, [N, NUM_BUCKETS / 8]."""
    buckets = [[bucket for word in words for bucket in _stem_buckets(word)] for words in sentences]
    bits = np.zeros((len(sentences), NUM_BUCKETS), bool)
    rows = np.repeat(np.arange(len(sentences)), list(map(len, buckets)))
    bits[rows, list(chain.from_iterable(buckets))] = True
    return np.packbits(bits, axis=1)


@functools.lru_cache(maxsize=1 << 18)
def _stem_buckets(word: str) -> tuple[int, ...]:
    """Return the bucket of the stem of a word, or of all letter bigrams in a script without spaces.

    A stem has five letters without diacritics, or only the digits. Names, numbers and cognates thus have the same
    bucket on both sides.
    """
    if digits := "".join(filter(str.isdigit, word)):
        stems = [digits]
    elif _UNSPACED.search(word):
        stems = [word[i : i + 2] for i in range(max(1, len(word) - 1))]
    elif word.isascii():
        stems = [word[:STEM_LENGTH]]
    else:
        stems = ["".join(filter(str.isalnum, unicodedata.normalize("NFKD", word)))[:STEM_LENGTH]]
    return tuple(zlib.crc32(stem.encode("utf-8", "replace")) % NUM_BUCKETS for stem in stems)
