#!/usr/bin/env python
"""Generate a large parallel corpus from a small one, to benchmark time and memory with millions of
pairs.

    scripts/make_corpus.py 4500000 big europarl.en.gz:europarl.de.gz news.en.gz:news.de.gz

Repeats the pairs in random order. From the second repetition on, replaces some words of each
sentence with random words of the corpus, so that nearly all pairs are unique. The result is not
suitable for training.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Iterator
from pathlib import Path

from command_errors import error_messages
from nmt.data.pairs import Pair, read_pairs, write_pairs


def main() -> None:
    """Write PREFIX.en and PREFIX.de, or these names with .zst."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("pairs", type=int)
    parser.add_argument("prefix", type=Path)
    parser.add_argument("texts", nargs="+", metavar="SRC:TGT")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--zst", action="store_true", help="compress the files")
    arguments = parser.parse_args()
    texts = [text.partition(":") for text in arguments.texts]
    seeds = [
        pair
        for src, _, tgt in texts
        for pair in read_pairs(Path(src), Path(tgt))
        if all(map(str.strip, pair))
    ]
    if not seeds:
        parser.error("the texts have no sentence pairs")
    suffix = ".zst" if arguments.zst else ""
    src, tgt = [Path(f"{arguments.prefix}.{code}{suffix}") for code in ("en", "de")]
    rng = random.Random(arguments.seed)
    write_pairs(src, tgt, _perturbed(seeds, arguments.pairs, rng))


def _perturbed(seeds: list[Pair], count: int, rng: random.Random) -> Iterator[Pair]:
    words = [[word for pair in seeds for word in pair[side].split()] for side in (0, 1)]
    for number in range(count):
        if number % len(seeds) == 0:
            rng.shuffle(seeds)
        source, target = seeds[number % len(seeds)]
        if number >= len(seeds):
            source, target = (
                _replace_words(source, words[0], rng),
                _replace_words(target, words[1], rng),
            )
        yield source, target


def _replace_words(text: str, words: list[str], rng: random.Random) -> str:
    result = text.split()
    for _ in range(1 + len(result) // 4):
        place = int(rng.random() * len(result))
        result[place] = words[int(rng.random() * len(words))]
    return " ".join(result)


if __name__ == "__main__":
    with error_messages():
        main()
