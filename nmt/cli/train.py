"""`nmt train`."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from nmt.cli.options import ConfigOption, SetOption
from nmt.config import Config
from nmt.console import SILENT
from nmt.errors import UsageError

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
    init: Annotated[
        Path | None, typer.Option(help="Fine-tune: start from this run or checkpoint, with its model and tokenizer.")
    ] = None,
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
      nmt train --config tatoeba --run runs/small --set model.dim=128 --set train.batch_tokens=2048
      nmt train --run runs/small --resume
      nmt train --init runs/small --run runs/tuned --set "data.train=files(train='my/corpus')" --set train.steps=500
      nmt train --set "data.train=files(train='my/corpus')" --run runs/mine
    """
    from nmt import settings
    from nmt.paths import runs_dir

    limit = None if time_limit is None else seconds(time_limit)
    folder = run or runs_dir() / Path(config or "quickstart").stem
    own = folder / "config.yaml"
    source = own if resume and not config and own.is_file() else settings.find(config or "quickstart")
    resolved = settings.load(source, set_ or []) if init is None else _fine_tuned(source, init, set_ or [])

    from nmt.train import train as run_training

    best = run_training(resolved, folder, resume=resume, device=device, precision=precision, time_limit=limit)
    if not SILENT:
        typer.echo(best)


def _fine_tuned(source: Path, init: Path, overrides: list[str]) -> Config:
    """Return a config that starts from another run: its sizes and tokenizer, the rest as `source` and --set say."""
    from nmt import checkpoint, settings

    run, _ = checkpoint.locate(init)
    config = settings.load(source)
    config = replace(
        config,
        model=settings.load(run / "config.yaml").model,
        tokenizer=replace(config.tokenizer, model=str(run / "spm.model")),
        train=replace(config.train, init=str(init)),
    )
    for text in overrides:
        config = settings.override(config, text)
    settings.check(config)
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
