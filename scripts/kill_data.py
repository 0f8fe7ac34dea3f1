#!/usr/bin/env python
"""Kill `nmt data check` and `nmt data prepare` at random moments, resume them, and compare their
results with those of commands that were not killed.

    scripts/kill_data.py corpus.en corpus.de --kills 20

SIGKILL goes to the command and all of its processes.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import benchmark
from command_errors import error_messages


def main() -> None:
    """Exit with 1 if a result differs."""
    parser = benchmark.parser(__doc__)
    parser.add_argument("src", type=Path)
    parser.add_argument("tgt", type=Path)
    parser.add_argument("--kills", type=int, default=20, help="for each command")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    rng = random.Random(arguments.seed)
    with tempfile.TemporaryDirectory() as directory:
        equal = [
            _compare(name, command, Path(directory), arguments.kills, rng)
            for name, command in _commands(arguments).items()
        ]
    sys.exit(0 if all(equal) else 1)


def _commands(arguments: argparse.Namespace) -> dict[str, list[str]]:
    files = [str(path.absolute()) for path in (arguments.src, arguments.tgt)]
    corpus = f"data.train=files(train={tuple(files)!r}, columns=('en', 'de'))"
    return {
        "check": ["check", *files, "--src-lang", "en", "--tgt-lang", "de", "--json"],
        "prepare": ["prepare", "--set", corpus, "--set", "tokenizer.vocab_size=8000"],
    }


def _compare(
    name: str, command: Sequence[str], directory: Path, num_kills: int, rng: random.Random
) -> bool:
    """Run a command with and without being killed; return whether the results are equal."""
    start = time.perf_counter()
    expected = _run(command, directory / f"{name}-expected")
    seconds = time.perf_counter() - start
    data = directory / f"{name}-killed"
    num_killed = 0
    for _ in range(num_kills):
        # What is done already makes the next run shorter.
        num_killed += _kill(command, data, rng.uniform(0, seconds / 4))
    is_equal = _run(command, data) == expected
    verdict = "equal" if is_equal else "DIFFERENT"
    print(f"{name}: {num_killed} times killed in {seconds:.1f} s, {verdict}", flush=True)
    return is_equal


def _start(command: Sequence[str], data: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "nmt", "data", *command],
        env=os.environ | {"NMT_DATA": str(data)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def _kill(command: Sequence[str], data: Path, seconds: float) -> bool:
    """Kill a command after some time; return whether it was still running."""
    process = _start(command, data)
    try:
        process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return True
    return False


def _run(command: Sequence[str], data: Path) -> str:
    """Run a command, and return a hash of its output and of the files that it leaves."""
    process = _start(command, data)
    output, _ = process.communicate()
    checksum = hashlib.sha256(output.replace(os.fsencode(data), b""))
    for path in sorted(data.rglob("*")):
        if path.is_file() and path.suffix != ".lock":
            checksum.update(path.name.encode())
            checksum.update(path.read_bytes())
    return checksum.hexdigest()


if __name__ == "__main__":
    with error_messages():
        main()
