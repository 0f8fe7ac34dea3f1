"""Many trainings of one configuration: a grid of options, several seeds of each, one table.

Every run is a process of its own, `nmt train` and `nmt evaluate` as a person would call them, in a folder of its own
under the sweep's. `results.jsonl` there gets a line for each run that is done; a sweep that was stopped goes on behind.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import re
import signal
import statistics
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NoReturn

from nmt.config import config_io
from nmt.console import log
from nmt.errors import UsageError
from nmt.paths import locked, write_text

RESULTS, PLAN, LOCK = "results.jsonl", "sweep.json", ".lock"
Options = Mapping[str, str]


@dataclass(frozen=True)
class Sweep:
    """What to run."""

    config: str
    common: tuple[str, ...]
    """`KEY=VALUE` of every run."""
    grid: dict[str, list[str]]
    """The values to try of each key; all combinations are run."""
    seeds: tuple[int, ...]
    time_limit: float | None = None
    """Seconds that each run may train."""
    device: str = "auto"

    def runs(self) -> Iterator[tuple[Options, int]]:
        """Yield the options and the seed of every run, all seeds of one combination together."""
        for values in itertools.product(*self.grid.values()):
            for seed in self.seeds:
                yield dict(zip(self.grid, values, strict=True)), seed


@dataclass(frozen=True)
class Result:
    """A run that is done, or failed with the exit code `failed`."""

    name: str
    options: dict[str, str]
    seed: int
    updates: int = 0
    hours: float = 0.0
    scores: dict[str, float] | None = None
    """Of the best validation (valid_bleu, ...) and of the test set (BLEU, chrF2)."""
    failed: int = 0


@dataclass(frozen=True)
class Row:
    """The runs of one combination of options: each score's mean and standard deviation over the seeds.

    Of one seed there is no deviation.
    """

    options: dict[str, str]
    runs: int
    failed: int
    scores: dict[str, tuple[float, float | None]]
    hours: float


def parse_grid(texts: Sequence[str]) -> dict[str, list[str]]:
    """Read `KEY=V1,V2,...`; commas within brackets and quotes belong to a value.

    Raises:
        UsageError: no key, no value, a bracket that is not closed, or a key or a value twice.
    """
    grid: dict[str, list[str]] = {}
    for text in texts:
        key, equals, values = text.partition("=")
        found = _split(values)
        if not key or not equals or not values.strip() or found is None:
            raise UsageError(f"cannot read --grid {text}", "write --grid train.label_smoothing=0,0.1,0.2")
        if key in grid:
            raise UsageError(f"--grid names {key} twice", "give all its values in one")
        if len(set(found)) < len(found):
            raise UsageError(f"--grid names a value of {key} twice", "each is run with every seed: --seeds 3")
        if key == "seed":
            raise UsageError("seeds are not part of the grid", "--seeds 3")
        grid[key] = found
    return grid


def _split(values: str) -> list[str] | None:
    """Split at commas outside brackets and quotes; None: one of those is not closed."""
    found, depth, quote = [""], 0, ""
    for letter in values:
        if letter == "," and not depth and not quote:
            found.append("")
            continue
        found[-1] += letter
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "'\"":
            quote = letter
        else:
            depth += (letter in "([{") - (letter in ")]}")
            if depth < 0:
                return None
    return None if depth or quote else [value.strip() for value in found]


def sweep(plan: Sweep, folder: Path) -> Iterator[Result]:
    """Do the runs that are not done yet, and yield every run's result in the plan's order.

    Raises:
        ConfigError: a combination is no valid configuration; nothing is trained then.
        UsageError: the folder holds another sweep, or another process is at it.
        KeyboardInterrupt: the sweep was interrupted; the run that it was at has been saved.
    """
    for options, seed in plan.runs():
        config_io.load(config_io.find(plan.config), _changes(plan, options, seed))
    _make(folder)
    with locked(folder / LOCK, lambda: _refuse(folder)):
        _claim(plan, folder)
        done = {result.name: result for result in read_results(folder) if not result.failed}
        write_text(folder / RESULTS, "".join(_line(result) for result in done.values()))  # failures are tried again
        todo = sum(_name(options, seed) not in done for options, seed in plan.runs())
        log(f"{todo} of {len(list(plan.runs()))} runs to do, in {folder}")
        for options, seed in plan.runs():
            name = _name(options, seed)
            if name not in done:
                done[name] = _run(plan, folder / name, options, seed)
                with open(folder / RESULTS, "a", encoding="utf-8") as file:
                    file.write(_line(done[name]))
            yield done[name]


def _line(result: Result) -> str:
    return json.dumps(asdict(result)) + "\n"


def _refuse(folder: Path) -> NoReturn:
    raise UsageError(f"another process is at the sweep in {folder}", "wait for it, or name another folder with --run")


def read_results(folder: Path) -> list[Result]:
    """Return the results that a sweep has so far; a line that a kill has cut is left out."""
    path, found = folder / RESULTS, []
    for line in path.read_text(encoding="utf-8", errors="replace").split("\n") if path.exists() else ():
        with suppress(ValueError, TypeError):
            found.append(Result(**json.loads(line)))
    return found


def table(results: Sequence[Result]) -> list[Row]:
    """Gather the seeds of each combination."""
    rows = []
    for _, group in itertools.groupby(results, key=lambda result: result.options):
        runs = list(group)
        good = [run for run in runs if run.scores]
        names = [*good[0].scores] if good and good[0].scores else []
        scores = {}
        for name in names:
            values = [run.scores[name] for run in good if run.scores and name in run.scores]
            scores[name] = (statistics.mean(values), statistics.stdev(values) if len(values) > 1 else None)
        hours = statistics.mean([run.hours for run in good]) if good else 0.0
        rows.append(Row(runs[0].options, len(good), len(runs) - len(good), scores, hours))
    return rows


def _name(options: Options, seed: int) -> str:
    parts = [f"{key.rpartition('.')[2]}={value}" for key, value in options.items()] + [f"seed={seed}"]
    return re.sub(r"[^\w.=+-]+", "-", "_".join(parts)).strip("-.")


def _changes(plan: Sweep, options: Options, seed: int) -> list[str]:
    return [*plan.common, *(f"{key}={value}" for key, value in options.items()), f"seed={seed}"]


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot write into {folder}: {error.strerror}", "name another folder with --run") from None


def _claim(plan: Sweep, folder: Path) -> None:
    """Note what is swept, or check that it is what was swept before; more values and more seeds may join."""
    path = folder / PLAN
    base = config_io.dump(config_io.load(config_io.find(plan.config), plan.common))
    now = json.loads(json.dumps(asdict(plan))) | {"sha256": hashlib.sha256(base.encode()).hexdigest()}
    if path.exists():
        try:
            before = json.loads(path.read_text(encoding="utf-8"))
            before["config"]
        except (OSError, ValueError, TypeError, KeyError):
            raise UsageError(f"{path} is damaged", "put it back, or name another folder with --run") from None
        same = {"config": "config", "common": "--set", "sha256": "content of its config", "time_limit": "--time-limit"}
        for name, called in same.items():
            if before.get(name) != now[name]:
                raise UsageError(
                    f"{folder} holds a sweep with another {called}", "give the same command to go on, or another --run"
                )
    write_text(path, json.dumps(now, indent=2) + "\n")


def _run(plan: Sweep, run: Path, options: Options, seed: int) -> Result:
    from nmt.runs import run_info

    name = _name(options, seed)
    log(f"training {name}")
    begun = (run / "config.yaml").exists()
    command = ["train", "--run", str(run), "--device", plan.device, *(["--resume"] if begun else [])]
    command += [] if begun else ["--config", plan.config]
    command += [word for change in ([] if begun else _changes(plan, options, seed)) for word in ("--set", change)]
    left = _time_left(plan, run)
    if left is not None:
        command += ["--time-limit", f"{left}s"]
    code = 0 if left == 0 else _nmt(command)[0]
    if code:
        return Result(name, dict(options), seed, failed=code)
    code, out = _nmt(["evaluate", "--model", str(run), "--bleu", "--chrf", "--json", "--device", plan.device])
    if code:
        return Result(name, dict(options), seed, failed=code)
    found = run_info.collect(run)
    scores = dict(found["best"]["validation"])
    scores.pop("quality", None)
    scores |= {score["name"]: score["value"] for score in json.loads(out)[0]["scores"]}
    return Result(name, dict(options), seed, found["training"]["updates"], found["training"]["hours"], scores)


def _time_left(plan: Sweep, run: Path) -> int | None:
    """Return the seconds that a run still has, less what an interrupted training has used of them; None: no limit."""
    from nmt.runs import checkpoint

    if plan.time_limit is None:
        return None
    saved = checkpoint.checkpoints(run)
    used = checkpoint.read_progress(saved[-1]).seconds if saved else 0.0
    return max(0, round(plan.time_limit - used))


def _nmt(arguments: Sequence[str]) -> tuple[int, str]:
    """Call nmt and return its exit code and its output; what it says on stderr is seen."""
    with subprocess.Popen([sys.executable, "-m", "nmt", *arguments], stdout=subprocess.PIPE, text=True) as process:
        try:
            out, _ = process.communicate()
        except KeyboardInterrupt:
            if not _at_terminal():
                process.send_signal(signal.SIGINT)
            process.wait()  # it saves what it has trained
            log("the same command goes on with the sweep")
            raise
    return process.returncode, out


def _at_terminal() -> bool:
    """Say whether Ctrl-C reaches the processes that this one starts, too."""
    if sys.platform == "win32":  # it reaches every process of the console
        return True
    with suppress(OSError):
        return os.tcgetpgrp(sys.stderr.fileno()) == os.getpgrp()
    return False
