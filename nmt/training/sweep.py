"""Trains a grid of options with several seeds and summarizes the results.

Each run executes `nmt train` and `nmt evaluate` in separate processes, in a subdirectory of the
sweep directory. `results.jsonl` gets a line for each finished run; an interrupted sweep continues
with the remaining runs.
"""

from __future__ import annotations

import hashlib
import json
import os
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TypedDict

from nmt.core import runtime
from nmt.core.config import FINE_TUNING, Config, config_io
from nmt.core.console import IN_SWEEP, counted, format_duration, log
from nmt.core.errors import UsageError
from nmt.core.paths import append_line, locked, make_directory, write_text
from nmt.core.untrusted_files import JsonObject, matches, read_record
from nmt.data.sources import open_split
from nmt.runs import run_report
from nmt.runs.sweep_results import (
    RESULTS,
    SWEEP_FILE,
    RunResult,
    Sweep,
    read_results,
)
from nmt.training import configs
from nmt.training.run_directory import CHOOSE_RUN, LOCK
from nmt.training.stopping import StopSignal, handle_stop_signals

TRAINED = ".trained"
"""File in a run whose training is complete; its evaluation may have failed."""


class _SavedSweep(TypedDict):
    """The parts of `sweep.json` that every sweep has."""

    config: str
    grid: JsonObject


def parse_grid(texts: Sequence[str]) -> dict[str, list[str]]:
    """Parse `KEY=V1,V2,...`. Commas inside parentheses, brackets and quotes do not separate values.

    Raises:
        UsageError: a key or value is missing or a duplicate, or a parenthesis, bracket or quote is
            not closed.
    """
    grid: dict[str, list[str]] = {}
    for text in texts:
        key, equals, value_list = text.partition("=")
        key, values = key.strip(), _split(value_list)
        if not key or not equals or not value_list.strip() or values is None:
            raise UsageError(
                f"cannot read --grid {text}", "write --grid train.label_smoothing=0,0.1,0.2"
            )
        if key in grid:
            raise UsageError(f"--grid {key} is given twice", "give all values in one --grid")
        if len(set(values)) < len(values):
            raise UsageError(
                f"--grid {key} contains a duplicate value", "use --seeds to repeat runs"
            )
        if key == "seed":
            raise UsageError("seed cannot be part of the grid", "use --seeds 3")
        grid[key] = values
    return grid


def _split(values: str) -> list[str] | None:
    """Split at commas outside parentheses, brackets and quotes. Return None if one of those is not
    closed."""
    parts = [""]
    depth = 0
    quote = ""
    for character in values:
        if character == "," and not depth and not quote:
            parts.append("")
            continue
        parts[-1] += character
        if quote:
            quote = "" if character == quote else quote
        elif character in "'\"":
            quote = character
        elif character in "([{":
            depth += 1
        elif character in ")]}":
            depth -= 1
            if depth < 0:
                return None
    return None if depth or quote else [part.strip() for part in parts]


def run_sweep(sweep: Sweep, directory: Path) -> Iterator[RunResult]:
    """Run all unfinished runs. Yield the saved results, then each new one when it is complete.

    Raises:
        ConfigError: a combination is not a valid config; nothing is trained.
        DataError: a combination has no test set; nothing is trained.
        UsageError: the device is not available or does not support the precision, the directory
            contains another sweep, another process runs it, or two runs would have one directory.
        KeyboardInterrupt: the sweep was interrupted; the current run is saved.
    """
    _check(sweep, directory)
    make_directory(directory, CHOOSE_RUN)
    busy = UsageError(
        f"another process is running the sweep in {directory}", f"wait for it, or {CHOOSE_RUN}"
    )
    with locked(directory / LOCK, busy), handle_stop_signals() as stop:
        _check_and_save(sweep, directory)
        finished = _finished(directory)
        lines = [json.dumps(asdict(result)) + "\n" for result in finished.values()]
        write_text(directory / RESULTS, "".join(lines))  # failed runs are repeated
        remaining = []
        for run in sweep.runs():
            if run.name in finished:
                yield finished[run.name]
            else:
                remaining.append(run)
        progress = _Progress(sweep, len(remaining), finished.values())
        num_runs = counted(progress.num_runs, "run")
        log(f"{len(remaining):,} of {num_runs} remaining in {directory}")
        for run in remaining:
            yield _make_run(sweep, directory, run, progress, stop)


def _make_run(
    sweep: Sweep, directory: Path, run: RunResult, progress: _Progress, stop: StopSignal
) -> RunResult:
    log(f"{progress}: {run.name}")
    start = time.monotonic()
    result = _train_and_evaluate(sweep, directory, run, stop)
    append_line(directory / RESULTS, json.dumps(asdict(result)))
    progress.add(result, time.monotonic() - start)
    return result


class _Progress:
    """Numbers the runs of a sweep, and estimates the time left from finished ones or the time
    limit."""

    def __init__(self, sweep: Sweep, num_remaining: int, finished: Iterable[RunResult]) -> None:
        self.num_runs = sum(1 for _ in sweep.runs())
        self._num_remaining = num_remaining
        self._time_limit = sweep.time_limit
        self._durations = [result.hours * 3600 for result in finished]
        """Of earlier sessions: without start and evaluation."""
        self._measured: list[float] = []

    def __str__(self) -> str:
        number = self.num_runs - self._num_remaining + 1
        text = f"run {number:,} of {self.num_runs:,}"
        durations = self._measured or self._durations
        if durations:
            seconds = self._num_remaining * statistics.mean(durations)
            return f"{text}, about {format_duration(seconds)} left"
        if self._time_limit:
            seconds = self._num_remaining * self._time_limit
            return f"{text}, at most about {format_duration(seconds)} left"
        return text

    def add(self, result: RunResult, seconds: float) -> None:
        """Add a run."""
        self._num_remaining -= 1
        if not result.exit_code:
            self._measured.append(seconds)


def _check(sweep: Sweep, directory: Path) -> None:
    """Check the names, the configs and the test sets of all runs, before anything is trained."""
    names = Counter(run.name for run in sweep.runs())
    for name, count in names.items():
        if count > 1:
            raise UsageError(
                f"two combinations of --grid would be in {directory / name}",
                "use one --grid for each",
            )
    if sweep.config == FINE_TUNING:
        raise UsageError(
            f"nmt sweep does not support --config {FINE_TUNING}",
            "name the config of the model: --config runs/NAME/config.yaml --set"
            " train.init_from=runs/NAME",
        )
    device = runtime.resolve_device(sweep.device)
    runtime.check_precision(sweep.precision, device)
    finished = _finished(directory)
    tests = set()
    names_of_configs: dict[Config, str] = {}
    for run in sweep.runs():
        config = configs.load_checked(sweep.config, _overrides(sweep, run))
        data = config.data
        first_name = names_of_configs.setdefault(config, run.name)
        if first_name != run.name:
            raise UsageError(
                f"--grid contains a duplicate value: {first_name} and {run.name} are the same",
                "use --seeds to repeat runs",
            )
        if run.name not in finished:
            tests.add((data.test or data.train[0], "test", data.src, data.tgt))
    for test in tests:
        open_split(*test)


def _finished(directory: Path) -> dict[str, RunResult]:
    """Return the results of the runs that have not failed, by name."""
    return {result.name: result for result in read_results(directory) if not result.exit_code}


def _overrides(sweep: Sweep, run: RunResult) -> list[str]:
    options = [f"{key}={value}" for key, value in run.options.items()]
    return [*sweep.common, *options, f"seed={run.seed}"]


def _check_and_save(sweep: Sweep, directory: Path) -> None:
    """Check that config, overrides, time limit, precision and the options of the grid equal the
    saved ones, and save the sweep.

    The values of the options and the seeds may differ.
    """
    path = directory / SWEEP_FILE
    base = json.dumps(
        config_io.read_yaml(config_io.find(sweep.config)), sort_keys=True, default=str
    )
    current = json.loads(json.dumps(asdict(sweep))) | {
        "sha256": hashlib.sha256(base.encode()).hexdigest()
    }
    if path.exists():
        saved = {"precision": "auto"} | read_record(path)  # sweeps need not state it
        if not matches(saved, _SavedSweep):
            raise UsageError(f"{path} is damaged", f"restore it, or {CHOOSE_RUN}")
        if [*saved["grid"]] != [*current["grid"]]:
            problem = "contains a sweep with other options in --grid, or in another order"
            raise UsageError(
                f"{directory} {problem}", f"only their values may change; {CHOOSE_RUN}"
            )
        fixed = {
            "config": "--config",
            "common": "--set",
            "sha256": "config content",
            "time_limit": "--time-limit",
            "precision": "--precision",
        }
        for name, label in fixed.items():
            if saved.get(name) != current[name]:
                raise UsageError(
                    f"{directory} contains a sweep with another {label}",
                    f"repeat its command, whose options are in {path}, or {CHOOSE_RUN}",
                )
    write_text(path, json.dumps(current, indent=2) + "\n")


def _train_and_evaluate(
    sweep: Sweep, directory: Path, run: RunResult, stop: StopSignal
) -> RunResult:
    """Train and evaluate a run, and return it with its result.

    Raises:
        KeyboardInterrupt: a signal stopped it.
    """
    path = directory / run.name
    if not (path / TRAINED).exists():
        exit_code = _run_command(_training_command(sweep, path, run), stop)
        if exit_code:
            return replace(run, exit_code=exit_code)
        (path / TRAINED).touch()
    evaluation = ["evaluate", "--model", str(path), "--bleu", "--chrf", "--device", sweep.device]
    exit_code = _run_command(evaluation, stop)
    if exit_code:
        return replace(run, exit_code=exit_code)
    report = max((path / "eval").glob("*.json"), key=lambda path: path.stat().st_mtime_ns)
    info = run_report.collect(path)
    scores = dict(info["best"]["validation"])
    scores.pop("best_metric_value", None)
    for score in json.loads(report.read_text("utf-8"))["scores"]:
        scores[score["name"]] = score["value"]
    training = info["training"]
    return replace(run, updates=training["updates"], hours=training["hours"], scores=scores)


def _training_command(sweep: Sweep, path: Path, run: RunResult) -> list[str]:
    command = ["train", "--run", str(path), "--device", sweep.device]
    command += ["--precision", sweep.precision]
    if (path / "config.yaml").exists():
        command += ["--resume"]
    else:
        command += ["--config", sweep.config]
        for override in _overrides(sweep, run):
            command += ["--set", override]
    if sweep.time_limit is not None:
        command += ["--time-limit", f"{_remaining_seconds(sweep.time_limit, path)}s"]
    return command


def _remaining_seconds(time_limit: float, run: Path) -> int:
    """Return the remaining training time of a run, at least a second."""
    last = run_report.last_progress(run)
    return max(1, round(time_limit - (last.seconds if last else 0.0)))


def _run_command(arguments: Sequence[str], stop: StopSignal) -> int:
    """Run a command of nmt in a subprocess and return its exit code.

    Raises:
        KeyboardInterrupt: a signal stopped it.
    """
    process = start_nmt(arguments)
    try:
        exit_code = stop.interruptible(process.wait)
        if exit_code is None or stop.requested:
            raise KeyboardInterrupt
        return exit_code
    finally:
        process.terminate()
        process.wait()  # training saves a checkpoint


def start_nmt(arguments: Sequence[str]) -> subprocess.Popen[bytes]:
    """Start a command of nmt in a subprocess without stdout."""
    command = [sys.executable, "-m", "nmt", *arguments]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, env=os.environ | {IN_SWEEP: "1"})
