"""Selects the fastest implementation by measuring candidates on this machine. Results are cached on
disk."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

from nmt.core.console import log
from nmt.core.paths import cache_dir, locked, write_text
from nmt.core.runtime import cpu_name, num_threads
from nmt.core.untrusted_files import Number, matches, read_record

MEASURE_SECONDS = 0.08
"""Time to measure each candidate."""
MIN_ROUNDS, MAX_ROUNDS = 5, 20
"""Number of measurements of each candidate. On a busy machine, a single one may take any time."""
Rates = dict[str, float]
Prepare = Callable[[str], Callable[[], object]]
"""Returns the function of a candidate; each call of it does the same work."""
process_cache: dict[str, Rates] = {}
"""Rates measured by this process, in case the cache directory is not writable."""


def select(task: str, version: str, names: Sequence[str], prepare: Prepare, flops: float) -> str:
    """Return the name of the fastest candidate, from the cache or by measuring all of them.

    The instruction set does not predict the speed: some processors with bf16 instructions multiply
    bf16 matrices at half the rate of fp32, others at four times the rate. Rates are cached by task,
    processor, version and number of threads. A lock makes concurrent processes, such as the ranks
    of torchrun, measure only once.

    Args:
        task: the computation with its sizes, such as "decoding, matrix product 96x256 by 256x1024".
        version: version of the implementation.
        names: the candidates.
        prepare: called for each of them if they are measured.
        flops: floating-point operations per call.
    """
    key = task + conditions(version)
    rates = _cached(key, names)
    if not rates:
        with ExitStack() as stack:
            with suppress(OSError, RuntimeError):  # the cache directory is not writable
                stack.enter_context(locked(cache_dir() / "rates.lock", lambda: None))
            rates = _cached(key, names)
            if not rates:
                candidates = {name: prepare(name) for name in names}
                rates = _measure_rates(candidates, flops)
                _save(key, rates)
                log(f"the fastest for {task}: {summarize(rates)}")
    return _fastest(rates)


def conditions(version: str) -> str:
    """Return the end of the keys of rates that this process can use."""
    return f"; {cpu_name()}; {version}; {num_threads()} threads"


def summarize(rates: Rates) -> str:
    """Return the name of the fastest candidate, and the rate of each one in parentheses."""
    parts = []
    for name, rate in rates.items():
        parts.append(f"{name} {rate:,.0f} GFLOP/s")
    return f"{_fastest(rates)} ({', '.join(parts)})"


def _fastest(rates: Rates) -> str:
    return max(rates, key=rates.__getitem__)


def _cached(key: str, names: Sequence[str]) -> Rates:
    cached = cached_rates() | process_cache
    rates = cached.get(key, {})
    return rates if rates.keys() == set(names) else {}


def _save(key: str, rates: Rates) -> None:
    process_cache[key] = rates
    with suppress(OSError, RuntimeError):  # the next process will measure again
        cache_dir().mkdir(parents=True, exist_ok=True)
        content = json.dumps(cached_rates() | process_cache, indent=1)
        write_text(_cache_file(), content)


def _measure_rates(candidates: Mapping[str, Callable[[], object]], flops: float) -> Rates:
    """Return the highest rate of each candidate in GFLOP/s. They take turns, so that other load on
    the machine affects all."""
    for run in candidates.values():  # warm-up
        run()
    shortest = dict.fromkeys(candidates, math.inf)
    end = time.perf_counter() + MEASURE_SECONDS * len(candidates)
    for num_rounds in range(1, 1 + MAX_ROUNDS):
        for name, run in candidates.items():
            start = time.perf_counter()
            run()
            seconds = time.perf_counter() - start
            shortest[name] = min(shortest[name], seconds)
        if num_rounds >= MIN_ROUNDS and time.perf_counter() > end:
            break
    rates = {}
    for name, seconds in shortest.items():
        gigaflops = flops / seconds / 1e9
        rates[name] = round(gigaflops, 1)
    return rates


def cached_rates() -> dict[str, Rates]:
    """Return the cached rates in GFLOP/s, by key (task; processor; version; threads) and candidate.

    Invalid entries are skipped.
    """
    with suppress(RuntimeError):  # there is no home directory
        entries = read_record(_cache_file())
        valid = {}
        for key, rates in entries.items():
            if matches(rates, dict[str, Number]):
                valid[key] = rates
        return valid
    return {}


def _cache_file() -> Path:
    return cache_dir() / "rates.json"
