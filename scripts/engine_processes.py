"""Processes of translation engines, for the benchmarks: each loads its model once and answers
requests."""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from functools import cache, partial
from itertools import product
from pathlib import Path
from typing import Any

import benchmark
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


def parser(documentation: str | None) -> argparse.ArgumentParser:
    """Return the parser of a benchmark that runs itself as the processes of its engines."""
    parser = benchmark.parser(documentation)
    parser.add_argument("--engine", help=argparse.SUPPRESS)
    parser.add_argument("--directory", type=Path, help=argparse.SUPPRESS)
    return parser


def start(engine: str, directory: Path) -> EngineProcess:
    """Run this script as an engine whose models are in a directory."""
    return EngineProcess([sys.executable, *sys.argv, "--engine", engine, "--directory", directory])


def measure(
    names: Sequence[str], directory: Path, request: dict[str, Any], repeats: int
) -> dict[str, list[dict[str, Any]]]:
    """Return the answers of each engine with its fastest setting.

    Another process finds the setting, so that peak memory is that of one setting. The engines take
    turns after a warmup; other ones are idle.
    """
    requests = {}
    for name in names:
        process = start(name, directory)
        requests[name] = request | process.ask(**request)
        process.close()
    engines = {name: start(name, directory) for name in names}
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

    def measured(setting: Translate, request: dict[str, Any]) -> dict[str, Any]:
        before = time.perf_counter()
        count = work(setting, request)
        seconds = time.perf_counter() - before
        return {"count": count, "seconds": seconds, "memory": peak_memory()}

    for line in sys.stdin:
        request = json.loads(line)
        if "setting" in request:
            answer = measured(settings[request["setting"]], request)
        else:
            times = []
            for setting in settings:
                first = measured(setting, request)  # a warmup
                second = measured(setting, request)
                times.append(min(first["seconds"], second["seconds"]))
            answer = {"setting": times.index(min(times))}
        print(json.dumps(answer), flush=True)


def ctranslate2_settings(
    model: Path,
    precision: str,
    encode: Callable[[list[str]], list[list[str]]],
    decode: Callable[[list[list[str]]], int],
    **options: Any,
) -> list[Translate]:
    """Return CTranslate2 with several batch sizes and numbers of threads per batch.

    Args:
        model: directory of the model.
        precision: type of its weights.
        encode: returns the tokens of lines.
        decode: decodes the tokens of translations, and returns the number of tokens.
        options: limits of the lengths.
    """
    import ctranslate2

    @cache
    def engine(inter_threads: int) -> Any:
        intra_threads = max(1, THREADS // inter_threads)
        return ctranslate2.Translator(
            str(model),
            compute_type=precision,
            inter_threads=inter_threads,
            intra_threads=intra_threads,
        )

    def translate(inter_threads: int, batch_size: int, lines: list[str], beam: int) -> int:
        results = engine(inter_threads).translate_batch(
            encode(lines), beam_size=beam, max_batch_size=batch_size, **options
        )
        return decode([result.hypotheses[0] for result in results])

    settings = product(sorted({1, THREADS}), (16, 32, 64, 128))
    return [partial(translate, *setting) for setting in settings]


def peak_memory() -> int:
    """Return the peak resident memory of this process in bytes."""
    # getrusage includes the memory of the parent before exec.
    status = Path("/proc/self/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+) kB", status).group(1)) * 1024  # type: ignore[union-attr]
