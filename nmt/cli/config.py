"""`nmt config`."""

from __future__ import annotations

from typing import Annotated

import typer


def config(
    name: Annotated[str, typer.Argument(help="A YAML file, or the name of a shipped config.")] = "quickstart",
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change an option before printing.")
    ] = None,
    options: Annotated[bool, typer.Option("--options", help="Explain every option instead.")] = False,
) -> None:
    """Print a config with every option resolved, as YAML that `nmt train --config` reads.

    Examples:
      nmt config multi30k
      nmt config --set model.dim=512 --set model.heads=8 > mine.yaml
      nmt config --options
    """
    from nmt import settings

    if options:
        for key, default, text in settings.options():
            typer.echo(f"{key}  [{default}]\n    {text}")
    else:
        typer.echo(settings.dump(settings.load(settings.find(name), set_ or [])), nl=False)
