"""The corpus: all sentences of the grammar, split into training, validation and test sets."""

from __future__ import annotations

import bz2
import contextlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from nmt.core.paths import write_bytes
from phrasebook.clause import Pair
from phrasebook.patterns import PATTERNS, PINNED
from phrasebook.sampling import rank

HELD_OUT_SIZE = 1000
"""Pairs in the validation set and in the test set."""
MIN_WORD_COUNT = 8
"""Each word of a held-out sentence occurs at least this often in the whole corpus."""


def generate_splits() -> dict[str, list[Pair]]:
    """Return the (English, German) pairs of train, valid and test, always in the same shuffled
    order.

    Sentences with the same German translation (I'm, I am) stay in one split.
    """
    seen: set[str] = set()
    pinned = [pair for pattern in PINNED for pair in _first_translations(pattern(), seen)]
    others = [pair for pattern in PATTERNS for pair in _first_translations(pattern(), seen)]
    count = Counter(
        word for pair in [*pinned, *others] for text in pair for word in set(tokenize(text))
    )
    groups: dict[str, list[Pair]] = {}
    for pair in others:
        groups.setdefault(normalize(pair[1]), []).append(pair)
    result: dict[str, list[Pair]] = {"train": pinned, "valid": [], "test": []}
    pinned_german = {normalize(german) for _, german in pinned}
    for german in sorted(groups, key=rank):
        group = groups[german]
        fitting = [
            name for name in ("test", "valid") if len(result[name]) + len(group) <= HELD_OUT_SIZE
        ]
        split = "train"
        if fitting and german not in pinned_german and _is_familiar(group, count):
            split = fitting[0]
        result[split] += group
    return {
        split: sorted(pairs, key=lambda pair: rank("order", *pair))
        for split, pairs in result.items()
    }


def _is_familiar(pairs: list[Pair], count: Counter[str]) -> bool:
    """Return whether all words of the pairs are frequent."""
    texts = [text for pair in pairs for text in pair]
    return all(count[word] >= MIN_WORD_COUNT for text in texts for word in tokenize(text))


def normalize(text: str) -> str:
    """Reduce a sentence to its lower-case words, so that a split cannot leak through case or
    punctuation."""
    return " ".join(re.findall(r"[\w]+", text.lower().replace("'", "")))


def tokenize(text: str) -> list[str]:
    """List the lower-case words of a sentence."""
    return re.findall(r"[\w'-]+", text.lower())


def _first_translations(pairs: Iterable[Pair], seen: set[str]) -> Iterator[Pair]:
    """Yield the first translation of each English sentence."""
    for pair in pairs:
        key = normalize(pair[0])
        if key not in seen:
            seen.add(key)
            yield pair


def serialize(splits: dict[str, list[Pair]]) -> bytes:
    """Return the uncompressed content of the corpus file: lines of SPLIT, English and German,
    separated by tabs."""
    lines = (
        f"{split}\t{english}\t{german}\n"
        for split, pairs in splits.items()
        for english, german in pairs
    )
    return "".join(lines).encode()


def write(path: Path, content: bytes) -> bool:
    """Compress the content into the file and return True, or return False where the file already
    has this content.

    libbz2 has compressed to the same bytes for many years, but another implementation may compress
    differently. A file with the same content is therefore left alone: its compressed bytes, and the
    checksum that nmt derives from them, change only when a sentence changes.
    """
    with contextlib.suppress(OSError, ValueError):  # no such file, or not bzip2
        if bz2.decompress(path.read_bytes()) == content:
            return False
    write_bytes(path, bz2.compress(content, compresslevel=9))
    return True
