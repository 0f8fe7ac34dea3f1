"""The plan and the results of a sweep: names and labels of its runs, means and significance."""

from __future__ import annotations

import hashlib
import itertools
import math
import re
import statistics
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypedDict

import numpy as np

from nmt.core.errors import ConfigError
from nmt.core.registry import parse
from nmt.core.untrusted_files import Count, Number, matches, read_record, read_records

RESULTS, SWEEP_FILE = "results.jsonl", "sweep.json"
MAX_NAME_BYTES = 255
MAX_RUNS = 100_000
MAX_PERMUTATIONS = 20_000
"""Above this number, the permutation test draws as many at random."""
SIGNIFICANT = 0.05
Options = Mapping[str, str]


@dataclass(frozen=True)
class Sweep:
    """The runs of a sweep."""

    config: str
    common: tuple[str, ...]
    """`KEY=VALUE` overrides of all runs."""
    grid: dict[str, list[str]]
    """Values of each key; the sweep runs all combinations."""
    seeds: tuple[int, ...]
    time_limit: float | None = None
    """Training time of each run in seconds."""
    device: str = "auto"

    def combinations(self) -> Iterator[dict[str, str]]:
        """Yield the options of each combination."""
        for values in itertools.product(*self.grid.values()):
            yield dict(zip(self.grid, values, strict=True))

    def runs(self) -> Iterator[tuple[Options, int]]:
        """Yield the options and the seed of each run; the seeds of a combination are
        consecutive."""
        return itertools.product(self.combinations(), self.seeds)


class _Plan(TypedDict):
    """The parts of `sweep.json` that name its runs."""

    grid: dict[str, list[str]]
    seeds: list[int]


@dataclass(frozen=True)
class RunResult:
    """Result of a run."""

    name: str
    options: dict[str, str]
    seed: int
    updates: Count = 0
    hours: Number = 0.0
    scores: dict[str, Number] | None = None
    """Scores of the best validation (valid_bleu, ...) and of the test set (BLEU, chrF2)."""
    exit_code: int = 0
    """Exit code of the command that failed; 0 if none did."""


@dataclass(frozen=True)
class SummaryRow:
    """Mean and standard deviation of the scores of one combination over its seeds.

    With one seed, the standard deviation is None.
    """

    options: dict[str, str]
    num_finished: int
    num_failed: int
    scores: dict[str, tuple[float, float | None]]
    hours: float
    p_values: dict[str, float] = field(default_factory=dict)
    """Of the difference from the first row; empty if one of them has fewer than two seeds."""


def read_results(directory: Path) -> list[RunResult]:
    """Return the results of a sweep so far; truncated and damaged lines are skipped."""
    records = read_records(directory / RESULTS)
    return [RunResult(**record) for record in records if matches(record, RunResult)]


def runs_by_options(directory: Path) -> list[tuple[dict[str, str], list[Path]]]:
    """Return the combinations of a sweep and the directories of their runs that have a log, also of
    unfinished ones; none if the directory has no sweep."""
    runs = {result.name: result.options for result in read_results(directory)}
    plan = read_record(directory / SWEEP_FILE)
    if matches(plan, _Plan):
        sweep = Sweep("", (), plan["grid"], tuple(plan["seeds"]))
        if math.prod(map(len, sweep.grid.values())) * len(sweep.seeds) <= MAX_RUNS:
            # In the order of the plan; values that it no longer has follow.
            runs = {run_name(options, seed): dict(options) for options, seed in sweep.runs()} | runs
    combinations: list[tuple[dict[str, str], list[Path]]] = []
    for name, options in runs.items():
        if not (directory / name / "metrics.jsonl").is_file():
            continue
        for known, paths in combinations:
            if known == options:
                paths.append(directory / name)
                break
        else:
            combinations.append((options, [directory / name]))
    return combinations


def run_name(options: Options, seed: int) -> str:
    """Return the directory name of a run; a long one ends with a hash, because file systems allow
    255 bytes."""
    parts = [f"{key.rpartition('.')[2]}={value}" for key, value in options.items()]
    parts.append(f"seed={seed}")
    name = re.sub(r"[^\w.=+-]+", "-", "_".join(parts)).strip("-.")
    encoded = name.encode()
    if len(encoded) <= MAX_NAME_BYTES:
        return name
    start = encoded[: MAX_NAME_BYTES - 10].decode(errors="ignore")
    digest = hashlib.sha256(encoded).hexdigest()
    return f"{start}-{digest[:9]}"


def short_options(combinations: Sequence[Options]) -> list[dict[str, str]]:
    """Return the options in which combinations differ, by short names.

    Specs of one component are compared by their own options: `linear(peak=3e-3, warmup=50)` and
    `linear(peak=3e-3, warmup=300)` differ in `warmup`.
    """
    expanded: list[dict[str, str]] = [{} for _ in combinations]
    for key in dict.fromkeys(key for options in combinations for key in options):
        values = [options.get(key, "") for options in combinations]
        specs = [_parse_spec(value) for value in values]
        names = {name for name, _ in specs}
        is_one_component = len(names) == 1 and "" not in names
        for short, value, (_, parts) in zip(expanded, values, specs, strict=True):
            short |= parts if is_one_component else {key.rpartition(".")[2]: value}
    short_names = dict.fromkeys(name for short in expanded for name in short)
    differing = [name for name in short_names if len({short.get(name) for short in expanded}) > 1]
    return [{name: short.get(name) or "(empty)" for name in differing} for short in expanded]


def _parse_spec(value: str) -> tuple[str, dict[str, str]]:
    """Return the name and the options of a spec; an empty name if it has no options."""
    with suppress(ConfigError):
        name, options = parse(value)
        if options:
            return name, {key: str(option) for key, option in options.items()}
    return "", {}


def summarize(sweep: Sweep, results: Sequence[RunResult]) -> list[SummaryRow]:
    """Summarize the results of each combination over its seeds, in the order of the sweep."""
    rows: list[SummaryRow] = []
    baseline: dict[str, list[float]] = {}
    for options in sweep.combinations():
        runs = [result for result in results if result.options == options]
        scored = [run for run in runs if run.scores]
        values = _values_by_score(scored)
        scores = {}
        p_values = {}
        for name, of_seeds in values.items():
            deviation = statistics.stdev(of_seeds) if len(of_seeds) > 1 else None
            scores[name] = (statistics.mean(of_seeds), deviation)
            if rows and min(len(of_seeds), len(baseline.get(name, []))) > 1:
                p_values[name] = permutation_test(baseline[name], of_seeds)
        if not rows:
            baseline = values
        hours = statistics.mean([run.hours for run in scored]) if scored else 0.0
        num_failed = len(runs) - len(scored)
        rows.append(SummaryRow(options, len(scored), num_failed, scores, hours, p_values))
    return rows


def _values_by_score(runs: Sequence[RunResult]) -> dict[str, list[float]]:
    values: dict[str, list[float]] = {}
    for run in runs:
        for name, value in (run.scores or {}).items():
            values.setdefault(name, []).append(value)
    return values


def permutation_test(first: Sequence[float], second: Sequence[float]) -> float:
    """Return the two-sided p-value of the difference of two means.

    It is the share of all divisions of the values into two groups of these sizes whose means differ
    at least as much (Fisher 1935). Unlike a t-test, this assumes no distribution, which a few seeds
    could not show.
    """
    values = np.array([*first, *second])
    num_first = len(first)
    num_second = len(second)
    if math.comb(len(values), num_first) <= MAX_PERMUTATIONS:
        divisions = np.array(list(itertools.combinations(values, num_first)))
    else:
        copies = np.tile(values, (MAX_PERMUTATIONS, 1))
        copies[1:] = np.random.default_rng(1).permuted(copies[1:], axis=1)
        divisions = copies[:, :num_first]
    sums = divisions.sum(1)
    differences = np.abs(sums / num_first - (values.sum() - sums) / num_second)
    observed = abs(statistics.mean(first) - statistics.mean(second))
    # Sums in another order are rounded differently.
    return float(np.mean(differences >= observed - 1e-9))


def min_p_value(num_first: int, num_second: int) -> float:
    """Return the smallest p-value of `permutation_test` for two numbers of seeds. Groups of one
    size can be exchanged, which doubles it."""
    num_extreme = 2 if num_first == num_second else 1
    return num_extreme / math.comb(num_first + num_second, num_first)
