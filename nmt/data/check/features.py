"""Features of sentence pairs: problems of a single pair, and hashes and digests to compare it with
others.

Shape suffix: N pairs.
"""

from __future__ import annotations

import re
import unicodedata
import zlib
from collections.abc import Container, Sequence, Set
from dataclasses import dataclass
from itertools import starmap
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nmt.core.bounded_cache import BoundedCache
from nmt.data.arrays import Bytes, Integers
from nmt.data.check import checks
from nmt.data.check.copies import is_copy
from nmt.data.check.encoding import encoding_problems, repair_pair
from nmt.data.check.minhash import NUM_HASHES, Side, hash_words
from nmt.data.check.overlap_index import OverlapIndex
from nmt.data.clean import is_blank
from nmt.data.pairs import Pair, hash_pair
from nmt.text.language_identification import is_wrong_language
from nmt.text.normalization import UNSPACED
from nmt.text.words import Words

NUM_BUCKETS = 256
"""Buckets into which word stems are hashed for the alignment; the index of one is a byte."""
BITMAP_SIZE = NUM_BUCKETS // 8
"""Bytes of a bitmap with a bit for each bucket."""
MAX_CHARACTERS = 0xFFFF
"""Maximum number of characters of a side that a record can hold."""
STEM_LENGTH = 5
"""Letters of a stem: enough to distinguish words, few enough that inflected forms and cognates
agree."""
MAX_CACHED_WORDS = 1 << 18
"""Maximum number of words whose stems are kept."""

PAIR = np.dtype(
    [
        ("problems", "<u2"),
        ("pair", "<u8"),
        ("source", "<u8"),
        ("digest", "u1", NUM_HASHES),
    ]
)
"""Features that are compared with those of all other pairs. `pair` and `source` are hashes of the
text, `digest` is a b-bit MinHash (Li and König 2010) of the words of both sides."""
LINE = np.dtype([("chars", "<u2", 2), ("words", "u1", (2, BITMAP_SIZE))])
"""Features that are compared with those of neighbors: numbers of characters, and bitmaps of the
stems of the words."""
Records = NDArray[Any]

_UNSPACED = re.compile(f"[{UNSPACED}]")


@dataclass(frozen=True)
class PairFeatures:
    """The features of some pairs."""

    pairs_N: Records
    """Of type `PAIR`."""
    lines_N: Records
    """Of type `LINE`."""


def extract_features(
    pairs: Sequence[Pair],
    languages: tuple[str, str],
    overlap_index: OverlapIndex,
    ignored: Set[str],
) -> PairFeatures:
    """Return the features of each pair; all except encoding problems are those of the repaired
    text.

    The language of a side whose code is empty is not checked. `ignored` are names of checks that
    repair nothing, and that do not run unless another check needs their results.
    """
    problems = [
        encoding_problems(source, ignored) | encoding_problems(target, ignored)
        for source, target in pairs
    ]
    pairs = [repair_pair(pair, bits, ignored) for pair, bits in zip(pairs, problems, strict=True)]
    source = Side(pairs, 0)
    target = Side(pairs, 1)
    pairs_N = _describe_pairs(pairs, source, target, ignored)
    lines_N = _describe_lines(source, target, ignored)
    words = zip(source.sentences, target.sentences, strict=True)
    pair_problems = [
        _pair_problem(pair, both, languages, ignored)
        for pair, both in zip(pairs, words, strict=True)
    ]
    pairs_N["problems"] = np.bitwise_or(problems, pair_problems)
    _mark_test_overlap(pairs_N["problems"], overlap_index, source, target, ignored)
    return PairFeatures(pairs_N, lines_N)


def _describe_pairs(
    pairs: Sequence[Pair], source: Side, target: Side, ignored: Set[str]
) -> Records:
    """Return the features of pairs without their problems."""
    records = np.zeros(len(pairs), PAIR)
    records["pair"] = list(starmap(hash_pair, pairs))
    records["source"] = list(map(hash_words, source.sentences))
    if not ignored >= checks.NEAR_DUPLICATE_CHECKS:
        # The minimum of the hash values of both sides is the MinHash of the words of both sides.
        hashes_NP = np.minimum(source.hashes_NP, target.hashes_NP)
        records["digest"] = hashes_NP.astype(np.uint8)
    return records


def _describe_lines(source: Side, target: Side, ignored: Container[str]) -> Records:
    """Return the features of lines, whose bitmaps are empty if misalignment is ignored."""
    records = np.zeros(len(source.sentences), LINE)
    for i, side in enumerate((source, target)):
        records["chars"][:, i] = np.minimum(side.num_characters, MAX_CHARACTERS)
        if checks.MISALIGNED.name not in ignored:
            records["words"][:, i] = _stem_bitmaps(side)
    return records


def _pair_problem(
    pair: Pair, words: tuple[Words, Words], languages: tuple[str, str], ignored: Container[str]
) -> int:
    """Return the bit of the first problem, because a copy also is in a wrong language."""
    source_words, target_words = words
    has_words = source_words and target_words  # fast path for most pairs
    if not has_words and any(map(is_blank, pair)):
        return checks.BLANK.bit
    checks_language = checks.WRONG_LANGUAGE.name not in ignored
    checks_copies = checks_language or checks.UNTRANSLATED.name not in ignored
    if checks_copies and is_copy(source_words, target_words):
        return checks.UNTRANSLATED.bit
    if checks_language and any(map(is_wrong_language, pair, languages, words)):
        return checks.WRONG_LANGUAGE.bit
    return 0


def _mark_test_overlap(
    problems_N: Integers,
    overlap_index: OverlapIndex,
    source: Side,
    target: Side,
    ignored: Container[str],
) -> None:
    checks_near = checks.NEAR_TEST_OVERLAP.name not in ignored
    if not checks_near and checks.TEST_OVERLAP.name in ignored:
        return
    exact = overlap_index.find_exact(source, target)
    near = overlap_index.find_near(source, target) if checks_near else {}
    for i in exact:
        problems_N[i] |= checks.TEST_OVERLAP.bit
    # An equal test sentence is not reported as a near one, even if its check is ignored.
    for i in near.keys() - exact.keys():
        problems_N[i] |= checks.NEAR_TEST_OVERLAP.bit


def _stem_bitmaps(side: Side) -> Bytes:
    """Return the buckets of the stems of each sentence as bits, the first bucket in the highest
    bit, [N, bytes]."""
    buckets = [b"".join(map(_STEM_BUCKETS.__getitem__, words)) for words in side.sentences]
    num_buckets_N = np.fromiter(map(len, buckets), np.int64, len(buckets))
    sentences = np.repeat(np.arange(len(buckets)), num_buckets_N)
    has_bucket = np.zeros((len(buckets), NUM_BUCKETS), bool)
    has_bucket[sentences, np.frombuffer(b"".join(buckets), np.uint8)] = True
    return np.packbits(has_bucket, axis=1)


def _stem_buckets(word: str) -> bytes:
    """Return the bucket of the stem of a word, or of all letter bigrams in a script without spaces.

    A stem has five letters without diacritics, or only the digits. Names, numbers and cognates thus
    have the same bucket on both sides.
    """
    if word.isascii() and word.isalpha():  # fast path
        stems = [word[:STEM_LENGTH]]
    elif digits := "".join(filter(str.isdigit, word)):
        stems = [digits]
    elif _UNSPACED.search(word):
        num_bigrams = max(1, len(word) - 1)
        stems = [word[i : i + 2] for i in range(num_bigrams)]
    else:
        decomposed = unicodedata.normalize("NFKD", word)
        stems = ["".join(filter(str.isalnum, decomposed))[:STEM_LENGTH]]
    return bytes([zlib.crc32(stem.encode("utf-8", "replace")) % NUM_BUCKETS for stem in stems])


_STEM_BUCKETS = BoundedCache(_stem_buckets, MAX_CACHED_WORDS)
