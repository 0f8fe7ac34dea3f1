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
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, TypedDict

from nmt.core import runtime
from nmt.core.config import ModelConfig
from nmt.core.errors import CheckpointError, NMTError, UsageError
from nmt.core.paths import append_line
from nmt.core.untrusted_files import Count, Number, Range, matches, read_record, read_records
from nmt.core.version import __version__
from nmt.runs import checkpoint, pretrained
from nmt.runs.model_files import ModelFiles, load_settings

SESSIONS, COMPARISON = "sessions.jsonl", "comparison.json"
RECURRENT = (
    "arch",
    "dim",
    "encoder_layers",
    "decoder_layers",
    "dropout",
    "tie_embeddings",
    "output_bias",
    "source_eos",
)
"""Model options that the recurrent architecture uses."""
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


class _Session(TypedDict):
    """A line of `sessions.jsonl`."""

    started: str
    step: Count
    device: str
    processes: Count
    precision: str
    environment: _KnownEnvironment


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


def environment() -> dict[str, Any]:
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
    started = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    session: dict[str, Any] = {
        "started": started,
        "step": step,
        "device": device,
        "processes": processes,
        "precision": precision,
        "time_limit": time_limit,
    }
    append_line(run / SESSIONS, json.dumps(session | {"environment": environment()}))


def collect(run: Path) -> dict[str, Any]:
    """Return all information about a run. Missing or damaged records are omitted.

    Raises:
        CheckpointError: `run` is not a run, has no checkpoint, or its config cannot be loaded.
    """
    best = checkpoint.best(run) if run.is_dir() else None
    if best is None or not (run / "config.yaml").is_file():
        hint = "choose a directory under runs/"
        if (run / checkpoint.META).is_file():
            raise CheckpointError(
                f"{run} is a checkpoint, not a run", f"name its run: {run.resolve().parent}"
            )
        if best is not None:
            raise CheckpointError(f"{run / 'config.yaml'} is missing", checkpoint.RESTORE_FILE)
        if (run / "config.yaml").is_file() and (run / SESSIONS).is_file():
            hint = f"continue its training: nmt train --run {shlex.quote(str(run))} --resume"
        raise CheckpointError(f"{run} has no checkpoint", hint)
    data = read_record(run / "data.json")
    comparison = read_record(run / COMPARISON)
    models = other_models(data)
    recipe = _dict(data.get("recipe"))
    last = last_progress(run) or checkpoint.read_progress(best)
    report_paths = sorted((pretrained.output_dir(run) / "eval").rglob("*.json"))
    config, tokenizer, max_source_length, _ = load_settings(run)
    return {
        "name": run.resolve().name,
        "imported": models["imported"],
        "derived_from": models["derived_from"],
        "translators": models["translators"],
        "source": config.data.src,
        "target": config.data.tgt,
        "parameters": _count_parameters(best),
        "model": _model_options(config.model),
        "tokenizer": {
            "kind": tokenizer.model_type,
            "pieces": len(tokenizer),
            "sha256": tokenizer.checksum,
        },
        "data": {
            **_corpora(recipe, data.get("mix")),
            "replay_share": config.train.replay_share if config.data.replay else 0.0,
            "valid": next(
                (
                    {"name": name, "sha256": sha256}
                    for name, sha256 in _pairs([recipe.get("valid")])
                ),
                {},
            ),
            "pairs": _counts(data.get("pairs")),
            "cleaning": list(config.data.clean),
            "dropped": _counts(data.get("dropped")),
            "licenses": _licenses(config.data.train),
            "replay_licenses": _licenses(config.data.replay),
            "max_source_length": max_source_length,
        },
        "training": {
            "updates": last.step,
            "total_updates": config.train.steps,
            "epoch": last.epoch,
            "tokens": last.tokens,
            "hours": last.seconds / 3600,
            "precision": last.precision,
            "seed": config.seed,
            "batch_tokens": config.train.batch_tokens * config.train.grad_accumulation,
            "schedule": config.train.schedule,
            "optimizer": config.train.optimizer,
            "teacher": models["teacher"],
            "distill_weight": config.train.distill_weight,
            "distill_top_k": config.train.distill_top_k,
        },
        "best": {"checkpoint": best.name, "validation": checkpoint.read_progress(best).scores},
        "curve": [
            {
                name: line[name]
                for name in ("step", "seconds", "valid_loss", "valid_bleu", "valid_chrf")
                if name in line
            }
            for line in read_records(run / "metrics.jsonl")
            if matches(line, _Point)
        ],
        "comparison": comparison if matches(comparison, _Comparison) else None,
        "calibration": _calibration(run, best),
        "tests": [report for report in map(read_record, report_paths) if _is_report(report, run)],
        "sessions": [each for each in read_records(run / SESSIONS) if matches(each, _Session)],
        "checkpoints": [path.name for path in checkpoint.checkpoints(run)],
        "bytes": sum(map(_file_size, run.rglob("*"))),
    }


def other_models(data: dict[str, Any]) -> dict[str, Any]:
    """Return the records of other models in the content of `data.json`, without invalid ones.

    They are `imported`, the origin of an import, and those of `parent_record`: `teacher`,
    `derived_from` (of a fine-tuned model or an average) and `translators` (of the training data).
    """
    models: dict[str, Any] = {
        "imported": data.get("imported") if is_origin(data.get("imported")) else None,
        "teacher": data.get("teacher") if matches(data.get("teacher"), _SharedParent) else None,
    }
    for name in ("derived_from", "translators"):
        records = data.get(name)
        models[name] = (
            [each for each in records if matches(each, _SharedParent)]
            if isinstance(records, list)
            else []
        )
    return models


def parent_record(model: ModelFiles) -> dict[str, Any]:
    """Return the record of a model for the run or the corpus that is made from it.

    It contains the origins of all imported models among its ancestors, their teachers and the
    models that translated their training data, because their licenses apply.
    """
    models = other_models(read_record(model.run / "data.json"))
    parents = [*models["derived_from"], *filter(None, [models["teacher"]]), *models["translators"]]
    imported = [
        *filter(None, [models["imported"]]),
        *(each for parent in parents for each in parent["imported"]),
    ]
    return {
        "model": model.run.resolve().name,
        "checkpoint": model.checkpoint.name,
        "sha256": weights_checksum(model.checkpoint),
        "imported": imported,
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


def _dict(content: Any) -> dict[str, Any]:
    return content if isinstance(content, dict) else {}


def _counts(content: Any) -> dict[str, int]:
    return {name: count for name, count in _dict(content).items() if matches(count, Count)}


def _corpora(recipe: dict[str, Any], mix: Any) -> dict[str, list[dict[str, Any]]]:
    """Return the training and the replay corpora, with the number of their pairs in an epoch if it
    is recorded."""
    corpora, recorded = {}, mix if isinstance(mix, list) else []
    entries = (each if matches(each, _Mix) else {} for each in recorded)
    for split in ("train", "replay"):
        named = ({"name": name, "sha256": checksum} for name, checksum in _pairs(recipe.get(split)))
        corpora[split] = [corpus | next(entries, {}) for corpus in named]
    return corpora


def _pairs(entries: Any) -> list[list[Any]]:
    """Return the entries of a damaged list that are pairs."""
    return (
        [each for each in entries if isinstance(each, list) and len(each) == 2]
        if isinstance(entries, list)
        else []
    )


def _model_options(config: ModelConfig) -> dict[str, Any]:
    """Return the options that this architecture uses."""
    options = asdict(config)
    return options if config.arch == "transformer" else {name: options[name] for name in RECURRENT}


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


def _count_parameters(path: Path) -> int:
    return sum(map(math.prod, checkpoint.read_shapes(path).values()))


def weights_checksum(path: Path) -> str:
    """Return the SHA-256 of the weights of a checkpoint."""
    return str(checkpoint.read_meta(path)["sha256"].get(checkpoint.WEIGHTS, ""))


def _is_report(content: dict[str, Any], run: Path) -> bool:
    """Return whether the content of a JSON file is a report of `nmt evaluate` on one model with its
    current weights."""
    if not matches(content, _Report):
        return False
    if content.get("weights"):
        with suppress(CheckpointError):  # deleted
            # A longer run has replaced average-N.
            return bool(weights_checksum(run / Path(content["model"]).name) == content["weights"])
    return True


def is_origin(entry: Any) -> bool:
    """Return whether an entry is the record of an import."""
    return matches(entry, _Origin)


def _calibration(run: Path, best: Path) -> dict[str, Any] | None:
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
