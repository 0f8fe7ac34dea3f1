"""Resolves a path or name to a run, a checkpoint, a pretrained or a published model."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from difflib import get_close_matches
from operator import attrgetter
from pathlib import Path

from nmt.core.config import config_io
from nmt.core.console import log
from nmt.core.errors import CheckpointError, ConfigError, UsageError
from nmt.core.paths import FIREFOX, REPOSITORY, clean_up, runs_dir
from nmt.runs import pretrained
from nmt.runs.checkpoint import META, best, checkpoints, hint_at_runs, is_name, read_meta
from nmt.runs.model_files import LoadedModel, ModelFiles, load_model, read_files
from nmt.text.language_codes import find_language, normalize_code


def has_ctranslate2_model(directory: Path) -> bool:
    """Return whether a directory has a model of CTranslate2, and not one of Marian by this name."""
    from nmt.models import marian_binary  # only for such a file

    file = directory / "model.bin"
    return file.exists() and not marian_binary.is_model(file)


def load(path: Path) -> LoadedModel:
    """Load a run (its best checkpoint) or a checkpoint with PyTorch.

    Raises:
        CheckpointError: see `find_model`; or the weights are missing, damaged or do not match the
            config.
    """
    return load_model(find_model(path))


def find_model(path: Path) -> ModelFiles:
    """Find a run (its best checkpoint) or a checkpoint, and load its config and tokenizer.

    Raises:
        CheckpointError: it does not exist, a file is missing or damaged, or the tokenizer does not
            match.
    """
    return read_files(*resolve_model(path))


def locate(path: Path) -> Path:
    """Return the directory of a model: the path if it exists, a pretrained model, or the run of a
    published model.

    A published model is named like its repository on the Hugging Face Hub, `OWNER/NAME`, or by its
    languages, `firefox:en-de`, and imported on first use. Any other path is returned unchanged.

    Raises:
        CheckpointError: see `nmt.models.importers.find_or_import`.
        DownloadError: the published model cannot be downloaded.
    """
    clean_up(path.parent)  # puts back a directory that a killed process was replacing
    if path.exists():
        return path
    is_in_directory = path.parent.exists() or path.parent == runs_dir()
    name = path.as_posix()
    is_repository = REPOSITORY.fullmatch(name) and not is_in_directory
    if is_repository or name.startswith(FIREFOX):
        from nmt.models.importers import find_or_import

        return find_or_import(name)
    return pretrained.find(path) or path


def resolve_model(path: Path) -> tuple[Path, Path]:
    """Return the run and the checkpoint of a path: a run (its best checkpoint), a checkpoint, or a
    name; see `locate`.

    Raises:
        CheckpointError: the path is none of these.
        DownloadError: see `locate`.
    """
    path = locate_existing(path)
    if (path / META).is_file():
        return path.resolve().parent, path
    checkpoint = best(path) if path.is_dir() else None
    for step in sorted(path.glob("step-*")):
        if is_name(step.name):
            try:
                read_meta(step)
            except CheckpointError:
                log(f"{step} is damaged; using the best other checkpoint")
    if checkpoint is None:
        check_is_not_export(path)
        hint = "choose a run (runs/NAME) or one of its step-N directories"
        raise CheckpointError(f"{path} has no checkpoint", hint_at_runs(path, hint))
    return path, checkpoint


def locate_existing(path: Path) -> Path:
    """Return the directory of a model; see `locate`.

    Raises:
        CheckpointError: there is none, or see `locate`.
        DownloadError: see `locate`.
    """
    path = locate(path)
    if not path.exists():
        names = ", ".join(pretrained.DIRECTIONS)
        hint = (
            f"train one with nmt train, or use a pretrained model ({names}) or a published one,"
            " OWNER/NAME or firefox:en-de: nmt models"
        )
        known = {name: name for name in pretrained.DIRECTIONS}
        known |= {run.name: str(run) for run in runs_dir().glob("[!.]*")}
        if closest := get_close_matches(path.name, known, n=1):
            hint = f"did you mean '{known[closest[0]]}'?"
        raise CheckpointError(f"there is no model at {path}", hint)
    return path


def check_is_not_export(path: Path) -> None:
    """Raise a CheckpointError for a directory without checkpoints that has a model in the format of
    another engine or toolkit."""
    if has_ctranslate2_model(path):
        raise CheckpointError(
            f"{path} is an export for CTranslate2", "use it with nmt translate --engine ctranslate2"
        )
    from nmt.models.importers import find_format

    if find_format(path):
        raise CheckpointError(
            f"{path} has the format of another toolkit",
            f"import it: nmt import {shlex.quote(str(path))}",
        )


def find_models(paths: Sequence[Path]) -> list[ModelFiles]:
    """Find the models of an ensemble and check that they are compatible.

    Raises:
        CheckpointError: see `find_model`; or the models have different tokenizers or directions.
        UsageError: there are no paths.
    """
    if not paths:
        raise UsageError("no model is given", "name a run, such as runs/multi30k")
    first, *others = models = [find_model(path) for path in paths]
    for path, other in zip(paths[1:], others, strict=True):
        if (other.config.data.src, other.config.data.tgt) != (
            first.config.data.src,
            first.config.data.tgt,
        ):
            raise CheckpointError(
                f"{path} and {paths[0]} translate in different directions",
                "the models of an ensemble must translate in one direction",
            )
        for name in ("model.source_eos", "data.placeholders", "lowercase_all_caps"):
            if attrgetter(name)(other.config) != attrgetter(name)(first.config):
                raise CheckpointError(
                    f"{path} and {paths[0]} differ in {name}",
                    "the models of an ensemble must read equal sources",
                )
        if other.tokenizer.checksum != first.tokenizer.checksum:
            raise CheckpointError(
                f"{path} and {paths[0]} have different tokenizers",
                "the models of an ensemble must share a tokenizer",
            )
    return models


def find_export(path: Path) -> Path:
    """Return the directory of the CTranslate2 model of a run, a pretrained model or an export.

    Raises:
        CheckpointError: there is none.
    """
    path = pretrained.output_dir(locate(path))
    is_run = path.is_dir() and not has_ctranslate2_model(path)
    directory = path / "ctranslate2" if is_run else path
    if not has_ctranslate2_model(directory):
        raise CheckpointError(
            f"there is no CTranslate2 model in {path}", "nmt export RUN --to ctranslate2"
        )
    return directory


def newest_run() -> Path:
    """Return the run under `runs/` with the most recent checkpoint.

    Raises:
        CheckpointError: there is no run.
    """
    if runs := _newest_first():
        return runs[0]
    raise CheckpointError(
        f"there is no trained model under {runs_dir()}/",
        f"run nmt train first, or name a pretrained model, such as {pretrained.for_target('')}",
    )


def newest_model(language: str = "") -> Path:
    """Return the newest run that translates into `language` (empty: any), else a pretrained model.

    Raises:
        CheckpointError: there is no such model.
    """
    for run in _newest_first():
        if not language or normalize_code(_target_language(run)) == normalize_code(language):
            return run
    if name := pretrained.for_target(language):
        return pretrained.DIRECTORY / name
    languages = ", ".join(sorted({target for _, target in pretrained.DIRECTIONS.values()}))
    hint = f"train one, or use --model; pretrained models translate into {languages}"
    code = find_language(language)
    if code not in ("", language.lower()):
        hint = f"write the code of the language: {code}"
    raise CheckpointError(f"no model under {runs_dir()}/ translates into '{language}'", hint)


def _newest_first() -> list[Path]:
    times = {
        run: (paths[-1] / META).stat().st_mtime
        for run in runs_dir().glob("[!.]*")
        if (paths := checkpoints(run))
    }
    return sorted(times, key=lambda run: times[run], reverse=True)


def _target_language(run: Path) -> str:
    """Return the target language of a run, or an empty string if its config cannot be loaded."""
    try:
        return config_io.load(run / "config.yaml").data.tgt
    except ConfigError as error:
        log(f"skipping {run}: {error.message}")
        return ""
