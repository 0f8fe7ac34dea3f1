#!/usr/bin/env python
"""Benchmark the time that short commands take from a cold process to their end.

    scripts/bench_cold_start.py
    scripts/bench_cold_start.py --program core/bin/nmt --program .venv/bin/nmt

The commands of all programs take turns. Their files are in the cache of the disk, because a first
round is not counted. Prints medians of the time, the CPU time and the peak memory.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from command_errors import error_messages
from nmt.core.errors import UsageError

COMMANDS = (("--help",), ("translate", "--help"), ("translate", "im thirsty"))
COMPLETIONS = ("nmt tr", "nmt translate --model en")
"""Words that the shell completes."""


@dataclass
class Command:
    """A command, and what its runs took."""

    name: str
    arguments: list[str]
    variables: dict[str, str] = field(default_factory=dict)
    seconds: list[float] = field(default_factory=list)
    cpu_seconds: list[float] = field(default_factory=list)
    megabytes: list[float] = field(default_factory=list)

    def run(self) -> None:
        """Run the command once."""
        null = ((os.POSIX_SPAWN_OPEN, stream, os.devnull, os.O_RDWR, 0) for stream in range(3))
        start = time.perf_counter()
        process = os.posix_spawn(
            self.arguments[0], self.arguments, os.environ | self.variables, file_actions=[*null]
        )
        _, status, usage = os.wait4(process, 0)
        self.seconds.append(time.perf_counter() - start)
        self.cpu_seconds.append(usage.ru_utime + usage.ru_stime)
        self.megabytes.append(usage.ru_maxrss / 1000)
        if status:
            raise UsageError(f"{self.name} failed", f"run {' '.join(self.arguments)}")


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--program", type=Path, action="append", help="default: that of Python")
    parser.add_argument("--repeats", type=int, default=15)
    arguments = parser.parse_args()
    programs = arguments.program or [Path(sys.executable).with_name("nmt")]
    measured = [command for program in programs for command in _commands(program)]
    for _ in range(1 + arguments.repeats):
        for command in measured:
            command.run()
    print("median of            time     CPU  memory")
    for command in measured:
        seconds = statistics.median(command.seconds[1:])
        cpu_seconds = statistics.median(command.cpu_seconds[1:])
        megabytes = statistics.median(command.megabytes[1:])
        print(f"{seconds:20.2f} s {cpu_seconds:5.2f} s {megabytes:4.0f} MB  {command.name}")


def _commands(program: Path) -> list[Command]:
    path = shutil.which(program)
    if path is None:
        raise UsageError(f"there is no program {program}", "name the nmt of an installation")
    commands = [
        Command(f"{program} {' '.join(words)}", [path, *words], {"COLUMNS": "80"})
        for words in COMMANDS
    ]
    for words in COMPLETIONS:
        request = {
            "_NMT_COMPLETE": "complete_bash",
            "COMP_WORDS": words,
            "COMP_CWORD": str(words.count(" ")),
        }
        commands.append(Command(f"completion of {words}", [path], request))
    return commands


if __name__ == "__main__":
    with error_messages():
        main()
