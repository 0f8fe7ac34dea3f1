"""Processes of translation engines, for the benchmarks: each loads its model once and answers requests."""

from __future__ import annotations

import ctypes
import gc
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

THREADS = int(os.environ.get("OMP_NUM_THREADS", os.cpu_count() or 1))
SEARCHES = {"greedy": 1, "beam 4": 4}
"""Beam sizes of the searches that are measured."""
Translate = Callable[[list[str], int], int]
"""Translates lines with a beam size, and returns the number of target tokens."""


class EngineProcess:
    """A process that runs `answer_requests`."""

    def __init__(self, command: Sequence[str | Path]) -> None:
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, **request: Any) -> dict[str, Any]:
        """Send a request and wait for its answer."""
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            sys.exit(f"an engine process failed: {' '.join(map(str, self._process.args))}")  # type: ignore[arg-type]
        answer: dict[str, Any] = json.loads(line)
        return answer

    def close(self) -> None:
        """End the process."""
        self._process.communicate()


def ask_in_turn(
    engines: Mapping[str, EngineProcess], requests: Mapping[str, dict[str, Any]], repeats: int
) -> dict[str, list[dict[str, Any]]]:
    """Send each engine its request `repeats` times, after a warmup. The engines take turns; other ones are idle."""
    answers: dict[str, list[dict[str, Any]]] = {name: [] for name in engines}
    for repeat in range(repeats + 1):
        for name, engine in engines.items():
            answer = engine.ask(**requests[name])
            if repeat:
                answers[name].append(answer)
    return answers


def answer_requests(answer: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Answer the requests on stdin until it ends."""
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line))), flush=True)


def peak_memory() -> int:
    """Return the peak resident memory of this process in bytes."""
    status = Path("/proc/self/status").read_text()  # getrusage includes the memory of the parent before exec
    return int(re.search(r"VmHWM:\s+(\d+) kB", status).group(1)) * 1024  # type: ignore[union-attr]


def reset_peak_memory() -> None:
    """Return freed memory to the system, and count the peak from now on (Linux with glibc)."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")
