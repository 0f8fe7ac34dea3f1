#!/usr/bin/env python3
"""Write greetings and courtesies in their usual spellings as training data, without the sentences of a test set.

.venv/bin/python scripts/courtesies.py en de PREFIX --test tatoeba       # PREFIX.en and PREFIX.de, English to German

data/courtesies.tsv has English and German sentences. The first translation of a sentence is its target; the others are
for the reverse direction. The case and the final punctuation of the source are varied; the target is not changed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from nmt.data.pairs import Pair, read_tsv, write_pairs
from nmt.data.sources import open_split
from nmt.data.sources.holdout import sentence_key
from nmt.errors import NMTError

COURTESIES = Path(__file__).parent.parent / "data" / "courtesies.tsv"
FINAL_PUNCTUATION = {"?": ("", "?", "??"), "": ("", ".", "!", "!!", "...")}
"""Variants of the final punctuation of questions and of other sentences."""


def vary(pairs: Iterable[Pair], excluded: set[str]) -> Iterator[Pair]:
    """Yield the spellings of each source with its first translation, unless one of both is in `excluded`."""
    seen: set[str] = set()
    for source, target in pairs:
        words = source.rstrip(".,!?")
        spellings = {words, words.lower()} - seen
        seen |= spellings
        if not {sentence_key(source), sentence_key(target)} & excluded:
            for ending in FINAL_PUNCTUATION["?" if source.endswith("?") else ""]:
                yield from ((text + ending, target) for text in sorted(spellings))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("source", choices=("en", "de"))
    parser.add_argument("target", choices=("en", "de"))
    parser.add_argument("prefix", type=Path)
    parser.add_argument("--times", type=int, default=1, help="Number of copies of each pair.")
    parser.add_argument("--test", metavar="CORPUS", help="Exclude the sentences of the test set of this corpus.")
    options = parser.parse_args()
    if options.source == options.target:
        parser.error("source and target are the same language")
    if options.times < 1:
        parser.error("--times must be at least 1")
    pairs = [pair if options.source == "en" else pair[::-1] for pair in read_tsv(COURTESIES)]
    src, tgt = (options.prefix.with_name(f"{options.prefix.name}.{code}") for code in (options.source, options.target))
    try:
        excluded: set[str] = set()
        if options.test:
            test = open_split(options.test, "test", options.source, options.target)
            excluded = {sentence_key(side) for pair in test.pairs() for side in pair}
        print(write_pairs(src, tgt, [*vary(pairs, excluded)] * options.times), "pairs")
    except OSError as error:
        parser.error(f"cannot write {options.prefix}: {error.strerror}")
    except NMTError as error:
        print(f"{parser.prog}: error: {error.message}", f"     hint: {error.hint}", sep="\n", file=sys.stderr)
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
