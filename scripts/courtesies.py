#!/usr/bin/env python3
"""Write greetings and courtesies in all the ways people type them, as text to train on, without what is in a test set.

.venv/bin/python scripts/courtesies.py en de PREFIX --test tatoeba       # PREFIX.en and PREFIX.de, English to German

data/courtesies.tsv has English and German. Of several translations the first is the one to learn; the others stand
there for the other direction. The source is varied in case and in the marks it ends in, the target stays as it is.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from nmt.data.pairs import Pair, read_tsv, write_pairs
from nmt.data.sources import open_split
from nmt.data.sources.holdout import key
from nmt.errors import NMTError

TEXT = Path(__file__).parent.parent / "data" / "courtesies.tsv"
ENDS = {"?": ("", "?", "??"), "": ("", ".", "!", "!!", "...")}
"""What a sentence may end in, by what it ends in: a question mark, or anything else."""


def varied(pairs: Iterable[Pair], unwanted: set[str]) -> Iterator[Pair]:
    """Yield each source in its spellings with its first translation, unless one of both is unwanted."""
    seen: set[str] = set()
    for source, target in pairs:
        words = source.rstrip(".,!?")
        spellings = {words, words.lower()} - seen
        seen |= spellings
        if not {key(source), key(target)} & unwanted:
            for ending in ENDS["?" if source.endswith("?") else ""]:
                yield from ((text + ending, target) for text in sorted(spellings))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("source", choices=("en", "de"))
    parser.add_argument("target", choices=("en", "de"))
    parser.add_argument("prefix", type=Path)
    parser.add_argument("--times", type=int, default=1, help="write each this many times, to learn it better")
    parser.add_argument("--test", metavar="CORPUS", help="leave out what is in its test set")
    options = parser.parse_args()
    if options.source == options.target:
        parser.error("source and target are the same language")
    if options.times < 1:
        parser.error("--times must be at least 1")
    pairs = [pair if options.source == "en" else pair[::-1] for pair in read_tsv(TEXT)]
    src, tgt = (options.prefix.with_name(f"{options.prefix.name}.{code}") for code in (options.source, options.target))
    try:
        unwanted: set[str] = set()
        if options.test:
            test = open_split(options.test, "test", options.source, options.target)
            unwanted = {key(side) for pair in test.pairs() for side in pair}
        print(write_pairs(src, tgt, [*varied(pairs, unwanted)] * options.times), "pairs")
    except OSError as error:
        parser.error(f"cannot write {options.prefix}: {error.strerror}")
    except NMTError as error:
        print(f"{parser.prog}: error: {error.message}", f"     hint: {error.hint}", sep="\n", file=sys.stderr)
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
