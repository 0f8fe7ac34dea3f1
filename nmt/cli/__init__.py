"""The command line: one file per command, one error boundary.

Commands parse, call one function and print. Heavy imports stand inside them so that `nmt --help` answers at once.
"""

from __future__ import annotations

import os
import sys
from typing import Any

import typer
from typer.core import TyperGroup

from nmt import __version__
from nmt.cli import config, data, evaluate, tokenizer, train, translate
from nmt.errors import NMTError


class Boundary(TyperGroup):
    """Turns every expected failure into one line and an exit code; what passes it is a bug."""

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """Run the command and report an `NMTError` as a person wants to read it."""
        try:
            return super().main(*args, **kwargs)
        except NMTError as error:
            typer.echo(f"nmt: error: {error.message}", err=True)
            if error.hint:
                typer.echo(f"     hint: {error.hint}", err=True)
            sys.exit(error.exit_code)
        except BrokenPipeError:  # `nmt ... | head -1`: the reader has what it wanted
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(0)


app = typer.Typer(
    name="nmt",
    cls=Boundary,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Neural machine translation from nothing to BLEU: get data, train a Transformer, translate, evaluate.",
)
for command in (train.train, translate.translate, evaluate.evaluate, config.config):
    app.command()(command)
app.add_typer(data.app, name="data")
app.add_typer(tokenizer.app, name="tokenizer")


def version(value: bool) -> None:
    """Print the version and stop."""
    if value:
        typer.echo(f"nmt {__version__}")
        raise typer.Exit


@app.callback()
def root(
    show_version: bool = typer.Option(False, "--version", callback=version, is_eager=True, help="Print the version."),
) -> None:
    """Neural machine translation from nothing to BLEU."""


def main() -> None:
    """Run the `nmt` command."""
    app()
