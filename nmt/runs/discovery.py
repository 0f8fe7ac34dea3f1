"""Resolves a path or name to a run, a checkpoint or a pretrained model, and loads it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

from nmt import untrusted_files
from nmt.config import Config, config_io
from nmt.console import log
from nmt.data.tokenizer import Tokenizer, tokenizer_file
from nmt.errors import CheckpointError, ConfigError
from nmt.paths import clean_up, runs_dir
from nmt.runs import pretrained
from nmt.runs.checkpoint import (
    META,
    RESTORE_FILE,
    best,
    checkpoints,
    is_name,
    read_meta,
    read_shapes,
    read_weights,
)
from nmt.untrusted_files import Size

if TYPE_CHECKING:  # inference does not require PyTorch
    from nmt.model.seq2seq import Seq2Seq

REPOSITORY = re.compile(r"[\w.-]+/[\w.-]+")
"""Name of a repository on the Hugging Face Hub."""


class _RequiredLimits(TypedDict):
    max_source_length: Size


class Limits(_RequiredLimits, total=False):
    """The limits of a line in `data.json`; see `ModelFiles`."""

    max_sentences_per_line: Size


@dataclass(frozen=True)
class ModelFiles:
    """A model on disk: the path of its checkpoint, its config, tokenizer and limits."""

    checkpoint: Path
    run: Path
    config: Config
    tokenizer: Tokenizer
    max_source_length: int
    """Longest source that is translated as a unit, in tokens without the end token. For a trained model the 99.9th
    percentile of the training data, below train.max_length."""
    max_sentences_per_line: int
    """Most sentences per line that are translated as a unit. For a trained model the 99th percentile of the training
    data, for an imported one 1."""

    def mismatch_error(self) -> CheckpointError:
        """Return the error for weights that do not match the config."""
        return CheckpointError(f"the weights in {self.checkpoint} do not fit {self.run / 'config.yaml'}", RESTORE_FILE)


@dataclass(frozen=True)
class LoadedModel(ModelFiles):
    """A model loaded with PyTorch."""

    model: Seq2Seq


def load(path: Path) -> LoadedModel:
    """Load a run (its best checkpoint) or a checkpoint with PyTorch.

    Raises:
        CheckpointError: see `find_model`; or the weights are missing, damaged or do not match the config.
    """
    import torch

    from nmt.model.build import build_model, check_shapes

    files = find_model(path)
    try:
        check_shapes(files.config.model, len(files.tokenizer), read_shapes(files.checkpoint))
    except ValueError:
        raise files.mismatch_error() from None
    model = build_model(files.config.model, len(files.tokenizer))
    weights = {name: torch.from_numpy(weight) for name, weight in read_weights(files.checkpoint).items()}
    try:
        model.load_state_dict(weights)
    except (RuntimeError, KeyError):
        raise files.mismatch_error() from None
    return LoadedModel(**vars(files), model=model.eval())


def find_model(path: Path) -> ModelFiles:
    """Find a run (its best checkpoint) or a checkpoint, and load its config and tokenizer.

    Raises:
        CheckpointError: it does not exist, a file is missing or damaged, or the tokenizer does not match.
    """
    run, checkpoint = resolve_model(path)
    meta = read_meta(checkpoint)
    config, tokenizer, *limits = load_settings(run)
    if tokenizer.checksum != meta["tokenizer"]:
        raise CheckpointError(f"{tokenizer_file(run)} is not the tokenizer of {checkpoint.name}", RESTORE_FILE)
    return ModelFiles(checkpoint, run, config, tokenizer, *limits)


def load_settings(run: Path) -> tuple[Config, Tokenizer, int, int]:
    """Load config and tokenizer of a run, and `max_source_length` and `max_sentences_per_line` of `ModelFiles`.

    Raises:
        CheckpointError: a file is missing or damaged.
    """
    file = run / "config.yaml"
    is_small = file.is_file() and file.stat().st_size <= untrusted_files.MAX_CONFIG_BYTES
    if is_small and not file.read_bytes().strip():
        raise CheckpointError(f"{file} is empty", RESTORE_FILE)
    try:
        config = config_io.load(file)
    except ConfigError as error:
        hint = "; ".join(filter(None, (error.hint, "the file is damaged, or a newer version of nmt wrote it")))
        raise CheckpointError(f"cannot load the config of the run: {error.message}", hint) from None
    return config, Tokenizer.load(tokenizer_file(run)), *_load_limits(run, config)


def _load_limits(run: Path, config: Config) -> tuple[int, int]:
    limits: Limits = untrusted_files.read_json(run / "data.json", Limits, RESTORE_FILE)
    max_source_length = min(limits["max_source_length"], config.train.max_length - 1)
    return max(1, max_source_length), limits.get("max_sentences_per_line", 1)


def locate(path: Path) -> Path:
    """Return the directory of a model: the path if it exists, a pretrained model, or the run of a published model.

    A published model is named like its repository on the Hugging Face Hub, `OWNER/NAME`, and imported on first use. Any
    other path is returned unchanged.

    Raises:
        CheckpointError: see `nmt.imports.find_or_import`.
        DownloadError: the published model cannot be downloaded.
    """
    clean_up(path.parent)  # puts back a directory that a killed process was replacing
    if path.exists():
        return path
    is_in_directory = path.parent.exists() or path.parent == runs_dir()
    if REPOSITORY.fullmatch(path.as_posix()) and not is_in_directory:
        from nmt.imports import find_or_import

        return find_or_import(path.as_posix())
    return pretrained.find(path) or path


def resolve_model(path: Path) -> tuple[Path, Path]:
    """Return the run and the checkpoint of a path: a run (its best checkpoint), a checkpoint, or a name; see `locate`.

    Raises:
        CheckpointError: the path is none of these.
        DownloadError: see `locate`.
    """
    path = locate(path)
    if not path.exists():
        names = ", ".join(pretrained.DIRECTIONS)
        raise CheckpointError(
            f"there is no model at {path}",
            f"train one with nmt train, or use a pretrained model ({names}) or a published one, OWNER/NAME: nmt models",
        )
    if (path / META).is_file():
        return path.resolve().parent, path
    checkpoint = best(path) if path.is_dir() else None
    for step in sorted(path.glob("step-*")):
        if is_name(step.name):
            try:
                read_meta(step)
            except CheckpointError:
                log(f"{step} is damaged; using the best other checkpoint")
    if checkpoint is None and (path / "model.bin").exists():
        raise CheckpointError(f"{path} is an export for CTranslate2", "use it with nmt translate --engine ctranslate2")
    if checkpoint is None:
        raise CheckpointError(f"{path} has no checkpoint", "choose a run (runs/NAME) or one of its step-N directories")
    return path, checkpoint


def newest_run() -> Path:
    """Return the run under `runs/` with the most recent checkpoint.

    Raises:
        CheckpointError: there is no run.
    """
    if runs := _newest_first():
        return runs[0]
    raise CheckpointError(
        f"there is no trained model under {runs_dir()}/",
        f"run nmt train first, or use the pretrained model {pretrained.for_target('')}",
    )


def newest_model(language: str = "") -> Path:
    """Return the newest run that translates into `language` (empty: any), else a pretrained model.

    Raises:
        CheckpointError: there is no such model.
    """
    for run in _newest_first():
        if not language or _target_language(run) == language:
            return run
    if name := pretrained.for_target(language):
        return pretrained.DIRECTORY / name
    languages = ", ".join(sorted({target for _, target in pretrained.DIRECTIONS.values()}))
    raise CheckpointError(
        f"no model under {runs_dir()}/ translates into '{language}'",
        f"train one, or use --model; pretrained models translate into {languages}",
    )


def _newest_first() -> list[Path]:
    times = {run: (paths[-1] / META).stat().st_mtime for run in runs_dir().glob("[!.]*") if (paths := checkpoints(run))}
    return sorted(times, key=lambda run: times[run], reverse=True)


def _target_language(run: Path) -> str:
    """Return the target language of a run, or an empty string if its config cannot be loaded."""
    try:
        return config_io.load(run / "config.yaml").data.tgt
    except ConfigError as error:
        log(f"skipping {run}: {error.message}")
        return ""
