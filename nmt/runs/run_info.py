"""What a run's folder says of itself, gathered: for `nmt info`, and for the model card that goes with the model.

runs/NAME/config.yaml       every option
runs/NAME/data.json         corpora with checksums, tokenizer, what cleaning dropped
runs/NAME/sessions.jsonl    each training session: when, where, with which versions
runs/NAME/metrics.jsonl     the curves
runs/NAME/step-N/meta.json  updates, tokens, seconds, validation scores, checksums of the weights
runs/NAME/eval/*.json       test scores with their signatures
runs/NAME/README.md         the model card, made of all that
"""

from __future__ import annotations

import datetime
import importlib.metadata
import json
import math
import os
import platform
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from nmt import __version__, runtime
from nmt.config import ModelConfig
from nmt.errors import CheckpointError, NMTError
from nmt.runs import checkpoint, discovery, pretrained

SESSIONS = "sessions.jsonl"
RECURRENT = ("arch", "dim", "encoder_layers", "decoder_layers", "dropout", "tie_embeddings")
"""Options of a model that count for the recurrent one."""
PACKAGES = ("torch", "sentencepiece", "sacrebleu", "numpy")


def environment() -> dict[str, Any]:
    """Return the versions and the hardware that a result depends on; nothing that names a person or a machine."""
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
    run: Path, step: int, device: str, processes: int, precision: str, time_limit: float | None = None
) -> None:
    """Note that a training session begins after update `step`."""
    began = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    session: dict[str, Any] = {
        "began": began, "step": step, "device": device, "processes": processes, "precision": precision,
        "time_limit": time_limit,
    }  # fmt: skip
    with open(run / SESSIONS, "a", encoding="utf-8") as file:
        file.write(json.dumps(session | {"environment": environment()}) + "\n")


def collect(run: Path) -> dict[str, Any]:
    """Return all that is known of a run; what a file does not say is left out.

    Raises:
        CheckpointError: it is no run, or holds no checkpoint.
        ConfigError: its configuration does not load.
    """
    chosen = checkpoint.best(run) if run.is_dir() else None
    if chosen is None or not (run / "config.yaml").is_file():
        raise CheckpointError(f"{run} is no run with a checkpoint", "name a folder under runs/")
    data = _json(run / "data.json")
    recipe = data.get("recipe", {})
    last = _last_progress(run, chosen)
    config, tokenizer, max_source, _ = discovery.load_settings(run)
    return {
        "name": run.resolve().name,
        "source": config.data.src,
        "target": config.data.tgt,
        "parameters": _parameters(chosen),
        "model": _model(config.model),
        "tokenizer": {"kind": config.tokenizer.model_type, "pieces": len(tokenizer), "sha256": tokenizer.checksum},
        "data": {
            "train": [{"name": name, "sha256": sum_} for name, sum_ in recipe.get("train", [])],
            "valid": dict(zip(("name", "sha256"), recipe.get("valid", ()), strict=False)),
            "pairs": data.get("pairs", {}),
            "cleaning": list(config.data.clean),
            "dropped": data.get("dropped", {}),
            "licenses": _licenses(config.data.train),
            "max_source_length": max_source,
        },
        "training": {
            "updates": last.step, "of": config.train.steps, "epoch": last.epoch, "tokens": last.tokens,
            "hours": last.seconds / 3600, "precision": last.precision, "seed": config.seed,
            "batch_tokens": config.train.batch_tokens * config.train.grad_accumulation, "schedule": config.train.schedule,
        },
        "best": {"checkpoint": chosen.name, "validation": checkpoint.read_progress(chosen).scores},
        "curve": [
            {name: line[name] for name in ("step", "seconds", "valid_loss", "valid_bleu", "valid_chrf") if name in line}
            for line in _lines(run / "metrics.jsonl") if _are_numbers(line, "step", "valid_loss", "valid_bleu")
        ],
        "tests": list(filter(_is_report, map(_json, sorted((pretrained.output_dir(run) / "eval").rglob("*.json"))))),
        "sessions": list(filter(_is_session, _lines(run / SESSIONS))),
        "checkpoints": [path.name for path in checkpoint.checkpoints(run)],
        "bytes": sum(map(_size, run.rglob("*"))),
    }  # fmt: skip


def _model(config: ModelConfig) -> dict[str, Any]:
    """Return the options that count for this architecture."""
    found = asdict(config)
    return found if config.arch == "transformer" else {name: found[name] for name in RECURRENT}


def _licenses(specs: Sequence[str]) -> list[str]:
    from nmt.data.sources import get_corpus

    found = []
    for spec in specs:
        try:
            found.append(get_corpus(spec).info.license)
        except NMTError:  # a corpus of a later or an earlier version
            found.append("unknown")
    return found


def _last_progress(run: Path, best: Path) -> checkpoint.Progress:
    """Return how far training has come by the newest checkpoint that says so."""
    for path in reversed(checkpoint.checkpoints(run)):
        with suppress(CheckpointError):
            return checkpoint.read_progress(path)
    return checkpoint.read_progress(best)


def _parameters(folder: Path) -> int:
    from safetensors import SafetensorError, safe_open

    from nmt.runs.quantization import SCALE

    path = folder / "model.safetensors"
    try:
        with safe_open(path, "pt") as file:
            shapes = {name: file.get_slice(name).get_shape() for name in file.keys()}  # noqa: SIM118
        scales = {name + SCALE for name in shapes}  # of matrices of 8-bit numbers
        return sum(math.prod(shape) for name, shape in shapes.items() if name not in scales)
    except (OSError, SafetensorError):
        raise CheckpointError(f"{path} is damaged", "evaluate another checkpoint, or train again") from None


def _is_report(found: dict[str, Any]) -> bool:
    """Say whether this is what `nmt evaluate` writes; others may put theirs beside it."""
    scores = found.get("scores")
    return (
        {"model", "test", "search"} <= found.keys()
        and isinstance(scores, list)
        and all(isinstance(score, dict) and {"name", "value", "signature"} <= score.keys() for score in scores)
    )


def _is_session(found: dict[str, Any]) -> bool:
    environment = found.get("environment")
    return (
        {"began", "step", "device", "processes", "precision"} <= found.keys()
        and isinstance(environment, dict)
        and {"nmt", "torch", "processor", "cores"} <= environment.keys()
    )


def _are_numbers(found: dict[str, Any], *names: str) -> bool:
    return all(isinstance(found.get(name), int | float) for name in names)


def _size(path: Path) -> int:
    with suppress(OSError):  # a checkpoint that a training is just deleting
        return path.stat().st_size if path.is_file() else 0
    return 0


def _json(path: Path) -> dict[str, Any]:
    with suppress(OSError, ValueError):
        found = json.loads(path.read_text(encoding="utf-8"))
        return found if isinstance(found, dict) else {}
    return {}


def _lines(path: Path) -> list[dict[str, Any]]:
    found = []
    with suppress(OSError):
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
            with suppress(ValueError):  # cut by a kill
                entry = json.loads(line)
                if isinstance(entry, dict):
                    found.append(entry)
    return found


def memory_gb() -> float | None:
    """Return the machine's memory in GB; None where the system does not say."""
    with suppress(ValueError, OSError, AttributeError):
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1)
    return None
