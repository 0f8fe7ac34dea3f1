"""`nmt config`."""

from __future__ import annotations

from typing import Annotated

import typer

from nmt.cli.options import SetOption
from nmt.core.errors import UsageError


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
        if set_ or (name and name not in config_io.builtin_configs()):
            from nmt.training import configs  # imports torch

            resolved = configs.load_checked(name or "", set_ or [])
        else:
            resolved = config_io.load_named(name or "quickstart")
        typer.echo(config_io.dump(resolved), nl=False)
