"""What the benchmarks share: their arguments, and tables in Markdown."""

from __future__ import annotations

import argparse
from collections.abc import Iterable


def parser(documentation: str | None) -> argparse.ArgumentParser:
    """Return a parser whose help is the documentation of a script."""
    return argparse.ArgumentParser(
        description=documentation, formatter_class=argparse.RawDescriptionHelpFormatter
    )


def print_head(*titles: str) -> None:
    """Print the head of a table."""
    print_row(titles)
    print("|" + "---|" * len(titles))


def print_row(cells: Iterable[object]) -> None:
    """Print a row of a table."""
    print(f"| {' | '.join(map(str, cells))} |", flush=True)
