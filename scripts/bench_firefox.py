#!/usr/bin/env python
"""Benchmark nmt against the engine of Firefox, fxtranslate, with the same exported student.

    nmt export runs/student --to firefox --output student
    nmt import student --run runs/imported
    OMP_NUM_THREADS=1 scripts/bench_firefox.py student runs/imported sources.txt
    OMP_NUM_THREADS=2 scripts/bench_firefox.py student runs/imported sources.txt

Both translate one sentence a line. fxtranslate has greedy search only, and one thread: with more
of them, each process of a pool translates a share. Loading is not counted. The systems take turns;
prints the median of the source words per second, its ratio to that of fxtranslate, and the share of
translations that are the same.
"""

from __future__ import annotations

import argparse
import statistics
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

from nmt.jobs import process_settings

process_settings.set_defaults()  # before importing torch, like the nmt command

from command_errors import error_messages
from nmt.core import runtime
from nmt.core.errors import UsageError
from nmt.export import firefox
from nmt.export.common import Translate
from nmt.translation.translator import Translator

SEARCHES = ("greedy", "beam(beam_size=4)", "greedy(shortlist=False)")
loaded: Translate | None = None
"""The model of a process of the pool."""


def load(directory: Path) -> None:
    """Load the model in a process of the pool."""
    global loaded
    loaded = firefox.load(directory)


def translate(lines: list[str]) -> list[str]:
    """Translate in a process of the pool."""
    assert loaded
    return loaded(lines)


def in_pool(pool: ProcessPoolExecutor, num_shares: int, lines: list[str]) -> list[str]:
    """Translate shares of the lines in all processes, and return the translations in order."""
    shares = [lines[first::num_shares] for first in range(num_shares)]
    translations = [""] * len(lines)
    for first, share in enumerate(pool.map(translate, shares)):
        translations[first::num_shares] = share
    return translations


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("directory", type=Path)
    parser.add_argument("run", type=Path)
    parser.add_argument("sources", type=Path)
    parser.add_argument("--lines", type=int, default=1000)
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    lines = arguments.sources.read_text(encoding="utf-8").splitlines()[: arguments.lines]
    if not any(arguments.directory.glob("model.*.bin")):
        raise UsageError(
            f"{arguments.directory} has no model of Firefox",
            "nmt export RUN --to firefox --output DIRECTORY",
        )
    num_threads = runtime.num_threads()
    translator = Translator.load(arguments.run, "cpu", "int8")
    with ProcessPoolExecutor(
        num_threads, initializer=load, initargs=(arguments.directory,)
    ) as pool:
        systems: dict[str, Translate] = {"fxtranslate": partial(in_pool, pool, num_threads)}
        for search in SEARCHES:
            systems[f"nmt {search}"] = partial(translator.translate, search=search)
        measure(systems, lines, arguments.repeats)


def measure(systems: dict[str, Translate], lines: list[str], repeats: int) -> None:
    """Let the systems take turns, and print a row for each."""
    seconds: dict[str, list[float]] = {name: [] for name in systems}
    translations: dict[str, list[str]] = {}
    for system in systems.values():  # loads, and warms up
        system(lines[:100])
    for _ in range(repeats):
        for name, system in systems.items():
            start = time.perf_counter()
            translations[name] = system(lines)
            seconds[name].append(time.perf_counter() - start)
    num_words = sum(len(line.split()) for line in lines)
    speeds = {name: num_words / statistics.median(each) for name, each in seconds.items()}
    print(f"{runtime.cpu_name()}, {runtime.num_threads()} threads")
    print("| system | words/s | ratio | same |\n|---|---|---|---|")
    expected = [text.split() for text in translations["fxtranslate"]]
    for name, speed in speeds.items():
        actual = [text.split() for text in translations[name]]
        num_same = sum(a == b for a, b in zip(actual, expected, strict=True))
        share = num_same / len(lines)
        print(f"| {name} | {speed:,.0f} | {speed / speeds['fxtranslate']:.2f} | {share:.1%} |")


if __name__ == "__main__":
    with error_messages():
        main()
