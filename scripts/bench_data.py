#!/usr/bin/env python
"""Measure time, memory and disk of `nmt data check`, `filter` and `prepare`.

    scripts/make_corpus.py 500000 small --zst europarl.en.gz:europarl.de.gz
    scripts/make_corpus.py 5000000 large --zst europarl.en.gz:europarl.de.gz
    scripts/bench_data.py small large --valid dev

Memory is the maximum of the sum of all processes (proportional set size, in which a page that
several processes share counts once), disk the maximum size of the data directory, as a multiple of
the size of the compressed corpus. With several corpora, the last line of a command has the slope
from the smallest to the largest: seconds and bytes for each further pair.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import benchmark
from command_errors import error_messages
from nmt.core.errors import UsageError
from nmt.data.pairs import count_lines

INTERVAL = 0.5
"""Seconds between two samples."""
CODES_OF_FINDINGS = (0, 3, 4)
"""Exit codes of a check that has ended."""


@dataclass
class Measurement:
    """What a command needed."""

    pairs: int
    seconds: float
    memory: int = 0
    """Bytes."""
    disk: int = 0
    """Bytes of the data directory."""
    corpus: int = 0
    """Bytes of the compressed corpus."""

    def cells(self) -> list[str]:
        """Return the cells of a row."""
        return [
            f"{self.pairs:,}",
            f"{self.seconds:,.1f}",
            f"{self.pairs / self.seconds:,.0f}",
            f"{self.memory / 1e6:,.0f}",
            f"{self.disk / self.corpus:.2f}",
        ]

    def slope(self, smaller: Measurement) -> list[str]:
        """Return the cells of what each further pair needs: microseconds and bytes."""
        pairs = self.pairs - smaller.pairs
        seconds = (self.seconds - smaller.seconds) / pairs
        memory = (self.memory - smaller.memory) / pairs
        disk = (self.disk - smaller.disk) / pairs
        return ["1", f"{1e6 * seconds:.1f} µs", "", f"{memory:.1f} B", f"{disk:.0f} B"]


class Sampler:
    """Samples memory and disk while a process runs."""

    def __init__(self, process: subprocess.Popen[bytes], directory: Path) -> None:
        self._process = process
        self._directory = directory
        self.memory = 0
        self.disk = 0
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Sampler:
        self._thread.start()
        return self

    def __exit__(self, *details: object) -> None:
        self._thread.join()

    def _run(self) -> None:
        while self._process.poll() is None:
            self.memory = max(self.memory, _memory(self._process.pid))
            self.disk = max(self.disk, _size(self._directory))
            time.sleep(INTERVAL)


def main() -> None:
    """Measure the commands for each corpus."""
    parser = benchmark.parser(__doc__)
    path = os.path.abspath
    parser.add_argument(
        "corpora", nargs="+", type=path, metavar="PREFIX", help="in ascending order of size"
    )
    parser.add_argument("--valid", type=path, required=True, help="prefix of a validation set")
    parser.add_argument("--ignore", action="append", default=[], help="check to skip")
    parser.add_argument("--commands", nargs="+", default=["check", "filter", "prepare"])
    arguments = parser.parse_args()
    benchmark.print_head("command", "pairs", "s", "pairs/s", "memory, MB", "disk / corpus")
    for command in arguments.commands:
        measured = []
        for prefix in arguments.corpora:
            options = _options(command, prefix, arguments.valid, arguments.ignore)
            measured.append(_measure(options, prefix))
            benchmark.print_row([f"{command} {Path(prefix).name}", *measured[-1].cells()])
        if len(measured) > 1:
            slope = measured[-1].slope(measured[0])
            benchmark.print_row([f"{command}, each further pair", *slope])


def _options(command: str, prefix: str, valid: str, ignored: Sequence[str]) -> list[str]:
    files = [*map(str, _files(prefix)), "--src-lang", "en", "--tgt-lang", "de"]
    if command == "check":
        ignore = [option for name in ignored for option in ("--ignore", name)]
        return ["check", *files, *ignore]
    if command == "filter":
        return ["filter", *files, "--compress", "--output", "clean"]
    corpus = f"files(train={prefix!r}, valid={valid!r}, hold_out=False)"
    return ["prepare", "--set", f"data.train={corpus}", "--set", "tokenizer.vocab_size=32000"]


def _files(prefix: str) -> list[Path]:
    """Return the two files of a corpus."""
    files = []
    for language in ("en", "de"):
        paths = [Path(f"{prefix}.{language}{suffix}") for suffix in (".zst", ".gz", "")]
        found = [path for path in paths if path.exists()]
        if not found:
            raise UsageError(f"no such file: {paths[-1]}", "pass the prefix of both files")
        files.append(found[0])
    return files


def _measure(options: Sequence[str], prefix: str) -> Measurement:
    files = _files(prefix)
    with tempfile.TemporaryDirectory(dir=files[0].parent) as directory:
        command = [sys.executable, "-m", "nmt", "data", *options]
        start = time.perf_counter()
        process = subprocess.Popen(
            command,
            cwd=directory,
            env=os.environ | {"NMT_DATA": directory},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        with Sampler(process, Path(directory)) as sampler:
            _, errors = process.communicate()
        seconds = time.perf_counter() - start
    if process.returncode not in CODES_OF_FINDINGS:
        sys.exit(errors.decode())
    size = sum(path.stat().st_size for path in files)
    return Measurement(count_lines(files[0]), seconds, sampler.memory, sampler.disk, size)


def _memory(pid: int) -> int:
    """Return the proportional set size of a process and all its descendants in bytes."""
    total = 0
    for child in (pid, *_descendants(pid)):
        try:
            rollup = Path(f"/proc/{child}/smaps_rollup").read_text()
        except OSError:  # it has ended
            continue
        sizes = [line.split() for line in rollup.splitlines() if line.startswith("Pss:")]
        total += 1024 * sum(int(words[1]) for words in sizes)
    return total


def _descendants(pid: int) -> list[int]:
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            children = list(map(int, task.read_text().split()))
        except OSError:
            continue
        for child in children:
            found += [child, *_descendants(child)]
    return found


def _size(directory: Path) -> int:
    """Return the size of all files of a directory; some may disappear meanwhile."""
    total = 0
    for parent, _, names in os.walk(directory):
        for name in names:
            try:
                total += os.stat(os.path.join(parent, name)).st_blocks * 512
            except OSError:
                continue
    return total


if __name__ == "__main__":
    with error_messages():
        main()
