"""Generate the phrasebook and write the file that nmt reads.

.venv/bin/python scripts/phrasebook                    # update nmt/data/sources/phrasebook.tsv.bz2
.venv/bin/python scripts/phrasebook -o new.tsv.bz2     # write another file
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

# Not the package itself, whose modules are imported by full name.
sys.path[0] = str(Path(__file__).parent.parent)

from nmt.data.sources.phrasebook import FILE
from phrasebook import corpus


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="scripts/phrasebook",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "-o", "--output", type=Path, default=FILE, help="default: the file in the package"
    )
    path = parser.parse_args().output
    content = corpus.serialize(corpus.generate_splits())
    try:
        changed = corpus.write(path, content)
    except OSError as error:
        parser.error(f"cannot write {path}: {error.strerror or error}")
    count = content.count(b"\n")
    print(f"{path}: {count:,} pairs" if changed else f"{path} is up to date: {count:,} pairs")


if __name__ == "__main__":
    main()
