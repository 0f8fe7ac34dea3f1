"""Selects the fastest implementation by measuring candidates on this machine. Results are cached on
disk."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path

from nmt.core.console import log
from nmt.core.paths import cache_dir, locked, write_text
from nmt.core.runtime import cpu_name, num_threads

MEASURE_SECONDS = 0.08
"""Time to measure each candidate."""
_process_cache: dict[str, dict[str, float]] = {}
"""Rates measured by this process, in case the cache directory is not writable."""


def select_fastest(
    task: str, version: str, candidates: Mapping[str, Callable[[], object]], flops: float
) -> str:
    """Return the name of the fastest candidate, from the cache or by measuring all of them.

    The instruction set does not predict the speed: some processors with bf16 instructions multiply
    bf16 matrices at half the rate of fp32, others at four times the rate. Rates are cached by task,
    processor, version and number of threads. A lock makes concurrent processes, such as the ranks
    of torchrun, measure only once.

    Args:
        task: the computation with its sizes, such as "decoding, matrix product 96x256 by 256x1024".
        version: version of the implementation.
        candidates: functions by name; each call does the same work.
        flops: floating-point operations per call.
    """
    key = f"{task}; {cpu_name()}; {version}; {num_threads()} threads"
    rates = _cached(key, candidates)
    if rates is None:
        with ExitStack() as stack:
            with suppress(OSError, RuntimeError):  # the cache directory is not writable
                stack.enter_context(locked(cache_dir() / "rates.lock", lambda: None))
            rates = _cached(key, candidates) or _measure_and_cache(key, task, candidates, flops)
    return max(rates, key=rates.__getitem__)


def _cached(key: str, candidates: Mapping[str, object]) -> dict[str, float] | None:
    rates = (cached_rates() | _process_cache).get(key, {})
    return rates if rates.keys() == candidates.keys() else None


def _measure_and_cache(
    key: str, task: str, candidates: Mapping[str, Callable[[], object]], flops: float
) -> dict[str, float]:
    rates = {
        name: round(flops / seconds / 1e9, 1)
        for name, seconds in _measure_seconds(candidates).items()
    }
    _process_cache[key] = rates
    with suppress(OSError, RuntimeError):  # the next process will measure again
        cache_dir().mkdir(parents=True, exist_ok=True)
        write_text(_cache_file(), json.dumps(cached_rates() | _process_cache, indent=1))
    summary = ", ".join(f"{name} {rate:,.0f} GFLOP/s" for name, rate in rates.items())
    log(f"{max(rates, key=rates.__getitem__)} is the fastest for {task} ({summary})")
    return rates


def _measure_seconds(candidates: Mapping[str, Callable[[], object]]) -> dict[str, float]:
    """Return the shortest time of each candidate. They take turns, so that other load on the
    machine affects all."""
    for run in candidates.values():  # warm-up
        run()
    shortest = dict.fromkeys(candidates, math.inf)
    end = time.perf_counter() + MEASURE_SECONDS * len(candidates)
    for _ in range(20):
        for name, run in candidates.items():
            start = time.perf_counter()
            run()
            shortest[name] = min(shortest[name], time.perf_counter() - start)
        if time.perf_counter() > end:
            break
    return shortest


def cached_rates() -> dict[str, dict[str, float]]:
    """Return the cached rates in GFLOP/s, by key (task; processor; version; threads) and candidate.

    Invalid entries are skipped.
    """
    try:
        content = json.loads(_cache_file().read_text(encoding="utf-8"))
    except (OSError, ValueError, RuntimeError):
        return {}
    entries = content.items() if isinstance(content, dict) else ()
    return {
        key: rates
        for key, rates in entries
        if isinstance(rates, dict) and all(map(_is_rate, rates.values()))
    }


def _is_rate(value: object) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def _cache_file() -> Path:
    return cache_dir() / "rates.json"
