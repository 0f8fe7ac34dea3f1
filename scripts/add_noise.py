#!/usr/bin/env python3
"""Add one kind of source noise to every line of standard input.

.venv/bin/python scripts/add_noise.py typos < test.en > typos.en
"""

from __future__ import annotations

import argparse
import os
import sys
from random import Random

from nmt.data.noise import NOISES, compose


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("kind", choices=sorted(NOISES))
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    noise = compose([f"{options.kind}(p=1.0)"])
    sys.stdin.reconfigure(encoding="utf-8", errors="surrogateescape", newline="\n")  # type: ignore[union-attr]
    sys.stdout.reconfigure(encoding="utf-8", errors="surrogateescape")  # type: ignore[union-attr]
    try:
        for i, line in enumerate(sys.stdin):
            print(noise(line.rstrip("\n"), Random(f"{options.seed} {i}")))
        sys.stdout.flush()
    except BrokenPipeError:  # the reader closed the pipe, as head does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    main()
