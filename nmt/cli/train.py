"""`nmt train`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nmt.cli.duration import parse_duration
from nmt.cli.options import ConfigOption, DeviceOption, PrecisionOption, SetOption
from nmt.core import torchrun
from nmt.core.config import FINE_TUNING, Config
from nmt.core.console import SILENT, format_bytes, format_count, format_duration
from nmt.core.errors import StoppedError, UsageError
from nmt.core.layout import format_fields
from nmt.jobs.output import show

if TYPE_CHECKING:  # imports torch
    from nmt.training.profiling import Estimate


def train(
    config: ConfigOption = "",
    run: Annotated[
        Path | None, typer.Option(help="Run directory.", show_default="runs/CONFIG")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Resume the run from its latest checkpoint.")
    ] = False,
    time_limit: Annotated[
        str | None,
        typer.Option(
            help=(
                "Wall-clock limit, including the final validation and calibration: 90s, 30m,"
                " 1h30m, 2d."
            ),
            show_default="none",
        ),
    ] = None,
    init_from: Annotated[
        Path | None,
        typer.Option(
            help=(
                "Fine-tune this run, checkpoint, pretrained or published model. The default config"
                " is finetune."
            )
        ),
    ] = None,
    batch_tokens: Annotated[
        str | None,
        typer.Option(
            help="Maximum tokens per batch, or auto: the largest batch that fits in GPU memory.",
            show_default="the config's",
        ),
    ] = None,
    plan: Annotated[
        bool,
        typer.Option(
            "--plan", help="Estimate memory, speed and training time from a few updates, then exit."
        ),
    ] = False,
    log_to: Annotated[
        list[str] | None,
        typer.Option(
            "--log-to",
            metavar="LOGGER",
            help=(
                "Also log to tensorboard, wandb, mlflow or trackio, e.g. wandb(project='x'); may be"
                " repeated. A resumed run keeps its loggers."
            ),
        ),
    ] = None,
    tensorboard: Annotated[
        bool, typer.Option("--tensorboard", help="The same as --log-to tensorboard.")
    ] = False,
    device: DeviceOption = "auto",
    precision: PrecisionOption = "auto",
    set_: SetOption = None,
) -> None:
    """Train a translation model.

    Downloads and prepares the data, trains, validates and saves checkpoints. Without options,
    trains the quickstart config on the built-in phrasebook, which takes 90 seconds on two CPU
    cores. At the end, nmt calibrates the confidence of the best checkpoint (nmt calibrate).

    Ctrl-C, SIGTERM and the end of the terminal save a checkpoint and stop. The exit code is then
    75, and --resume continues the run. The exit code of a finished run is 0, also if --time-limit
    ended it. In both cases, stdout is the path of the best checkpoint so far.

    --init-from fine-tunes a model on other data. The best checkpoint is never worse than the start
    model on the validation set, and both are compared at the end. Its default config stops when the
    score no longer improves.

    Examples:
      nmt train
      nmt train --config multi30k --time-limit 30m
      nmt train --config multi30k --plan --time-limit 30m
      nmt train --config tatoeba --run runs/small --set model.dim=128 --set train.batch_tokens=2048
      nmt train --run runs/small --resume
      nmt train --init-from runs/a --set data.replay=tatoeba --set "data.train=files(train='mine')"
      nmt train --config tatoeba --set "data.train=files(train='my/corpus')" --run runs/mine
    """
    from nmt.core.config import config_io
    from nmt.core.paths import runs_dir

    overrides = list(set_ or [])
    names = config_io.override_names(overrides)
    if batch_tokens is not None and "train.batch_tokens" in names:
        raise UsageError(
            "--batch-tokens and --set train.batch_tokens are the same option",
            "leave out one of them",
        )
    if init_from is not None and "train.init_from" in names:
        raise UsageError(
            "--init-from and --set train.init_from are the same option", "leave out one of them"
        )
    if init_from is not None and resume:
        raise UsageError(
            "--init-from starts a new run", "leave it out to resume, or leave out --resume"
        )
    limit = None if time_limit is None else parse_duration(time_limit)
    directory = (
        run or runs_dir() / Path(config or (FINE_TUNING if init_from else "quickstart")).stem
    )
    fit_batch = batch_tokens == "auto"
    if batch_tokens is not None and not fit_batch:
        overrides.append(f"train.batch_tokens={batch_tokens}")
    from nmt.training import configs

    resolved = configs.load(config, directory if resume else None, init_from, overrides)
    loggers = [*(log_to or []), *(["tensorboard"] if tensorboard else [])]
    resolved = _with_loggers(resolved, loggers)
    config_io.check_unused(resolved, overrides, is_fine_tuned=init_from is not None)

    from nmt.training import api, session

    if plan:
        unused = {"--resume": resume, "--tensorboard": tensorboard, "--log-to": log_to}
        for option, is_set in unused.items():
            if is_set:
                raise UsageError(f"--plan does not train: leave out {option}")
        if torchrun.rank():
            raise UsageError("--plan supports a single process only", "run it without torchrun")
        estimate = session.estimate_training(
            resolved, device=device, precision=precision, auto_batch_size=fit_batch
        )
        show("\n".join(format_fields(_describe(estimate, resolved.train.steps, limit))))
        return
    try:
        api.train(
            resolved,
            directory,
            resume=resume,
            device=device,
            precision=precision,
            time_limit=limit,
            auto_batch_size=fit_batch,
        )
    except StoppedError:
        _show_best(directory)
        raise
    _show_best(directory)


def _show_best(run: Path) -> None:
    from nmt.runs import checkpoint

    if not SILENT:
        show(str(checkpoint.best(run)))


def _with_loggers(config: Config, loggers: list[str]) -> Config:
    """Add loggers to those of the config."""
    all_loggers = dict.fromkeys([*config.train.loggers, *loggers])
    return replace(config, train=replace(config.train, loggers=tuple(all_loggers)))


def _describe(estimate: Estimate, steps: int, limit: float | None) -> dict[str, str]:
    """Format an estimate, with a label for each line."""

    def epochs(updates: int) -> str:
        return f"{updates / estimate.updates_per_epoch:,.1f} epochs"

    pairs = estimate.corpora.removesuffix(" per epoch")
    lines = {
        "parameters": format_count(estimate.parameters),
        "data": (
            f"{pairs}, {estimate.tokens_per_epoch:,} target tokens per epoch,"
            f" {estimate.padding:.1%} padding"
        ),
        "updates": f"{steps:,} ({epochs(steps)} of {estimate.updates_per_epoch:,} updates)",
        "speed": (
            f"{estimate.tokens_per_second:,.0f} target tokens/s,"
            f" {1 / estimate.seconds_per_update:.2f} updates/s ({estimate.measured_updates}"
            " measured)"
        ),
        "peak memory": (
            format_bytes(estimate.memory) if estimate.memory else "unknown on this system"
        ),
        "checkpoints": f"up to {format_bytes(estimate.disk)} on disk",
        "time": f"{format_duration(steps * estimate.seconds_per_update)} without validation",
    }
    if limit is not None:
        affordable = min(steps, int(limit / estimate.seconds_per_update))
        lines["within limit"] = f"{affordable:,} updates ({epochs(affordable)}) without validation"
    return lines
