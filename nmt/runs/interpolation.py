"""Linear interpolation of the weights of two models with the same architecture and tokenizer, as a
run of its own.

Wortsman et al. 2022, "Robust fine-tuning of zero-shot models" (WiSE-FT): the average of a model and
its fine-tuned version keeps most of the gain in the new domain and loses less outside of it.
"""

from __future__ import annotations

from pathlib import Path

from nmt.core.config import config_io
from nmt.core.errors import CheckpointError, UsageError
from nmt.core.paths import new_directory
from nmt.runs import checkpoint, model_card, pretrained, run_report
from nmt.runs.checkpoint import Progress
from nmt.runs.model_files import LIMITS, ModelFiles, write_run_files

DROPOUTS = ("model.dropout", "model.attention_dropout", "model.activation_dropout")
"""Model options that do not change the meaning of the weights."""


def interpolate_models(
    first: ModelFiles, second: ModelFiles, share: float, run: Path | None = None
) -> Path:
    """Write (1 - share) · first + share · second as a run with one checkpoint, and return its
    directory.

    Config and tokenizer are those of the second model.

    Args:
        first: the first model.
        second: another one, usually fine-tuned from `first`.
        share: share of the second model, between 0 and 1.
        run: the run to create; None: next to the second run, for example `runs/tuned-average-0.3`.

    Raises:
        UsageError: the run exists already, or `share` is not between 0 and 1.
        CheckpointError: a model cannot be loaded, or the models differ in tokenizer, languages or
            model options.
    """
    if not 0 < share < 1:
        raise UsageError(
            f"--share must be above 0 and below 1, got {share:g}", "for example --share 0.5"
        )
    if run is None:
        parent = pretrained.output_dir(second.run)
        parent = parent if parent.name not in ("", "..") else parent.resolve()
        run = parent.with_name(f"{parent.name}-average-{share:g}")
    if run.exists():
        raise UsageError(
            f"{run} already exists", "choose another directory with --run, or delete it"
        )
    _check_compatible(first, second)
    weights = checkpoint.weighted_sum([(first.checkpoint, 1 - share), (second.checkpoint, share)])
    parents = [
        run_report.parent_record(first) | {"share": round(1 - share, 9)},
        run_report.parent_record(second) | {"share": share},
    ]
    data = {
        **{name: max(getattr(first, name), getattr(second, name)) for name in LIMITS},
        "derived_from": parents,
        "data_unknown": run_report.is_imported(second.run),
    }
    with new_directory(run, replace=False) as work:
        write_run_files(work, second.config, second.tokenizer, data)
        checkpoint.save(work, Progress(), weights, {}, second.tokenizer.checksum)
    model_card.write_card(run)
    return run


def _check_compatible(first: ModelFiles, second: ModelFiles) -> None:
    hint = "average a model with one that was fine-tuned from it"
    one, two = first.config, second.config
    both = " and ".join(pretrained.name_of(files.run) for files in (first, second))
    if (one.data.src, one.data.tgt) != (two.data.src, two.data.tgt):
        raise CheckpointError(f"{both} translate between different languages", hint)
    if first.tokenizer.checksum != second.tokenizer.checksum:
        raise CheckpointError(f"{both} have different tokenizers", hint)
    changed = config_io.changed_options("model", one.model, two.model)
    different = [name for name in changed if name not in DROPOUTS]
    if different:
        raise CheckpointError(f"{both} differ in {different[0]}", hint)
