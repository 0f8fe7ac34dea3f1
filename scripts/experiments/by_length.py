#!/usr/bin/env python3
"""Split a parallel corpus by length: short pairs for training, and test sets of equal size with
increasing lengths.

    scripts/experiments/by_length.py data/corpora/multi30k/train short --limits 12 16 20

writes short/train and short/valid (at most 12 words on each side), and the test sets short/to-12,
to-16 (13 to 16 words on the longer side), to-20 and longer, each as .en and .de. The parts do not
share pairs.
"""

from __future__ import annotations

import argparse
import random
from pathlib import Path

from nmt.data.pairs import Pair, read_pairs, write_pairs
from nmt.data.sources.files import find_language_file


def main() -> None:
    """Write the parts."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("prefix", type=Path, help="path of the corpus without .en and .de")
    parser.add_argument("directory", type=Path)
    parser.add_argument(
        "--limits", type=int, nargs="+", default=[12, 16, 20], help="maximum words of each part"
    )
    parser.add_argument("--size", type=int, default=500, help="pairs per test set")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    source = find_language_file(arguments.prefix, "en")
    target = find_language_file(arguments.prefix, "de")
    pairs = [pair for pair in dict.fromkeys(read_pairs(source, target)) if all(pair)]
    random.Random(arguments.seed).shuffle(pairs)

    limits = sorted(arguments.limits)
    parts: dict[str, list[Pair]] = {
        name: [] for name in (*(f"to-{limit}" for limit in limits), "longer")
    }
    for pair in pairs:
        words = max(len(side.split()) for side in pair)
        parts[next((f"to-{limit}" for limit in limits if words <= limit), "longer")].append(pair)
    short, size = parts[f"to-{limits[0]}"], arguments.size
    parts |= {"valid": short[size : 2 * size], "train": short[2 * size :]}
    for name, part in parts.items():
        if not part:
            parser.error(f"there are no pairs for {name}: change --limits or reduce --size")
    arguments.directory.mkdir(parents=True, exist_ok=True)
    for name, part in parts.items():
        chosen = part if name == "train" else part[:size]
        write_pairs(arguments.directory / f"{name}.en", arguments.directory / f"{name}.de", chosen)
        print(f"{name}: {len(chosen):,} pairs")


if __name__ == "__main__":
    main()
