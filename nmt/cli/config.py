"""`nmt config`."""

from __future__ import annotations

from typing import Annotated

import typer

from nmt.config import Config
from nmt.errors import UsageError
from nmt.registry import parse


def config(
    name: Annotated[
        str | None, typer.Argument(help="A YAML file, or the name of a shipped config.", show_default="quickstart")
    ] = None,
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
    from nmt.config import config_io

    if options and (name or set_):
        raise UsageError("--options explains every option and takes nothing else", "nmt config --options")
    if options:
        for key, default, text in config_io.options():
            typer.echo(f"{key}  [{default}]\n    {text}")
    else:
        resolved = config_io.load(config_io.find(name or "quickstart"), set_ or [])
        _check_specs(resolved)
        typer.echo(config_io.dump(resolved), nl=False)


def _check_specs(config: Config) -> None:
    """Refuse what training would refuse, as far as that can be said without loading torch."""
    from nmt.data import noise
    from nmt.data.clean import clean
    from nmt.data.sources import validate

    for spec in (config.search, config.train.valid_search, config.train.schedule):
        parse(spec)
    noise.compose(config.train.source_noise)
    clean((), config.data.clean)
    for corpus in (*config.data.train, config.data.valid, config.data.test):
        if corpus:
            validate(corpus)
