"""Processes of translation engines, for the benchmarks: each loads its model once and answers
requests."""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from nmt.core import runtime

THREADS = runtime.num_threads()
SEARCHES = {"greedy": 1, "beam 4": 4}
"""Beam sizes of the searches that are measured."""
Translate = Callable[[list[str], int], int]
"""Translates lines with a beam size, and returns the number of target tokens."""


class EngineProcess:
    """A process that runs `answer_requests`."""

    def __init__(self, command: Sequence[str | Path]) -> None:
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def ask(self, **request: Any) -> dict[str, Any]:
        """Send a request and wait for its answer."""
        assert self._process.stdin
        assert self._process.stdout
        with contextlib.suppress(BrokenPipeError):  # there is no answer, either
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


def measure(
    start: Callable[[str], EngineProcess],
    names: Sequence[str],
    request: dict[str, Any],
    repeats: int,
) -> dict[str, list[dict[str, Any]]]:
    """Return the answers of each engine with its fastest setting.

    Another process finds the setting, so that peak memory is that of one setting. The engines take
    turns after a warmup; other ones are idle.
    """
    requests = {}
    for name in names:
        process = start(name)
        requests[name] = request | process.ask(**request)
        process.close()
    engines = {name: start(name) for name in names}
    answers: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    for repeat in range(repeats + 1):
        for name, engine in engines.items():
            answer = engine.ask(**requests[name])
            if repeat:
                answers[name].append(answer)
    for engine in engines.values():
        engine.close()
    return answers


def answer_requests(
    settings: Sequence[Translate], work: Callable[[Translate, dict[str, Any]], int]
) -> None:
    """Answer the requests on stdin until it ends: measure a setting, or name the fastest one.

    Args:
        settings: functions that translate.
        work: translates for a request with one of them, and returns the number of tokens or
            sentences.
    """

    def timed(setting: Translate, request: dict[str, Any]) -> tuple[int, float]:
        before = time.perf_counter()
        count = work(setting, request)
        return count, time.perf_counter() - before

    for line in sys.stdin:
        request = json.loads(line)
        answer: dict[str, Any]
        if "setting" in request:
            count, seconds = timed(settings[request["setting"]], request)
            answer = {"count": count, "seconds": seconds, "memory": peak_memory()}
        else:  # the first of two passes is a warmup
            times = [min(timed(setting, request)[1] for _ in range(2)) for setting in settings]
            answer = {"setting": times.index(min(times))}
        print(json.dumps(answer), flush=True)


def peak_memory() -> int:
    """Return the peak resident memory of this process in bytes."""
    status = Path(
        "/proc/self/status"
    ).read_text()  # getrusage includes the memory of the parent before exec
    return int(re.search(r"VmHWM:\s+(\d+) kB", status).group(1)) * 1024  # type: ignore[union-attr]
