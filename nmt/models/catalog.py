"""The models that can be used without training: pretrained models, imported runs, and known
published models."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

import yaml

from nmt.core.config import config_io
from nmt.core.errors import ConfigError
from nmt.core.paths import runs_dir
from nmt.models.importers import origin
from nmt.runs import pretrained
from nmt.runs.model_card import read_metadata

CARDS = "https://github.com/nmtkit/nmt/blob/main/nmt/runs/pretrained"
"""Directory of the cards of the pretrained models."""
TABLE = Path(__file__).with_name("catalog.yaml")


@dataclass(frozen=True)
class ModelInfo:
    """A model that `nmt models` lists. Values without a source are None or empty."""

    name: str
    """What --model accepts."""
    src: str
    tgt: str
    megabytes: int | None = None
    """Size of the download, or of the files of a pretrained model."""
    license: str = ""
    scores: dict[str, tuple[float, float]] = field(default_factory=dict)
    """Published BLEU and chrF by test set."""
    source: str = ""
    """Page that publishes these values; of an imported run, where it was imported from."""
    path: str = ""
    """Directory on disk; empty: not imported."""


def names() -> list[str]:
    """Return the names of the pretrained and of known published models."""
    entries = yaml.safe_load(TABLE.read_text(encoding="utf-8"))
    return [*pretrained.DIRECTIONS, *(entry["name"] for entry in entries)]


def list_models(src: str = "", tgt: str = "") -> list[ModelInfo]:
    """Return the models of a source and target language (empty: any): pretrained, imported, then
    published."""
    included = [_included(name, *languages) for name, languages in pretrained.DIRECTIONS.items()]
    published = {}
    for entry in yaml.safe_load(TABLE.read_text(encoding="utf-8")):
        name = entry["name"]
        published[name] = ModelInfo(**entry, source=f"https://huggingface.co/{name}")
    imported = []
    for run in sorted(runs_dir().glob("[!.]*")):
        record = origin(run)
        name = record.get("source", "")
        used_by_name = run.name == name.rpartition("/")[2]  # by --model NAME
        if name in published and used_by_name:
            published[name] = replace(published[name], path=str(run))
        elif record:
            imported += _imported(run, record)
    found = []
    for model in (*included, *imported, *published.values()):
        has_source = src.lower() in ("", model.src.lower())
        has_target = tgt.lower() in ("", model.tgt.lower())
        if has_source and has_target:
            found.append(model)
    return found


def _included(name: str, src: str, tgt: str) -> ModelInfo:
    """Return a pretrained model with the license and the scores in the metadata of its card."""
    directory = pretrained.DIRECTORY / name
    metadata = read_metadata(directory)
    scores = {}
    for result in metadata["model-index"][0]["results"]:
        values = {metric["type"]: metric["value"] for metric in result["metrics"]}
        scores[result["dataset"]["name"]] = (values["bleu"], values["chrf"])
    num_bytes = sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())
    return ModelInfo(
        name,
        src,
        tgt,
        megabytes=round(num_bytes / 1e6),
        license=metadata["license"],
        scores=scores,
        source=f"{CARDS}/{name}/README.md",
        path=str(directory),
    )


def _imported(run: Path, record: dict[str, str]) -> list[ModelInfo]:
    """Return an imported run that is not in the table; empty: its config is damaged."""
    try:
        data = config_io.load(run / "config.yaml").data
    except ConfigError:
        return []
    name = str(run)
    license_, source = record["license"], record["source"]
    return [ModelInfo(name, data.src, data.tgt, license=license_, source=source, path=name)]
