"""Import of published models of other toolkits as runs.

A run from an import has one checkpoint, step-000000, and works with every command that uses a
model. To add a format, write a module with `read(directory)`, which returns an `ImportedModel`, and
add it to `FORMATS`. Downloads from the Hugging Face Hub have only the files that `huggingface.py`
reads (`hub.py`); models of Firefox are downloaded from Mozilla's registry (`firefox_registry.py`).
"""

from __future__ import annotations

import os
import shlex
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from nmt.core.console import escape_control, log
from nmt.core.errors import CheckpointError, ConfigError, UsageError
from nmt.core.paths import FIREFOX, REPOSITORY, locked, new_directory, runs_dir
from nmt.core.untrusted_files import read_front_matter, read_record
from nmt.models.discovery import has_ctranslate2_model
from nmt.runs import pretrained, run_report
from nmt.runs.run_report import UNKNOWN_LICENSE

if TYPE_CHECKING:  # finding an imported run does not require PyTorch
    from nmt.core.config import DataConfig
    from nmt.models.importers.common import ImportedModel

FORMATS = {
    "huggingface": "config.json",
    "marian": "decoder.yml",
    "firefox": "model*.bin*",
}
"""Module of each format, and name of the file by which a model is recognized."""
PACKAGE_MODEL = "model"
"""The directory of the model of CTranslate2 in a package of Argos Translate."""


def import_model(
    source: str,
    run: Path | None = None,
    revision: str | None = None,
    src: str | None = None,
    tgt: str | None = None,
) -> Path:
    """Import a model and return its run. If another process is importing it to the same run, wait
    and use that.

    Args:
        source: a repository of the Hugging Face Hub, a model of Firefox (`firefox:en-de`), or a
            local directory or archive in a supported format.
        run: the run to create; None: `runs/NAME`.
        revision: commit, branch or tag of the repository; None: the latest commit of the main
            branch.
        src: source language code; None: that of the model.
        tgt: target language code; None: that of the model.

    Raises:
        CheckpointError: the model cannot be read or is not supported.
        DownloadError: the model cannot be downloaded.
        UsageError: the source does not exist, the run exists, or a language code is invalid.
    """
    from nmt.core.config import Config, DataConfig, config_io
    from nmt.models.importers.common import UNKNOWN_LANGUAGES

    unknown_src, unknown_tgt = UNKNOWN_LANGUAGES
    languages = DataConfig(src or unknown_src, tgt or unknown_tgt)
    config_io.check(Config(data=languages))
    path = Path(os.path.expanduser(source))
    if path.exists():
        name = path.stem if path.suffix == ".zip" else os.path.basename(os.path.abspath(path))
    else:
        source, name = _published_name(source)
    run = run or runs_dir() / name
    run_exists = UsageError(
        f"{run} already exists", "choose another directory with --run, or delete it"
    )
    if run.exists():
        raise run_exists
    if revision and (path.exists() or source.startswith(FIREFOX)):
        raise UsageError(
            "--revision applies to repositories of the Hugging Face Hub only",
            "leave out --revision",
        )
    is_new = import_repository(path, source, run, revision, src, tgt)
    if not is_new and (revision or src or tgt or origin(run).get("source") != source):
        raise run_exists
    return run


def find_or_import(name: str) -> Path:
    """Return the run of a published model, `OWNER/NAME` or `firefox:en-de`; import it first if
    necessary.

    Raises:
        CheckpointError: the run is not an import of this model; or see `import_model`.
        DownloadError: the model cannot be downloaded.
    """
    name, run_name = _published_name(name)
    run = runs_dir() / run_name
    if not run.exists():
        import_repository(Path(name), name, run)
    if origin(run).get("source") != name:
        raise CheckpointError(
            f"{run} is not an import of {name}",
            f"import it to another run: nmt import {shlex.quote(name)} --run RUN",
        )
    return run


def _published_name(name: str) -> tuple[str, str]:
    """Return the usual form of the name of a published model, and the name of its run.

    Raises:
        UsageError: it is not the name of a published model.
    """
    if name.startswith(FIREFOX):
        from nmt.models.importers.firefox_registry import ModelName

        model = ModelName.parse(name)
        return str(model), model.run_name
    if name in pretrained.DIRECTIONS:
        raise UsageError(
            f"{name} is a pretrained model, which needs no import",
            f"use it: nmt translate --model {name}",
        )
    if not REPOSITORY.fullmatch(name):
        raise UsageError(
            f"{name} is not a directory or zip file",
            "import one, or a published model: OWNER/NAME or firefox:en-de",
        )
    return name, name.rpartition("/")[2]


def origin(run: Path) -> dict[str, str]:
    """Return source and license of an imported run; empty: it is not an imported run."""
    return run_report.other_models(read_record(run / "data.json"))["imported"] or {}


def read(directory: Path) -> ImportedModel:
    """Read a model in any supported format.

    Raises:
        CheckpointError: the format is unknown, a file is damaged, or the model is not supported.
    """
    if any(map(has_ctranslate2_model, (directory, directory / PACKAGE_MODEL))):
        raise _is_converted(directory)
    if module := find_format(directory):
        model: ImportedModel = import_module(f"nmt.models.importers.{module}").read(directory)
        return model
    from nmt.runs import checkpoint  # imports NumPy

    if checkpoint.checkpoints(directory):
        raise CheckpointError(
            f"{directory} is a run of nmt already", f"use it: --model {directory}"
        )
    raise CheckpointError(
        f"{directory} is not a model in a known format",
        "supported formats: Hugging Face MarianMT, Marian releases, models of Firefox, exports of"
        " nmt to transformers",
    )


def find_format(directory: Path) -> str:
    """Return the name of the format of a model in a directory; empty: it is unknown."""
    return next((each for each, name in FORMATS.items() if any(directory.glob(name))), "")


def _is_converted(path: Path) -> CheckpointError:
    return CheckpointError(
        f"{path} is a model of CTranslate2 or Argos Translate, which cannot be imported",
        "import the model that it was made from: a Marian release, or a MarianMT model of the"
        " Hugging Face Hub (nmt models)",
    )


def import_repository(
    path: Path,
    source: str,
    run: Path,
    revision: str | None = None,
    src: str | None = None,
    tgt: str | None = None,
) -> bool:
    """Create the run and return True, unless another process creates it at the same time."""
    with locked(
        run.with_name(f".{run.name}.lock"),
        lambda: log(f"another process is importing {run}; waiting"),
    ):
        is_new = not run.exists()
        if is_new:
            model, record = _read_source(source, path, revision)
            data = model.config.data
            data = replace(data, src=src or data.src, tgt=tgt or data.tgt)
            _write(replace(model, config=replace(model.config, data=data)), run, record)
    return is_new


def _read_source(
    source: str, path: Path, revision: str | None
) -> tuple[ImportedModel, dict[str, str]]:
    """Read the model, and return it and a record of its origin."""
    if path.is_dir():
        return read(path), {"source": source, "license": _license(path)}
    if path.suffix == ".argosmodel":
        raise _is_converted(path)
    is_part = path.is_file() and any(map(path.match, FORMATS.values()))
    if is_part and path.suffix != ".zip":
        raise CheckpointError(
            f"{path} is a part of a model",
            f"import its directory: nmt import {shlex.quote(str(path.parent))}",
        )
    if path.exists():
        return _read_archive(source, path)
    if source.startswith(FIREFOX):
        from nmt.models.importers import firefox_registry

        return firefox_registry.read(firefox_registry.ModelName.parse(source))
    from nmt.models.importers import hub

    directory, record = hub.download(source, revision)
    if record["license"] == UNKNOWN_LICENSE:
        record["license"] = _license(directory)
    return read(directory), record


def _read_archive(source: str, path: Path) -> tuple[ImportedModel, dict[str, str]]:
    """Read the model in an archive, and return it and a record of its origin."""
    from nmt.models.importers.common import extracted

    with extracted(path) as directory:
        files = [file for name in FORMATS.values() for file in directory.rglob(name)]
        root = min(files, key=lambda file: len(file.parts), default=directory / "file").parent
        try:
            return read(root), {"source": source, "license": _license(root)}
        except CheckpointError as error:
            raise CheckpointError(
                error.message.replace(str(directory), str(path)), error.hint
            ) from None


def _license(directory: Path) -> str:
    """Return the license in the model card of a directory, or the licenses of the imported models
    from which an export was made."""
    licenses = read_front_matter(directory / "README.md").get("license")
    if not licenses:
        origins = run_report.origins(read_record(directory / "data.json"))
        licenses = list(dict.fromkeys(each["license"] for each in origins)) or UNKNOWN_LICENSE
    if isinstance(licenses, list):
        licenses = ", ".join(map(str, licenses))
    return escape_control(str(licenses).strip())


def _check(model: ImportedModel) -> None:
    """Raise a CheckpointError if the config is not supported, or does not match the weights."""
    from nmt.core.config import config_io
    from nmt.model.build import check_shapes

    shapes = {name: weight.shape for name, weight in model.weights.items()}
    try:
        config_io.check(model.config)
        check_shapes(model.config.model, len(model.tokenizer), shapes)
    except ConfigError as error:
        raise CheckpointError(
            f"the config of the model is not supported: {error.message}", "use another model"
        ) from None
    except ValueError as error:
        raise CheckpointError(
            f"the weights do not fit the config of the model: {error}", "download the model again"
        ) from None


def _write(model: ImportedModel, run: Path, record: dict[str, str]) -> None:
    """Write the run of an imported model. The caller holds the lock of the run."""
    import torch

    from nmt.runs import checkpoint, model_card
    from nmt.runs.model_files import write_run_files
    from nmt.runs.quantization import quantize_calibrated, write_multipliers

    _check(model)
    data = {
        "max_source_length": model.config.train.max_length - 1,
        "max_sentences_per_line": 1,
        **model.limits,
        "imported": record | {"sha256": model.checksum},
    }
    with new_directory(run) as work:
        write_run_files(work, model.config, model.tokenizer, data)
        matrices = {name: model.weights[name].numpy() for name in model.multipliers}
        quantized = quantize_calibrated(matrices, model.multipliers)
        weights = dict(model.weights)
        weights |= {name: torch.from_numpy(array) for name, array in quantized.items()}
        try:
            saved = checkpoint.save(
                work, checkpoint.Progress(), weights, {}, model.tokenizer.checksum
            )
        except CheckpointError as error:
            message = error.message.replace(str(work), str(run))
            raise CheckpointError(message, "free disk space") from None
        if model.multipliers:
            write_multipliers(saved, model.multipliers)
        if model.shortlist:
            model.shortlist.save(work)
    model_card.write_card(run)
    log(f"imported {record['source']} to {run} (license {record['license']})")
    _warn_of_unknown_languages(model.config.data)


def _warn_of_unknown_languages(data: DataConfig) -> None:
    from nmt.models.importers.common import UNKNOWN_LANGUAGES

    if {data.src, data.tgt} & {*UNKNOWN_LANGUAGES}:
        log(
            "warning: the languages of the model are unknown; to name them, import it with"
            " --src-lang and --tgt-lang"
        )
