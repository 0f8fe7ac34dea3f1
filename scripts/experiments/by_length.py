#!/usr/bin/env python3
"""Split parallel text by length: short pairs to train on, and test sets of equal size with ever longer ones.

    scripts/experiments/by_length.py data/corpora/multi30k/train short --limits 12 16 20

writes short/train and short/valid (at most 12 words on either side), and the test sets short/to-12, to-16 (13 to 16
words on the longer side), to-20 and longer, each as .en and .de. No pair is in two of them.
"""

from __future__ import annotations

import argparse
import random
from pathlib import Path

from nmt.data.pairs import Pair, read_pairs, write_pairs


def main() -> None:
    """Write the parts of the corpus."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("prefix", help="of PREFIX.en and PREFIX.de")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--limits", type=int, nargs="+", default=[12, 16, 20], help="most words of each part")
    parser.add_argument("--size", type=int, default=500, help="pairs of each test set")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    source, target = (Path(f"{arguments.prefix}.{code}") for code in ("en", "de"))
    pairs = [pair for pair in dict.fromkeys(read_pairs(source, target)) if all(pair)]
    random.Random(arguments.seed).shuffle(pairs)

    limits = sorted(arguments.limits)
    parts: dict[str, list[Pair]] = {name: [] for name in (*(f"to-{limit}" for limit in limits), "longer")}
    for pair in pairs:
        words = max(len(side.split()) for side in pair)
        parts[next((f"to-{limit}" for limit in limits if words <= limit), "longer")].append(pair)
    short, size = parts[f"to-{limits[0]}"], arguments.size
    parts |= {"valid": short[size : 2 * size], "train": short[2 * size :]}
    arguments.folder.mkdir(parents=True, exist_ok=True)
    for name, part in parts.items():
        chosen = part if name == "train" else part[:size]
        if not chosen:
            parser.error(f"there are no pairs for {name}: take other --limits, or a smaller --size")
        write_pairs(arguments.folder / f"{name}.en", arguments.folder / f"{name}.de", chosen)
        print(f"{name}: {len(chosen):,} pairs")


if __name__ == "__main__":
    main()
