"""Import of published models of other toolkits as runs.

A run from an import has one checkpoint, step-000000, and works with every command like a trained one. To add a format,
write a module with `read(directory)`, which returns an `ImportedModel`, and recognize its files in `read`.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

from nmt.console import log
from nmt.errors import CheckpointError, UsageError
from nmt.imports.common import UNKNOWN_LANGUAGES, ImportedModel
from nmt.paths import new_directory, runs_dir

REPOSITORY = re.compile(r"[\w.-]+/[\w.-]+")
"""Name of a repository on the Hugging Face Hub."""


def import_model(
    source: str, run: Path | None = None, revision: str | None = None, src: str | None = None, tgt: str | None = None
) -> Path:
    """Import a model and return its run.

    Args:
        source: a repository of the Hugging Face Hub, or a local directory in the same format.
        run: the run to create; None: `runs/NAME`.
        revision: commit, branch or tag of the repository; None: the latest commit of the main branch.
        src: source language code; None: that of the model.
        tgt: target language code; None: that of the model.

    Raises:
        CheckpointError: the model cannot be read or is not supported.
        DownloadError: the model cannot be downloaded.
        UsageError: the source does not exist, the run exists, or a language code is invalid.
    """
    from nmt.config import Config, DataConfig, config_io

    config_io.check(Config(data=DataConfig(src or UNKNOWN_LANGUAGES[0], tgt or UNKNOWN_LANGUAGES[1])))
    path = Path(source).expanduser()
    run = run or runs_dir() / path.name.removesuffix(".zip")
    if run.exists():
        raise UsageError(f"{run} already exists", "choose another directory with --run, or delete it")
    if revision and path.exists():
        raise UsageError("--revision applies to repositories of the Hugging Face Hub only", "leave out --revision")
    if path.is_dir():
        model, record = read(path), {"source": source, "license": _license(path)}
    elif path.suffix == ".zip" and path.is_file():
        from nmt.imports import marian

        model, record = marian.read_zip(path), {"source": source, "license": "not specified"}
    elif REPOSITORY.fullmatch(source) and not path.exists():
        from nmt.imports import hub

        directory, record = hub.download(source, revision)
        model = read(directory)
    else:
        raise UsageError(f"{source} is not a directory or zip file", "import one, or a repository: OWNER/NAME")
    data = replace(model.config.data, src=src or model.config.data.src, tgt=tgt or model.config.data.tgt)
    return _write(replace(model, config=replace(model.config, data=data)), run, record)


def read(directory: Path) -> ImportedModel:
    """Read a model in any supported format.

    Raises:
        CheckpointError: the format is unknown, a file is damaged, or the model is not supported.
    """
    if (directory / "config.json").is_file():
        from nmt.imports import huggingface

        return huggingface.read(directory)
    if (directory / "decoder.yml").is_file():
        from nmt.imports import marian

        return marian.read(directory)
    raise CheckpointError(
        f"{directory} is not a model in a known format",
        "a Hugging Face model has config.json, a Marian release has decoder.yml",
    )


def _license(directory: Path) -> str:
    """Return the license in the model card of a directory."""
    card = directory / "README.md"
    match = (
        re.search(r"^license: *(\S.*)$", card.read_text("utf-8", errors="replace"), re.M) if card.is_file() else None
    )
    return match[1].strip() if match else "not specified"


def _write(model: ImportedModel, run: Path, record: dict[str, str]) -> Path:
    """Write the run of an imported model."""
    from nmt.config import config_io
    from nmt.model.build import build_model
    from nmt.runs import checkpoint, model_card

    config_io.check(model.config)
    network = build_model(model.config.model, len(model.tokenizer))
    try:
        network.load_state_dict(model.weights)
    except RuntimeError as error:
        reason = str(error).splitlines()[-1].strip()
        raise CheckpointError(f"the weights do not fit config.json: {reason}", "download the model again") from None
    with new_directory(run) as work:
        (work / "config.yaml").write_text(config_io.dump(model.config), encoding="utf-8")
        model.tokenizer.save(work)
        limits = {"max_source_length": model.config.train.max_length - 1, "max_sentences_per_line": 1}
        data = limits | {"imported": record | {"sha256": model.checksum}}
        (work / "data.json").write_text(json.dumps(data, indent=2) + "\n", encoding="utf-8")
        checkpoint.save(work, checkpoint.Progress(), model.weights, {}, model.tokenizer.checksum)
    model_card.write_card(run)
    log(f"imported {record['source']} (license {record['license']})")
    return run
