"""`nmt config`."""

from __future__ import annotations

from typing import Annotated

import typer

from nmt.cli.options import SetOption
from nmt.core.config import Config
from nmt.core.errors import UsageError
from nmt.core.registry import parse


def config(
    name: Annotated[
        str | None,
        typer.Argument(
            help="YAML file, or the name of a built-in config.", show_default="quickstart"
        ),
    ] = None,
    set_: SetOption = None,
    options: Annotated[
        bool, typer.Option("--options", help="List all options with defaults and descriptions.")
    ] = False,
) -> None:
    """Print a resolved config.

    The output is YAML with every option, for nmt train --config.

    Examples:
      nmt config multi30k
      nmt config --set model.dim=512 --set model.heads=8 > mine.yaml
      nmt config --options
    """
    from nmt.core.config import config_io

    if options and (name or set_):
        raise UsageError("--options does not take other arguments", "run nmt config --options")
    if options:
        for key, default, text in config_io.options():
            typer.echo(f"{key}  [{default}]\n    {text}")
    else:
        resolved = config_io.load_named(name or "quickstart", set_ or [])
        _check_specs(resolved)
        typer.echo(config_io.dump(resolved), nl=False)


def _check_specs(config: Config) -> None:
    """Validate the specs of data and source noise, and the syntax of those of searches, schedules
    and optimizers.

    `nmt.training.session.check_specs` validates all of them, but its modules and those of
    `nmt.data.prepare` load slowly.
    """
    from nmt.data import noise
    from nmt.data.clean import cleaning_pipeline
    from nmt.data.sources import validate_all

    for spec in (
        config.search,
        config.train.valid_search,
        config.train.schedule,
        config.train.optimizer,
    ):
        parse(spec)
    noise.SourceNoise(config.train.source_noise)
    cleaning_pipeline((), config.data.clean)
    validate_all(config.data)
