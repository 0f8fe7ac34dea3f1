"""Fine-tuning: what a run keeps of the model that it starts from, and the comparison of both after
training."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from nmt.core.config import Config
from nmt.core.console import format_p, log
from nmt.core.errors import CheckpointError, DataError, NMTError
from nmt.core.layout import format_table
from nmt.core.paths import write_json
from nmt.core.untrusted_files import JsonObject, read_record
from nmt.data.prepare import PreparedData
from nmt.data.sources import get_corpus
from nmt.evaluate.comparison import MetricResult, System, significance
from nmt.evaluate.evaluation import translate_test_set
from nmt.evaluate.test_sets import (
    TestSet,
    corpus_test_set,
    default_test_set,
    named_test_set,
    sample,
)
from nmt.models import discovery
from nmt.runs import checkpoint, run_report
from nmt.runs.model_files import LIMITS, ModelFiles
from nmt.training.trainer import validation_set
from nmt.translation.translator import Translator

METRICS = ("bleu", "chrf")
MAX_LINES, MAX_LINES_WITH_TIME_LIMIT = 10_000, 1_000
"""Maximum number of sentences of each test set. The first limits the memory of the significance
tests."""
RESAMPLES = 1000
"""Bootstrap resamples of the significance tests."""
COLUMNS = ["test set", "sentences", "metric", "start", "tuned", "difference", "p", "better"]


def inherit(prepared: PreparedData, run: Path, start: Path) -> PreparedData:
    """Add the record of the start model, and its limits for the length of a line, to the metadata
    of a run's data.

    A line that the start model translates as a unit must not be split because the new data has
    short lines only. A resumed run keeps the values in its own `data.json`, because the start model
    may have been deleted.
    """
    names = {*LIMITS, "derived_from"}
    saved = read_record(run / "data.json")
    if saved.keys() >= names and checkpoint.checkpoints(run):
        inherited = {name: saved[name] for name in names}
    else:  # a new run, or one without a checkpoint, which starts again
        model = discovery.find_model(start)
        inherited = {name: max(prepared.meta[name], getattr(model, name)) for name in LIMITS}
        inherited["derived_from"] = [run_report.parent_record(model)]
    return replace(prepared, meta=prepared.meta | inherited)


def compare_with_start(
    config: Config, run: Path, prepared: PreparedData, device: str, *, has_time_limit: bool
) -> None:
    """Compare the start model with the best checkpoint on the test set of the new data and on
    general test sets.

    Logs a table and writes `comparison.json`. Does nothing if that file belongs to this checkpoint
    and these test sets. A test set that cannot be loaded is logged and left out: the training run
    is complete.

    Args:
        config: config of the run.
        run: the run directory.
        prepared: its data; the validation split is the test set if the new data has none.
        device: device name, such as `cpu`.
        has_time_limit: whether to use at most 1,000 sentences per test set.

    Raises:
        CheckpointError: the start model has changed or no longer exists, or a file is damaged.
    """
    best = checkpoint.best(run)
    if best is None:
        return
    weights = run_report.weights_checksum(best)  # a longer run replaces average-N
    general_test = config.data.general_test
    if _is_compared(run, weights, config):
        return
    start = discovery.find_model(Path(config.train.init_from))
    _check_start_unchanged(config, run, start)
    max_lines = MAX_LINES_WITH_TIME_LIMIT if has_time_limit else MAX_LINES
    tests = [_sample(test, max_lines) for test in _load_test_sets(config, prepared, start)]
    results = _compare(start.checkpoint, best, tests, config.search, device)
    log(f"start model {config.train.init_from} and fine-tuned model {best}:")
    rows = [COLUMNS]
    for result in results:
        rows += result.rows()
    for line in format_table(rows):
        log(f"  {line}")
    record = {
        "start": f"{start.run.resolve().name}/{start.checkpoint.name}",
        "checkpoint": best.name,
        "weights": weights,
        "search": config.search,
        # If one could not be loaded, resuming the run compares again.
        "general_test": general_test if len(tests) > len(general_test) else [],
        "tests": [result.record() for result in results],
    }
    write_json(run / run_report.COMPARISON, record)


@dataclass(frozen=True)
class _Result:
    """The metrics of both models on a test set."""

    test: TestSet
    metrics: list[MetricResult]

    def rows(self) -> list[list[str]]:
        """Return a row of the table for each metric; see `COLUMNS`."""
        rows = []
        for metric in self.metrics:
            scores = [f"{metric.first_score:.1f}", f"{metric.second_score:.1f}"]
            difference = f"{metric.second_score - metric.first_score:+.1f}"
            better = ("start", "tuned", "not significant")[metric.better]  # -1: not significant
            head = [self.test.name, f"{len(self.test.sources):,}", metric.name]
            rows.append([*head, *scores, difference, format_p(metric.p), better])
        return rows

    def record(self) -> JsonObject:
        """Return the entry of `comparison.json`."""
        metrics = [metric.as_dict() | {"p": metric.p} for metric in self.metrics]
        return {"test": self.test.name, "lines": len(self.test.sources), "metrics": metrics}


def _is_compared(run: Path, weights: str, config: Config) -> bool:
    saved = read_record(run / run_report.COMPARISON)
    has_same_models = saved.get("weights") == weights and saved.get("search") == config.search
    compared = saved.get("general_test", [])
    return has_same_models and {*config.data.general_test} <= {*compared}


def _compare(
    start: Path, tuned: Path, tests: list[TestSet], search: str, device: str
) -> list[_Result]:
    before = _translate(start, tests, search, device)
    after = before
    if tuned.name == "step-000000":
        log(
            f"no validation is better than that of the start model: the best checkpoint, {tuned},"
            " is the start model"
        )
    else:
        after = _translate(tuned, tests, search, device)
    results = []
    for test, first, second in zip(tests, before, after, strict=True):
        systems = System("start", first), System("tuned", second)
        results.append(_Result(test, significance(*systems, test, METRICS, RESAMPLES)))
    return results


def _check_start_unchanged(config: Config, run: Path, start: ModelFiles) -> None:
    parents = run_report.collect(run)["derived_from"]  # several of an average
    if len(parents) == 1 and parents[0]["sha256"] != run_report.weights_checksum(start.checkpoint):
        raise CheckpointError(f"{config.train.init_from} has changed since {run} started from it")


def _sample(test: TestSet, max_lines: int) -> TestSet:
    if len(test.sources) > max_lines:
        log(f"{test.name}: comparing {max_lines:,} of {len(test.sources):,} sentences")
    return sample(test, max_lines)


def _load_test_sets(config: Config, prepared: PreparedData, start: ModelFiles) -> list[TestSet]:
    """Return the test set of the new data, and the general ones that can be loaded."""
    domain = _domain_test_set(config, prepared)
    general = list(_general_test_sets(config, start, domain))
    if not general:
        log(
            "no comparison on other text: name test sets with --set data.general_test=wmt14, for"
            " example"
        )
    return [domain, *general]


def _domain_test_set(config: Config, prepared: PreparedData) -> TestSet:
    try:
        return default_test_set(config.data)
    except DataError as error:  # without a test split, or its files have been removed
        if config.data.test:
            log(f"no comparison on data.test: {error.message}")
        return validation_set(prepared)


def _general_test_sets(config: Config, start: ModelFiles, domain: TestSet) -> Iterator[TestSet]:
    """Yield `data.general_test`, by default the test split of the start model's data, else of the
    replay data."""
    data = config.data
    for name in data.general_test:
        try:
            yield named_test_set(name, data.src, data.tgt)
        except NMTError as error:
            log(f"no comparison on {name}: {error.message}")
    if data.general_test:
        return
    own = start.config.data.test or start.config.data.train[0]
    candidates: list[tuple[str, str]] = [] if run_report.is_imported(start.run) else [(own, "test")]
    candidates += itertools.product(data.replay, ("test", "valid"))
    for spec, split in candidates:
        try:
            if not get_corpus(spec).is_installed:
                continue
            test = corpus_test_set(spec, data.src, data.tgt, split)
        except NMTError:  # without this split or language pair, or its files have been removed
            continue
        if test.sources != domain.sources:  # the start model may have been trained on the same data
            yield test
            return


def _translate(path: Path, tests: list[TestSet], search: str, device: str) -> list[list[str]]:
    translator = Translator.load(path, device)
    return [translate_test_set(translator, test, search) for test in tests]
