"""The plan and the results of a sweep: names and labels of its runs, means and significance."""

from __future__ import annotations

import hashlib
import itertools
import math
import re
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypedDict, TypeVar

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
Scores = dict[str, list[float]]
"""The scores of all seeds by name."""
T = TypeVar("T")


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
    precision: str = "auto"

    def combinations(self) -> Iterator[dict[str, str]]:
        """Yield the options of each combination."""
        for values in itertools.product(*self.grid.values()):
            options = zip(self.grid, values, strict=True)
            yield dict(options)

    def runs(self) -> Iterator[RunResult]:
        """Yield each run, without results; the seeds of a combination are consecutive."""
        for options, seed in itertools.product(self.combinations(), self.seeds):
            yield RunResult(run_name(options, seed), options, seed)


class _Plan(TypedDict):
    """The parts of `sweep.json` that name its runs."""

    grid: dict[str, list[str]]
    seeds: list[int]


@dataclass(frozen=True)
class RunResult:
    """A run and its result."""

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
    results = []
    for record in read_records(directory / RESULTS):
        if matches(record, RunResult):
            results.append(RunResult(**record))
    return results


def group_by_options(items: Iterable[tuple[Options, T]]) -> list[tuple[Options, list[T]]]:
    """Return the items of each combination, in the order of the first ones."""
    combinations: list[tuple[Options, list[T]]] = []
    for options, item in items:
        for known, group in combinations:
            if known == options:
                group.append(item)
                break
        else:
            combinations.append((options, [item]))
    return combinations


def runs_by_options(directory: Path) -> list[tuple[Options, list[Path]]]:
    """Return the combinations of a sweep and the directories of their runs that have a log, also of
    unfinished ones; none if the directory has no sweep."""
    runs = _planned_runs(directory)
    # Values that the plan no longer has follow.
    for result in read_results(directory):
        runs.setdefault(result.name, result.options)
    with_log = []
    for name, options in runs.items():
        run = directory / name
        if (run / "metrics.jsonl").is_file():
            with_log.append((options, run))
    return group_by_options(with_log)


def _planned_runs(directory: Path) -> dict[str, Options]:
    """Return the options of the runs by name; none if there is no plan, or a damaged one."""
    plan = read_record(directory / SWEEP_FILE)
    if not matches(plan, _Plan):
        return {}
    seeds = tuple(plan["seeds"])
    sweep = Sweep("", (), plan["grid"], seeds)
    num_combinations = math.prod(map(len, sweep.grid.values()))
    if num_combinations * len(seeds) > MAX_RUNS:
        return {}
    return {run.name: run.options for run in sweep.runs()}


def assignments(options: Options) -> list[str]:
    """Return `name=value` for each option, with the last part of its key."""
    parts = []
    for key, value in options.items():
        name = key.rpartition(".")[2]
        parts.append(f"{name}={value}")
    return parts


def run_name(options: Options, seed: int) -> str:
    """Return the directory name of a run; a long one ends with a hash, because file systems allow
    255 bytes."""
    parts = [*assignments(options), f"seed={seed}"]
    joined = "_".join(parts)
    name = re.sub(r"[^\w.=+-]+", "-", joined).strip("-.")
    encoded = name.encode()
    if len(encoded) <= MAX_NAME_BYTES:
        return name
    digest = hashlib.sha256(encoded).hexdigest()[:9]
    max_start_bytes = MAX_NAME_BYTES - 1 - len(digest)
    start = encoded[:max_start_bytes].decode(errors="ignore")
    return f"{start}-{digest}"


def short_options(combinations: Sequence[Options]) -> list[dict[str, str]]:
    """Return the options in which combinations differ, by short names.

    Specs of one component are compared by their own options: `linear(peak=3e-3, warmup=50)` and
    `linear(peak=3e-3, warmup=300)` differ in `warmup`.
    """
    expanded: list[dict[str, str]] = [{} for _ in combinations]
    keys = dict.fromkeys(itertools.chain.from_iterable(combinations))
    for key in keys:
        values = [options.get(key, "") for options in combinations]
        for short, parts in zip(expanded, _expand(key, values), strict=True):
            short |= parts
    items = [set(short.items()) for short in expanded]
    shared = set.intersection(*items)
    differing = []
    for short in expanded:
        own = {}
        for name, value in short.items():
            if (name, value) not in shared:
                own[name] = value or "(empty)"
        differing.append(own)
    return differing


def _expand(key: str, values: Sequence[str]) -> list[dict[str, str]]:
    """Return the options of each spec if all are of one component; otherwise each value by the last
    part of the key."""
    specs = [_parse_spec(value) for value in values]
    components = {name for name, _ in specs}
    if len(components) == 1 and "" not in components:
        return [options for _, options in specs]
    short_key = key.rpartition(".")[2]
    expanded = []
    for value in values:
        expanded.append({short_key: value})
    return expanded


def _parse_spec(value: str) -> tuple[str, dict[str, str]]:
    """Return the name and the options of a spec; an empty name if it has no options."""
    try:
        name, options = parse(value)
    except ConfigError:
        return "", {}
    if not options:
        return "", {}
    texts = {key: str(option) for key, option in options.items()}
    return name, texts


def summarize(sweep: Sweep, results: Sequence[RunResult]) -> list[SummaryRow]:
    """Summarize the results of each combination over its seeds, in the order of the sweep."""
    rows: list[SummaryRow] = []
    baseline: Scores = {}
    for options in sweep.combinations():
        runs = [result for result in results if result.options == options]
        scored = [run for run in runs if run.scores]
        scores = _scores_by_name(scored)
        summaries = {}
        for name, values in scores.items():
            summaries[name] = _mean_and_deviation(values)
        p_values = _p_values(baseline, scores)
        if not rows:
            baseline = scores
        all_hours = [run.hours for run in scored]
        hours = statistics.mean(all_hours) if all_hours else 0.0
        num_failed = len(runs) - len(scored)
        row = SummaryRow(options, len(scored), num_failed, summaries, hours, p_values)
        rows.append(row)
    return rows


def _scores_by_name(runs: Sequence[RunResult]) -> Scores:
    """Return a list with the scores of all seeds for each name."""
    scores: Scores = {}
    for run in runs:
        of_run = run.scores or {}
        for name, value in of_run.items():
            of_seeds = scores.setdefault(name, [])
            of_seeds.append(value)
    return scores


def _mean_and_deviation(values: Sequence[float]) -> tuple[float, float | None]:
    mean = statistics.mean(values)
    if len(values) == 1:
        return mean, None
    return mean, statistics.stdev(values)


def _p_values(baseline: Scores, scores: Scores) -> dict[str, float]:
    p_values = {}
    for name, values in scores.items():
        reference = baseline.get(name, [])
        if len(reference) > 1 and len(values) > 1:
            p_values[name] = permutation_test(reference, values)
    return p_values


def permutation_test(first: Sequence[float], second: Sequence[float]) -> float:
    """Return the two-sided p-value of the difference of two means.

    It is the share of all divisions of the values into two groups of these sizes whose means differ
    at least as much (Fisher 1935). Unlike a t-test, this assumes no distribution, which a few seeds
    could not show.
    """
    values = np.array([*first, *second])
    num_first = len(first)
    num_second = len(second)
    num_divisions = math.comb(len(values), num_first)
    if num_divisions <= MAX_PERMUTATIONS:
        first_groups = np.array(list(itertools.combinations(values, num_first)))
    else:
        orders = np.tile(values, (MAX_PERMUTATIONS, 1))
        generator = np.random.default_rng(1)
        # The first row stays: it is the division that was observed.
        orders[1:] = generator.permuted(orders[1:], axis=1)
        first_groups = orders[:, :num_first]
    first_sums = first_groups.sum(1)
    second_sums = values.sum() - first_sums
    differences = np.abs(first_sums / num_first - second_sums / num_second)
    observed = abs(statistics.mean(first) - statistics.mean(second))
    # Sums in another order are rounded differently.
    is_as_large = differences >= observed - 1e-9
    return float(is_as_large.mean())


def min_p_value(num_first: int, num_second: int) -> float:
    """Return the smallest p-value of `permutation_test` for two numbers of seeds. Groups of one
    size can be exchanged, which doubles it."""
    num_extreme = 2 if num_first == num_second else 1
    return num_extreme / math.comb(num_first + num_second, num_first)
