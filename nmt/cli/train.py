"""`nmt train`."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nmt.cli.options import ConfigOption, SetOption
from nmt.config import Config
from nmt.console import SILENT
from nmt.errors import UsageError

if TYPE_CHECKING:  # it loads torch
    from nmt.train.session import Estimate

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def train(
    config: ConfigOption = "",
    run: Annotated[
        Path | None, typer.Option(help="Folder of this run.", show_default="runs/ and the config's name")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in this folder, exactly.")] = False,
    time_limit: Annotated[
        str | None,
        typer.Option(help="Stop in time, the last validation included: 90s, 30m, 1h30m, 2d.", show_default="none"),
    ] = None,
    init_from: Annotated[
        Path | None, typer.Option(help="Fine-tune: start from this run or checkpoint, with its model and tokenizer.")
    ] = None,
    batch_tokens: Annotated[
        str | None,
        typer.Option(
            help="Most tokens of a batch, or auto: the largest that fits into the GPU.", show_default="the config's"
        ),
    ] = None,
    plan: Annotated[
        bool, typer.Option("--plan", help="Measure some updates, print memory, speed and time, and train nothing.")
    ] = False,
    tensorboard: Annotated[
        bool, typer.Option("--tensorboard", help="Also log for TensorBoard, into the run's folder tensorboard.")
    ] = False,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda (cuda:1 for the second GPU).")] = "auto",
    precision: Annotated[str, typer.Option(help="auto, fp32, bf16 or fp16.")] = "auto",
    set_: SetOption = None,
) -> None:
    """Train a translator: get the data, prepare it, learn, validate, save.

    Without arguments the quickstart config is trained on the built-in phrasebook, a few minutes on two cores.
    Ctrl-C stops and saves; --resume goes on from there.

    Examples:
      nmt train
      nmt train --config multi30k --time-limit 30m
      nmt train --config multi30k --plan --time-limit 30m
      nmt train --config tatoeba --run runs/small --set model.dim=128 --set train.batch_tokens=2048
      nmt train --run runs/small --resume
      nmt train --init-from runs/small --run runs/tuned --set "data.train=files(train='my/corpus')" --set train.steps=500
      nmt train --set "data.train=files(train='my/corpus')" --run runs/mine
    """
    from nmt.config import config_io
    from nmt.paths import runs_dir

    if init_from is not None and resume:
        raise UsageError("--init-from begins a new training", "leave it out to go on with one: --resume")
    limit = None if time_limit is None else seconds(time_limit)
    folder = run or runs_dir() / Path(config or "quickstart").stem
    own = folder / "config.yaml"
    source = own if resume and not config and own.is_file() else config_io.find(config or "quickstart")
    fit = batch_tokens == "auto"
    if source == own and not own.read_bytes().strip():
        raise UsageError(f"{own} is empty", "put the run's own file back")
    changes = [*(set_ or []), *([f"train.batch_tokens={batch_tokens}"] if batch_tokens is not None and not fit else [])]
    resolved = config_io.load(source, changes) if init_from is None else _fine_tuned(source, init_from, changes)

    from nmt.train import session as training

    if plan and (resume or tensorboard):
        raise UsageError(f"--plan trains nothing: leave out {'--resume' if resume else '--tensorboard'}")
    if plan:
        if "RANK" in os.environ:
            raise UsageError("--plan measures one process", "run it without torchrun")
        found = training.plan(resolved, device=device, precision=precision, auto_batch_size=fit)
        for name, text in _told(found, resolved.train.steps, limit).items():
            typer.echo(f"{name:<14}{text}")
        return
    best = training.train(
        resolved, folder, resume=resume, device=device, precision=precision,
        time_limit=limit, auto_batch_size=fit, tensorboard=tensorboard,
    )  # fmt: skip
    if not SILENT:
        typer.echo(best)


def _told(plan: Estimate, steps: int, limit: float | None) -> dict[str, str]:
    """Return what a measurement says of a training, line by line."""

    def updates(number: int) -> str:
        return f"{number:,}, which are {number / plan.updates_per_epoch:,.1f} epochs"

    told = {
        "parameters": f"{plan.parameters / 1e6:.1f} M",
        "text": f"{plan.pairs:,} pairs; {plan.tokens_per_epoch:,} target tokens an epoch, {plan.padding:.1%} padding",
        "updates": f"{updates(steps)} of {plan.updates_per_epoch:,}",
        "speed": f"{plan.tokens_per_second:,.0f} target tokens/s, {1 / plan.seconds_per_update:.2f} updates/s "
        f"({plan.updates} measured)",
        "memory": f"{plan.memory / 1e9:.1f} GB at the peak" if plan.memory else "unknown on this system",
        "checkpoints": f"up to {plan.disk / 1e6:,.0f} MB on disk",
        "time": f"{duration(steps * plan.seconds_per_update)}, validations not counted",
    }
    if limit is not None:
        told["within limit"] = f"{updates(min(steps, int(limit / plan.seconds_per_update)))}, validations not counted"
    return told


def duration(seconds: float) -> str:
    """Write a duration as people read it: 45 s, 12 min, 3 h 5 min, 2 d 4 h."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 24:
        return f"{hours} h {minutes} min"
    return f"{hours // 24} d {hours % 24} h"


def _fine_tuned(source: Path, init_from: Path, overrides: list[str]) -> Config:
    """Return a config that starts from another run: languages, sizes, how it reads; the rest as `source`, --set say."""
    from nmt.config import config_io
    from nmt.runs import discovery

    run, _ = discovery.resolve_model(init_from)
    config, own = config_io.load(source), config_io.load(run / "config.yaml")
    config = replace(
        config,
        lowercase_all_caps=own.lowercase_all_caps,
        data=replace(config.data, src=own.data.src, tgt=own.data.tgt),
        model=own.model,
        tokenizer=replace(config.tokenizer, model=str(run / "spm.model")),
        train=replace(config.train, init_from=str(init_from)),
    )
    for text in overrides:
        config = config_io.override(config, text)
    config_io.check(config)
    return config


def seconds(text: str) -> float:
    """Read a duration such as 90s, 30m or 1h30m; a bare number is seconds.

    Raises:
        UsageError: it is not one, or it is zero.
    """
    parts = re.findall(r"(\d+(?:\.\d+)?)([smhd])", text)
    if text and "".join(number + unit for number, unit in parts) == text:
        total = sum(float(number) * _UNITS[unit] for number, unit in parts)
    else:
        try:
            total = float(text)
        except ValueError:
            total = 0.0
    if not 0 < total < float("inf"):
        raise UsageError(f"cannot read --time-limit '{text}'", "write 90s, 30m, 2h or 1h30m")
    return total
