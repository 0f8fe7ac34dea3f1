"""Training from Python: `nmt.train`, which the command `nmt train` calls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from nmt.core.config import Config
from nmt.core.errors import UsageError
from nmt.runs import checkpoint
from nmt.training import configs, session
from nmt.training.loop import Callback, Callbacks


@dataclass(frozen=True)
class TrainingResult:
    """The result of a training run."""

    run: Path
    checkpoint: Path
    """The best checkpoint."""
    scores: dict[str, float]
    """Its scores on the validation set: `valid_loss`, `valid_bleu` and `valid_chrf`."""


def train(
    config: Config | str | Path,
    run: str | Path,
    *,
    overrides: Sequence[str] = (),
    resume: bool = False,
    init_from: str | Path | None = None,
    device: str = "auto",
    precision: str = "auto",
    time_limit: float | None = None,
    auto_batch_size: bool = False,
    on_update: Callback | None = None,
    on_validation: Callback | None = None,
) -> TrainingResult:
    """Train a model in the directory `run`, as `nmt train` does.

    A callback that returns False ends the training after a last validation. Among several
    processes, only the first one calls them.

    Args:
        config: path of a config file, name of a built-in config, or a `Config`; empty: that of the
            run to resume, or quickstart.
        run: run directory; unless `resume`, it must not contain a run.
        overrides: changes of the config, such as `train.steps=1000`.
        resume: continue from the latest intact checkpoint.
        init_from: model to fine-tune.
        device: `auto`, `cpu`, `cuda` or `cuda:N`.
        precision: `auto`, `fp32`, `bf16` or `fp16`.
        time_limit: limit of this session in seconds, including data preparation, final validation
            and calibration. Schedules that decay to zero adapt to it.
        auto_batch_size: set `train.batch_tokens` to the largest size that fits in GPU memory.
        on_update: called after each update with its number and `loss`, `grad_norm`, `tokens` and
            `lr`; on a GPU, after the next update has started.
        on_validation: called after each validation and its checkpoint with the number of the update
            and the scores.

    Raises:
        NMTError: the config, the data or the run cannot be used, or training has failed; see
            `nmt.training.session.train`.
        StoppedError: a signal ended the training, whose checkpoint is saved.
    """
    directory = Path(run)
    if isinstance(overrides, str):
        raise UsageError("overrides must be a list", f"write overrides=[{overrides!r}]")
    if not isinstance(config, Config):
        start = Path(init_from) if init_from else None
        config = configs.load(str(config), directory if resume else None, start, list(overrides))
    elif overrides or init_from:
        raise UsageError(
            "overrides and init_from are for the name of a config", "change the config itself"
        )
    best = session.train(
        config,
        directory,
        resume=resume,
        device=device,
        precision=precision,
        time_limit=time_limit,
        auto_batch_size=auto_batch_size,
        callbacks=Callbacks(on_update, on_validation),
    )
    scores = dict(checkpoint.read_progress(best).scores)
    scores.pop("best_metric_value", None)
    return TrainingResult(directory, best, scores)
