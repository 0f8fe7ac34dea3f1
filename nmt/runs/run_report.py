"""Collects the information in the files of a run (docs/reference/files.md) for `nmt info` and the
model card."""

from __future__ import annotations

import datetime
import importlib.metadata
import json
import math
import os
import platform
import shlex
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, TypedDict

from nmt.core import plugins, runtime
from nmt.core.config import Config, ModelConfig
from nmt.core.errors import CheckpointError, NMTError, UsageError
from nmt.core.paths import append_line
from nmt.core.ranges import Range
from nmt.core.untrusted_files import Count, JsonObject, Number, matches, read_record, read_records
from nmt.core.version import __version__
from nmt.model.options import MODEL_OPTIONS
from nmt.runs import checkpoint, pretrained
from nmt.runs.model_files import ModelFiles, load_settings

UNKNOWN_LICENSE = "not specified"
SESSIONS, COMPARISON = "sessions.jsonl", "comparison.json"
CURVE_FIELDS = ("step", "seconds", "valid_loss", "valid_bleu", "valid_chrf")
PACKAGES = ("torch", "sentencepiece", "sacrebleu", "numpy")


class _Point(TypedDict):
    """A validation in `metrics.jsonl`."""

    step: Count
    valid_loss: Number
    valid_bleu: Number


class _Environment(TypedDict):
    nmt: str
    torch: str
    processor: str
    cores: Count | None


class _KnownEnvironment(_Environment, total=False):
    gpus: list[str]


class _Plugin(TypedDict):
    name: str
    version: str
    sha256: str


class _SessionWithoutPlugins(TypedDict):
    """A line of `sessions.jsonl`."""

    started: str
    step: Count
    device: str
    processes: Count
    precision: str
    environment: _KnownEnvironment


class _Session(_SessionWithoutPlugins, total=False):
    plugins: list[_Plugin]


class _Origin(TypedDict):
    """`imported` in `data.json`: the record of an import."""

    source: str
    license: str


class _Parent(TypedDict):
    model: str
    checkpoint: str
    sha256: str
    imported: list[_Origin]


class _SharedParent(_Parent, total=False):
    """A record of `parent_record`; that of an average has the share of the model."""

    share: Number


class _Metric(TypedDict):
    name: str
    first_score: Number
    second_score: Number
    p: Number
    better: Annotated[int, Range(-1, 1)]


class _TestComparison(TypedDict):
    test: str
    metrics: list[_Metric]


class _Comparison(TypedDict):
    """`comparison.json`: a comparison of a fine-tuned model with its start model."""

    start: str
    checkpoint: str
    search: str
    tests: list[_TestComparison]


class _Score(TypedDict):
    name: str
    value: Number
    signature: str


class _ScoreWithInterval(_Score, total=False):
    half_interval: Number | None


class _UnweightedReport(TypedDict):
    model: str
    test: str
    search: str
    scores: list[_ScoreWithInterval]


class _Report(_UnweightedReport, total=False):
    """A report of `nmt evaluate` on one model."""

    weights: str | None


class _HeldOut(TypedDict):
    pearson: Number
    calibration_error: Number


class _Calibration(TypedDict):
    """The part of `calibration.json` that is shown."""

    definition: str
    data: str
    sentences: Count
    weights: str
    held_out: _HeldOut


class _Mix(TypedDict):
    """An entry of `mix` in `data.json`."""

    pairs: Count
    pairs_per_epoch: Count


def environment() -> JsonObject:
    """Return the versions and the hardware that results depend on, without names of users or
    machines."""
    import torch

    return {
        "nmt": __version__,
        "python": platform.python_version(),
        **{name: importlib.metadata.version(name) for name in PACKAGES},
        "cuda": torch.version.cuda,
        "system": f"{platform.system()} {platform.machine()}",
        "processor": runtime.cpu_name(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "memory_gb": memory_gb(),
        "gpus": [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())],
    }


def log_session(
    run: Path,
    step: int,
    device: str,
    processes: int,
    precision: str,
    time_limit: float | None = None,
) -> None:
    """Record the start of a training session after update `step`."""
    session = {
        "started": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "step": step,
        "device": device,
        "processes": processes,
        "precision": precision,
        "time_limit": time_limit,
        "environment": environment(),
        "plugins": plugins.loaded(),
    }
    append_line(run / SESSIONS, json.dumps(session))


def changed_plugins(run: Path) -> list[str]:
    """Return the plug-ins that have changed since the last session of a run."""
    sessions = _valid(read_records(run / SESSIONS), _Session)
    last = sessions[-1].get("plugins", []) if sessions else []
    before = {plugin["name"]: plugin["sha256"] for plugin in last}
    changed = []
    for plugin in plugins.loaded():
        name = plugin["name"]
        if before.get(name, plugin["sha256"]) != plugin["sha256"]:
            changed.append(name)
    return changed


def collect(run: Path) -> JsonObject:
    """Return all information about a run. Missing or damaged records are omitted.

    Raises:
        CheckpointError: `run` is not a run, has no checkpoint, or its config cannot be loaded.
    """
    best = _best_checkpoint(run)
    data = read_record(run / "data.json")
    comparison = read_record(run / COMPARISON)
    models = other_models(data)
    config, tokenizer, max_source_length, _ = load_settings(run)
    progress = checkpoint.read_progress(best)
    last = last_progress(run) or progress
    sessions = _valid(read_records(run / SESSIONS), _Session)
    return {
        "name": run.resolve().name,
        "imported": models["imported"],
        "derived_from": models["derived_from"],
        "translators": models["translators"],
        "source": config.data.src,
        "target": config.data.tgt,
        "parameters": sum(map(math.prod, checkpoint.read_shapes(best).values())),
        "model": _model_options(config.model),
        "tokenizer": {
            "kind": tokenizer.model_type,
            "pieces": len(tokenizer),
            "sha256": tokenizer.checksum,
        },
        "data": _data(config, data, max_source_length),
        "training": _training(config, last, models["teacher"], sessions),
        "best": {"checkpoint": best.name, "validation": progress.scores},
        "curve": _curve(run),
        "comparison": comparison if matches(comparison, _Comparison) else None,
        "calibration": _calibration(run, best),
        "tests": _reports(run),
        "sessions": sessions,
        "checkpoints": [path.name for path in checkpoint.checkpoints(run)],
        "bytes": sum(map(_file_size, run.rglob("*"))),
    }


def _best_checkpoint(run: Path) -> Path:
    """Return the best checkpoint of a run; see `collect` for the errors."""
    best = checkpoint.best(run) if run.is_dir() else None
    has_config = (run / "config.yaml").is_file()
    if best and has_config:
        return best
    if (run / checkpoint.META).is_file():
        raise CheckpointError(
            f"{run} is a checkpoint, not a run", f"name its run: {run.resolve().parent}"
        )
    if best:
        raise CheckpointError(f"{run / 'config.yaml'} is missing", checkpoint.RESTORE_FILE)
    hint = checkpoint.hint_at_runs(run, "choose a directory under runs/")
    if has_config and (run / SESSIONS).is_file():
        hint = f"continue its training: nmt train --run {shlex.quote(str(run))} --resume"
    raise CheckpointError(f"{run} has no checkpoint", hint)


def _data(config: Config, data: JsonObject, max_source_length: int) -> JsonObject:
    recipe = _dict(data.get("recipe"))
    valid = _corpora([recipe.get("valid")])
    train = _corpora(recipe.get("train"))
    replay = _corpora(recipe.get("replay"))
    # `mix` has an entry of each corpus, with the number of its pairs in an epoch
    for corpus, entry in zip([*train, *replay], _list(data.get("mix")), strict=False):
        if matches(entry, _Mix):
            corpus.update(entry)
    return {
        "train": train,
        "replay": replay,
        "replay_share": config.train.replay_share if config.data.replay else 0.0,
        "valid": valid[0] if valid else {},
        "pairs": _counts(data.get("pairs")),
        "cleaning": list(config.data.clean),
        "dropped": _counts(data.get("dropped")),
        "licenses": _licenses(config.data.train),
        "replay_licenses": _licenses(config.data.replay),
        "max_source_length": max_source_length,
    }


def _training(
    config: Config,
    last: checkpoint.Progress,
    teacher: JsonObject | None,
    sessions: Sequence[JsonObject],
) -> JsonObject:
    options = config.train
    num_processes = 1
    for session in sessions:
        if session["step"] < last.step:  # others only calibrated or compared
            num_processes = session["processes"]
    return {
        "updates": last.step,
        "total_updates": options.steps,
        "epoch": last.epoch,
        "tokens": last.tokens,
        "hours": last.seconds / 3600,
        "precision": last.precision,
        "seed": config.seed,
        "batch_tokens": options.batch_tokens * options.grad_accumulation * num_processes,
        "schedule": options.schedule,
        "optimizer": options.optimizer,
        "teacher": teacher,
        "distill_weight": options.distill_weight,
        "distill_top_k": options.distill_top_k,
    }


def _curve(run: Path) -> list[JsonObject]:
    curve = []
    for point in _valid(read_records(run / "metrics.jsonl"), _Point):
        curve.append({name: point[name] for name in CURVE_FIELDS if name in point})
    return curve


def _reports(run: Path) -> list[JsonObject]:
    paths = sorted((pretrained.output_dir(run) / "eval").rglob("*.json"))
    return [report for report in map(read_record, paths) if _is_report(report, run)]


def other_models(data: JsonObject) -> JsonObject:
    """Return the records of other models in the content of `data.json`, without invalid ones.

    They are `imported`, the origin of an import, and those of `parent_record`: `teacher`,
    `derived_from` (of a fine-tuned model or an average) and `translators` (of the training data).
    """
    models = {}
    for name, schema in (("imported", _Origin), ("teacher", _SharedParent)):
        models[name] = data.get(name) if matches(data.get(name), schema) else None
    for name in ("derived_from", "translators"):
        models[name] = _valid(_list(data.get(name)), _SharedParent)
    return models


def origins(data: JsonObject) -> list[JsonObject]:
    """Return the origins of all imported and published models from which a model was made, by the
    content of its `data.json`: its own, and those of its start models, teacher and translators of
    its training data. Their licenses apply."""
    models = other_models(data)
    imported = [models["imported"]] if models["imported"] else []
    if matches(data.get("weights"), _Origin):  # a model that nmt includes
        imported.append(data["weights"])
    for parent in (*models["derived_from"], models["teacher"], *models["translators"]):
        imported += parent["imported"] if parent else []
    return imported


def parent_record(model: ModelFiles) -> JsonObject:
    """Return the record of a model for the run or the corpus that is made from it."""
    return {
        "model": model.run.resolve().name,
        "checkpoint": model.checkpoint.name,
        "sha256": weights_checksum(model.checkpoint),
        "imported": origins(read_record(model.run / "data.json")),
    }


def is_imported(run: Path) -> bool:
    """Return whether a run is an import without training by nmt, or an average with one: its data
    is unknown."""
    data = read_record(run / "data.json")
    return bool(data.get("imported") or data.get("data_unknown"))


def check_data_is_known(run: Path, hint: str) -> None:
    """Raise a UsageError with a hint if a run is an import without training by nmt."""
    if is_imported(run):
        raise UsageError(f"the training data of {run}, an imported model, is unknown", hint)


def _dict(content: Any) -> JsonObject:
    return content if isinstance(content, dict) else {}


def _valid(records: Iterable[Any], schema: Any) -> list[Any]:
    return [record for record in records if matches(record, schema)]


def _list(content: Any) -> list[Any]:
    return content if isinstance(content, list) else []


def _counts(content: Any) -> dict[str, int]:
    return {name: count for name, count in _dict(content).items() if matches(count, Count)}


def _corpora(entries: Any) -> list[JsonObject]:
    """Return name and checksum of the corpora in a list of pairs, which may be damaged."""
    corpora = []
    for entry in _list(entries):
        match entry:
            case [name, checksum]:
                corpora.append({"name": name, "sha256": checksum})
    return corpora


def _model_options(config: ModelConfig) -> JsonObject:
    """Return the options that this architecture uses."""
    options = asdict(config)
    return {name: options[name] for name in MODEL_OPTIONS.get(config.arch, options)}


def _licenses(specs: Sequence[str]) -> list[str]:
    from nmt.data.sources import get_corpus

    licenses = []
    for spec in specs:
        try:
            licenses.append(get_corpus(spec).info.license)
        except NMTError:  # a corpus of another version of nmt
            licenses.append("unknown")
    return licenses


def last_progress(run: Path) -> checkpoint.Progress | None:
    """Return the progress of the latest intact checkpoint."""
    for path in reversed(checkpoint.checkpoints(run)):
        with suppress(CheckpointError):
            return checkpoint.read_progress(path)
    return None


def weights_checksum(path: Path) -> str:
    """Return the SHA-256 of the weights of a checkpoint."""
    return str(checkpoint.read_meta(path)["sha256"].get(checkpoint.WEIGHTS, ""))


def _is_report(content: JsonObject, run: Path) -> bool:
    """Return whether the content of a JSON file is a report of `nmt evaluate` on one model with its
    current weights."""
    if not matches(content, _Report):
        return False
    weights = content.get("weights")
    if weights:
        with suppress(CheckpointError):  # the checkpoint was deleted
            # A longer run has replaced average-N.
            return bool(weights_checksum(run / Path(content["model"]).name) == weights)
    return True


def _calibration(run: Path, best: Path) -> JsonObject | None:
    """Return the calibration of the best checkpoint: the user's own one of a pretrained model, or
    that of the run."""
    weights = weights_checksum(best)
    for path in pretrained.calibration_files(run, best):
        content = read_record(path)
        if matches(content, _Calibration) and content["weights"] == weights:
            return content
    return None


def _file_size(path: Path) -> int:
    with suppress(OSError):  # training may delete the file at the same time
        return path.stat().st_size if path.is_file() else 0
    return 0


def memory_gb() -> float | None:
    """Return the memory of the machine in GB, or None if the system does not report it."""
    with suppress(ValueError, OSError, AttributeError):
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1)
    return None
