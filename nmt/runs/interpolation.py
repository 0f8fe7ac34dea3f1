"""Linear interpolation of the weights of two models with the same architecture and tokenizer, as a run of its own.

Wortsman et al. 2022, "Robust fine-tuning of zero-shot models" (WiSE-FT): the average of a model and its fine-tuned
version keeps most of the gain in the new domain and loses less outside of it.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from nmt.config import config_io
from nmt.errors import CheckpointError, UsageError
from nmt.paths import new_directory
from nmt.runs import checkpoint, discovery, model_card, pretrained, run_info
from nmt.runs.checkpoint import Progress

DROPOUTS = ("dropout", "attention_dropout", "activation_dropout")
"""Model options that do not change the meaning of the weights."""


def interpolate_models(first: Path, second: Path, share: float, run: Path | None = None) -> Path:
    """Write (1 - share) · first + share · second as a run with one checkpoint, and return its directory.

    Config and tokenizer are those of the second model.

    Args:
        first: run, checkpoint or pretrained model.
        second: another one, usually fine-tuned from `first`.
        share: share of the second model, between 0 and 1.
        run: the run to create; None: next to the second run, for example `runs/tuned-average-0.3`.

    Raises:
        UsageError: the run exists already, or `share` is not between 0 and 1.
        CheckpointError: a model cannot be loaded, or the models differ in tokenizer, languages or model options.
    """
    if not 0 < share < 1:
        raise UsageError(f"--share must be above 0 and below 1, got {share:g}", "for example --share 0.5")
    models = [discovery.find_model(path) for path in (first, second)]
    parent = pretrained.output_dir(models[1].run)
    parent = parent if parent.name not in ("", "..") else parent.resolve()
    run = run or parent.with_name(f"{parent.name}-average-{share:g}")
    if run.exists():
        raise UsageError(f"{run} already exists", "choose another directory with --run, or delete it")
    _check_compatible(first, second, *models)
    weights = checkpoint.weighted_sum([(models[0].checkpoint, 1 - share), (models[1].checkpoint, share)])
    parents = [
        run_info.parent_record(model) | {"share": each}
        for model, each in zip(models, (round(1 - share, 9), share), strict=True)
    ]
    data = {
        "max_source_length": max(model.max_source_length for model in models),
        "max_sentences_per_line": max(model.max_sentences_per_line for model in models),
        "derived_from": parents,
        "data_unknown": run_info.is_imported(models[1].run),
    }
    with new_directory(run, replace=False) as work:
        (work / "config.yaml").write_text(config_io.dump(models[1].config), encoding="utf-8")
        models[1].tokenizer.save(work)
        (work / "data.json").write_text(json.dumps(data, indent=2) + "\n", encoding="utf-8")
        checkpoint.save(work, Progress(), weights, {}, models[1].tokenizer.checksum)
    model_card.write_card(run)
    return run


def _check_compatible(
    first: Path, second: Path, first_model: discovery.ModelFiles, second_model: discovery.ModelFiles
) -> None:
    hint = "average a model with one that was fine-tuned from it"
    one, two = (model.config for model in (first_model, second_model))
    if (one.data.src, one.data.tgt) != (two.data.src, two.data.tgt):
        raise CheckpointError(f"{first} and {second} translate between different languages", hint)
    if first_model.tokenizer.checksum != second_model.tokenizer.checksum:
        raise CheckpointError(f"{first} and {second} have different tokenizers", hint)
    options = asdict(two.model)
    different = [name for name, value in asdict(one.model).items() if name not in DROPOUTS and value != options[name]]
    if different:
        raise CheckpointError(f"{first} and {second} differ in model.{different[0]}", hint)
