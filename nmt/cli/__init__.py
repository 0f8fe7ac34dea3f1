"""The command line: one file per command, one error boundary.

Commands parse, call one function and print. Heavy imports stand inside them so that `nmt --help` answers at once.
"""

from __future__ import annotations

import errno
import io
import os
import sys
from typing import Any, NoReturn, cast

import typer
from typer.core import TyperGroup

from nmt import __version__
from nmt.cli import (
    attention,
    average,
    compare,
    config,
    data,
    doctor,
    environment,
    evaluate,
    export,
    info,
    plot,
    reproduce,
    score,
    summary,
    sweep,
    tokenizer,
    train,
    translate,
)
from nmt.console import escape_control
from nmt.errors import NMTError, UsageError

Misuse = cast(type[Exception], typer.BadParameter.__base__)  # click's UsageError, wherever this typer keeps it


_FULL, _FORBIDDEN = "make room on that disk", "name another place, or ask for the right to use this one"
HINTS = {
    errno.ENOSPC: _FULL, errno.EDQUOT: _FULL, errno.EFBIG: _FULL,
    errno.EACCES: _FORBIDDEN, errno.EPERM: _FORBIDDEN, errno.EROFS: _FORBIDDEN,
    errno.ENOTDIR: "a part of this path is a file",
}  # fmt: skip
"""What to do about what the system refuses."""
TRAINING = ("train", "sweep", "reproduce")
"""Commands that train, themselves or by another."""


class Boundary(TyperGroup):
    """Turns every expected failure into one line and an exit code; what passes it is a bug."""

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """Run the command and report an error as a person wants to read it."""
        try:
            sys.exit(super().main(*args, **kwargs | {"standalone_mode": False}))
        except NMTError as error:
            _report(error)
        except Misuse as error:
            context = getattr(error, "ctx", None)
            message = error.format_message()  # type: ignore[attr-defined]
            if not message:  # a bare `nmt` or `nmt data`: its help stands on the screen already
                sys.exit(UsageError.exit_code)
            _report(UsageError(message, f"{context.command_path if context else 'nmt'} --help"))

    def invoke(self, ctx: Any) -> Any:
        """Run the command; what the system refuses (a full disk, say) becomes an error like any other."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:  # `nmt ... | head -1`: the reader has what it wanted
            _drop_output()
        except KeyboardInterrupt:
            typer.echo("nmt: interrupted", err=True)
            raise
        except UsageError as error:
            error.hint = error.hint or f"nmt {ctx.invoked_subcommand} --help"
            raise
        except OSError as error:
            try:
                sys.stdout.flush()
            except OSError:
                _drop_output()
            reason = error.strerror or str(error)
            hint = HINTS.get(error.errno or 0, "name another file or folder" if error.filename else "")
            raise NMTError(f"{error.filename}: {reason}" if error.filename else reason, hint) from None


def _drop_output() -> None:
    """Send nowhere what could not be written: the interpreter, which tries again at its end, would fail and say so."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _report(error: NMTError) -> NoReturn:
    rank = os.environ.get("RANK", "")  # torchrun mixes what its processes write
    typer.echo(escape_control(f"nmt: error: {f'(rank {rank}) ' if rank else ''}{error.message}"), err=True)
    if error.hint:
        typer.echo(escape_control(f"     hint: {error.hint}"), err=True)
    sys.exit(error.exit_code)


app = typer.Typer(
    name="nmt",
    cls=Boundary,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Neural machine translation from nothing to BLEU: get data, train a Transformer, translate, evaluate.",
)
for command in (
    train.train, translate.translate, evaluate.evaluate, compare.compare, score.score, average.average, export.export,
    info.info, summary.summary, attention.attention, reproduce.reproduce, sweep.sweep, config.config, doctor.doctor,
):  # fmt: skip
    app.command()(command)
app.add_typer(data.app, name="data")
app.add_typer(tokenizer.app, name="tokenizer")
app.add_typer(plot.app, name="plot")


def version(value: bool) -> None:
    """Print the version and stop."""
    if value:
        typer.echo(f"nmt {__version__}")
        raise typer.Exit


@app.callback()
def root(
    context: typer.Context,
    show_version: bool = typer.Option(False, "--version", callback=version, is_eager=True, help="Print the version."),
) -> None:
    """Neural machine translation from nothing to BLEU."""
    environment.set_defaults()
    if context.invoked_subcommand in TRAINING:
        environment.tune_malloc_for_training()


def main() -> None:
    """Run the `nmt` command."""
    if sys.stderr is None:  # closed: what goes well goes well without
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    if sys.stdout is None:
        _report(NMTError("standard output is closed", "results would be lost"))
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # text is UTF-8, whatever the locale says
            stream.reconfigure(encoding="utf-8", errors="replace")
    app(prog_name="nmt")  # also where it runs as `python -m nmt`
