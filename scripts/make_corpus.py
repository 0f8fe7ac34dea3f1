#!/usr/bin/env python
"""Make a large parallel text out of a small one, to measure what millions of pairs cost.

    scripts/make_corpus.py 4500000 big europarl.en.gz:europarl.de.gz news.en.gz:news.de.gz

Pairs are taken again and again in changing order; from the second round on, some words of each are replaced by other
words of the same text, so that nearly all pairs differ. It is for measuring time and memory; no model should learn it.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Iterator
from pathlib import Path

from nmt.data.pairs import Pair, read_pairs, write_pairs


def main() -> None:
    """Write PREFIX.en and PREFIX.de."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pairs", type=int)
    parser.add_argument("prefix", type=Path)
    parser.add_argument("texts", nargs="+", metavar="SRC:TGT")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    texts = [text.partition(":") for text in arguments.texts]
    seeds = [pair for src, _, tgt in texts for pair in read_pairs(Path(src), Path(tgt)) if all(pair)]
    outputs = [arguments.prefix.with_name(f"{arguments.prefix.name}.{code}") for code in ("en", "de")]
    write_pairs(outputs[0], outputs[1], _perturbed(seeds, arguments.pairs, random.Random(arguments.seed)))


def _perturbed(seeds: list[Pair], count: int, rng: random.Random) -> Iterator[Pair]:
    words = [[word for pair in seeds for word in pair[side].split()] for side in (0, 1)]
    order = list(range(len(seeds)))
    made = 0
    while True:
        rng.shuffle(order)
        for i in order:
            if made == count:
                return
            pair = (
                seeds[i] if made < len(seeds) else tuple(_change(seeds[i][side], words[side], rng) for side in (0, 1))
            )
            yield pair[0], pair[1]
            made += 1


def _change(text: str, words: list[str], rng: random.Random) -> str:
    changed = text.split()
    for _ in range(1 + len(changed) // 4):
        changed[rng.randrange(len(changed))] = rng.choice(words)
    return " ".join(changed)


if __name__ == "__main__":
    main()
