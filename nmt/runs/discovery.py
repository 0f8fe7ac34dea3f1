"""What a path or a name means: a run, one of its checkpoints or a pretrained model; and how to load it."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from nmt.config import Config, config_io
from nmt.console import log
from nmt.data.tokenizer import Tokenizer
from nmt.errors import CheckpointError, ConfigError
from nmt.paths import runs_dir
from nmt.runs import pretrained
from nmt.runs.checkpoint import META, OWN, best, checkpoints, read_meta, read_weights

if TYPE_CHECKING:  # what only translates needs no PyTorch
    from nmt.model.seq2seq import Seq2Seq


@dataclass(frozen=True)
class ModelFiles:
    """A model on disk, with all that belongs to it but the weights."""

    checkpoint: Path
    run: Path
    config: Config
    tokenizer: Tokenizer
    max_source: int
    """Source tokens, the end token not counted, up to which the model was trained."""
    max_sentences: int
    """Sentences of a line up to which the model was trained."""

    def misfit(self) -> CheckpointError:
        """Return the error for weights that are not those of the configuration."""
        return CheckpointError(f"the weights in {self.checkpoint} do not fit {self.run / 'config.yaml'}", OWN)


@dataclass(frozen=True)
class LoadedModel(ModelFiles):
    """A model as a PyTorch network."""

    model: Seq2Seq


def load(path: Path) -> LoadedModel:
    """Load a run (its best checkpoint) or one checkpoint folder as a PyTorch network.

    Raises:
        CheckpointError: see `find`; or the weights are missing or damaged, or those of another network.
    """
    import torch

    from nmt.model.build import build_model

    files = find(path)
    model = build_model(files.config.model, len(files.tokenizer))
    weights = {name: torch.from_numpy(weight) for name, weight in read_weights(files.checkpoint).items()}
    try:
        model.load_state_dict(weights)
    except (RuntimeError, KeyError):
        raise files.misfit() from None
    return LoadedModel(**vars(files), model=model.eval())


def find(path: Path) -> ModelFiles:
    """Find a run (its best checkpoint) or one checkpoint folder.

    Raises:
        CheckpointError: nothing there, something missing or damaged, or another tokenizer than it was trained with.
    """
    run, checkpoint = resolve_model(path)
    meta = read_meta(checkpoint)
    config, tokenizer, *most = load_settings(run)
    if tokenizer.checksum != meta["tokenizer"]:
        raise CheckpointError(
            f"{run / 'spm.model'} is not the tokenizer that {checkpoint.name} was trained with",
            "put the run's own spm.model back",
        )
    return ModelFiles(checkpoint, run, config, tokenizer, *most)


def load_settings(run: Path) -> tuple[Config, Tokenizer, int, int]:
    """Load what a run says of itself: its config, its tokenizer, `LoadedModel.max_source` and `LoadedModel.max_sentences`.

    Raises:
        CheckpointError: something is missing or damaged.
    """
    file = run / "config.yaml"
    if file.is_file() and not file.read_bytes().strip():
        raise CheckpointError(f"{file} is empty", OWN)
    try:
        config = config_io.load(file)
    except ConfigError as error:
        hint = "; ".join(filter(None, (error.hint, "it is damaged, or a newer nmt wrote it")))
        raise CheckpointError(f"the run's own configuration does not load: {error.message}", hint) from None
    return config, Tokenizer.load(run / "spm.model"), *_most(run, config)


def _most(run: Path, config: Config) -> tuple[int, int]:
    """Return the most source tokens and sentences of a line that the model was trained for."""
    try:
        data = json.loads((run / "data.json").read_text(encoding="utf-8"))
        longest, sentences = int(data["max_source_length"]), int(data.get("max_sentences_per_line", 1))
    except OSError as error:
        raise CheckpointError(f"cannot read {run / 'data.json'}: {error.strerror}", OWN) from None
    except (ValueError, KeyError, TypeError):
        raise CheckpointError(f"{run / 'data.json'} is damaged", OWN) from None
    return max(1, min(longest, config.train.max_length - 1)), max(1, sentences)


def resolve_model(path: Path) -> tuple[Path, Path]:
    """Return the run and the checkpoint that a path means: a run's best, or the checkpoint itself.

    The name of a model that comes with nmt is a path too.

    Raises:
        CheckpointError: there is neither.
    """
    path = pretrained.find(path) or path
    if not path.exists():
        hint = f"nmt train makes one; see the folders under runs/; with nmt come {', '.join(pretrained.DIRECTIONS)}"
        raise CheckpointError(f"there is no model at {path}", hint)
    if (path / META).is_file():
        return path.resolve().parent, path
    checkpoint = best(path) if path.is_dir() else None
    for step in sorted(path.glob("step-*")):
        if re.fullmatch(r"step-\d+", step.name) and not _is_readable(step):
            log(f"{step} is damaged: the best of the others is taken")
    if checkpoint is None and (path / "model.bin").exists():
        raise CheckpointError(f"{path} is an export for CTranslate2", "nmt translate --engine ctranslate2")
    if checkpoint is None:
        raise CheckpointError(f"{path} holds no checkpoint", "name a run (runs/NAME) or one of its step-N folders")
    return path, checkpoint


def _is_readable(checkpoint: Path) -> bool:
    try:
        read_meta(checkpoint)
    except CheckpointError:
        return False
    return True


def newest_run() -> Path:
    """Return the run under `runs/` whose latest checkpoint is the newest.

    Raises:
        CheckpointError: there is none.
    """
    if runs := _newest_first():
        return runs[0]
    raise CheckpointError(
        f"there is no trained model under {runs_dir()}/", f"run nmt train first, or name {pretrained.for_target('')}"
    )


def newest_model(language: str = "") -> Path:
    """Return the newest run, or the newest that translates into a language; else a model that comes with nmt.

    Raises:
        CheckpointError: none does.
    """
    for run in _newest_first():
        if not language or _target(run) == language:
            return run
    if name := pretrained.for_target(language):
        return pretrained.FOLDER / name
    known = ", ".join(sorted({target for _, target in pretrained.DIRECTIONS.values()}))
    raise CheckpointError(
        f"no model under {runs_dir()}/ translates into '{language}'", f"train one, or name --model; nmt brings {known}"
    )


def _newest_first() -> list[Path]:
    ages = {run: (latest[-1] / META).stat().st_mtime for run in runs_dir().glob("*") if (latest := checkpoints(run))}
    return sorted(ages, key=lambda run: ages[run], reverse=True)


def _target(run: Path) -> str:
    """Return the language that a run translates into; empty if its configuration does not load."""
    try:
        return config_io.load(run / "config.yaml").data.tgt
    except ConfigError as error:
        log(f"{run} is passed over: {error.message}")
        return ""
