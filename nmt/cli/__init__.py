"""The command line: a file per command or group of commands, their shared helpers, and one place
that handles errors.

A file is imported when its command runs, and imports PyTorch and other slow modules in functions,
so that all commands start fast.
"""

from __future__ import annotations

import io
import keyword
import os
import shlex
import sys
from collections.abc import Callable
from copy import copy
from functools import cache, partial
from importlib import import_module
from typing import Any, NoReturn, cast

import typer
from typer.core import TyperGroup

from nmt.cli import completion, help_layout
from nmt.core import packages, plugins, torchrun
from nmt.core.console import LOG, discard, escape_control, log, log_interruption
from nmt.core.errors import NMTError, StoppedError, UsageError, file_hint
from nmt.core.version import __version__
from nmt.jobs import process_settings

ClickUsageError = cast(type[Exception], typer.BadParameter.__base__)
"""Click's UsageError. Some versions of Typer bundle Click, so it cannot be imported from click."""

COMMANDS = (
    "train",
    "translate",
    "backtranslate",
    "distill",
    "evaluate",
    "compare",
    "calibrate",
    "score",
    "average",
    "export",
    "import",
    "models",
    "info",
    "summary",
    "attention",
    "sweep",
    "serve",
    "config",
    "doctor",
    "data",
    "tokenizer",
    "plot",
)
"""All commands, each in a module of its name, in the order of `nmt --help`."""
SINGLE_PROCESS_COMMANDS = (
    "evaluate",
    "compare",
    "calibrate",
    "score",
    "average",
    "export",
    "attention",
    "sweep",
    "serve",
    "tokenizer",
    "plot",
)
"""Commands that would do the same, and write the same files, in each process of torchrun."""


@cache
def _command(name: str) -> Any:
    module_name = f"{name}_" if keyword.iskeyword(name) else name
    module = import_module(f"nmt.cli.{module_name}")
    if hasattr(module, "app"):
        module.app.info.cls = CommandGroup
        group = typer.main.get_group(module.app)
        group.name = name
        help_layout.prepare(group)
        for command in group.commands.values():
            _prepare(command)
        return group
    single = typer.Typer(add_completion=False)
    single.command(name)(getattr(module, module_name))
    command = typer.main.get_command(single)
    _prepare(command)
    return command


def _prepare(command: Any) -> None:
    help_layout.prepare(command)
    completion.prepare(command)
    for parameter in command.params:
        if hasattr(parameter.type, "file_okay"):
            parameter.type = copy(parameter.type)  # Typer shares types
            parameter.type.convert = partial(_convert_path, parameter.type.convert)


def _convert_path(convert: Callable[..., Any], value: Any, param: Any, ctx: Any) -> Any:
    """Convert an argument to a path, but not an empty one, which would be the current directory."""
    if value == "":
        raise UsageError(f"{param.opts[0]} is empty", "is a variable of a script not set?")
    return convert(value, param, ctx)


class CommandGroup(TyperGroup):
    """Completes usage errors of its commands with a hint."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except UsageError as error:
            error.hint = error.hint or f"run {ctx.command_path} {ctx.invoked_subcommand} --help"
            raise


class ErrorHandlingGroup(CommandGroup):
    """Reports expected errors as one line, a hint and an exit code. Other exceptions are bugs and
    propagate."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.commands = dict.fromkeys(COMMANDS)  # type: ignore[assignment]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Make a command on first use: making all of them would take longer than a short
        translation."""
        return _command(cmd_name) if cmd_name in COMMANDS else None

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """Run the command and exit with its code."""
        try:
            sys.exit(super().main(*args, **kwargs | {"standalone_mode": False}))
        except StoppedError as error:  # not an error, and logged
            sys.exit(error.exit_code)
        except NMTError as error:
            _report(error)
        except ClickUsageError as error:
            message = error.format_message()  # type: ignore[attr-defined]
            if not message:  # `nmt` or `nmt data` without a command: the help is already printed
                sys.exit(UsageError.exit_code)
            _report(UsageError(message, _usage_hint(error)))
        except ModuleNotFoundError as error:
            package = (error.name or "").partition(".")[0]
            if not packages.is_optional(package):
                raise
            reason = f"this command needs the package {package}, which is not installed"
            _report(UsageError(reason, packages.install_line(package)))
        except OSError as error:  # such as a full disk
            name = error.filename
            try:
                sys.stdout.flush()
            except OSError:
                name = name or "standard output"
                discard(sys.stdout)
            reason = error.strerror or str(error)
            hint = file_hint(error, "choose another file or directory" if error.filename else "")
            _report(NMTError(f"{name}: {reason}" if name else reason, hint))
        except Exception as error:
            failure = plugins.explain_failure(error)
            if failure is None:
                raise
            _report(failure)

    def invoke(self, ctx: Any) -> Any:
        """Run the command; report an interruption."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:  # `nmt ... | head -1`
            discard(sys.stdout)
        except KeyboardInterrupt:
            log_interruption("interrupted")
            raise


def _usage_hint(error: Exception) -> str:
    """Return the hint for an error of the command line."""
    context = getattr(error, "ctx", None)
    if not context:
        return "run nmt --help"
    names = [each.name for each in context.command.params if each.param_type_name == "argument"]
    option = getattr(error, "option_name", "")
    takes_model = bool(names) and names[0] in ("run", "first")
    if takes_model and option in ("--model", "-m"):
        return f"pass the model without an option: {context.command_path} MODEL"
    text = _text_taken_for_option(option) if "text" in names else ""
    if text:
        others = [name.upper() for name in names[: names.index("text")]]
        command = " ".join([context.command_path, *others, "--", shlex.quote(text)])
        return f"write -- before a text that starts with a hyphen: {command}"
    return f"run {context.command_path} --help"


def _text_taken_for_option(option: str) -> str:
    """Return the argument that looks like a text rather than an unknown option, or an empty string.

    Args:
        option: the unknown option. Of a text such as "-No, thanks" it is the first letter, -N.
    """
    if not option:
        return ""
    for argument in sys.argv[1:]:
        name = argument.partition("=")[0]
        has_space = any(map(str.isspace, name))
        is_text = has_space or not any(map(str.isalnum, name))
        if argument.startswith(option) and is_text:
            return argument
    return ""


def _report(error: NMTError) -> NoReturn:
    rank = torchrun.rank()  # torchrun mixes the output of its processes
    message = error.message.replace("\n", "\\n")  # of an argument
    log(f"error: {f'(rank {rank}) ' if rank else ''}{message}", every_rank=True)
    if error.hint:
        print(f"     hint: {escape_control(error.hint)}", file=LOG, flush=True)
    sys.exit(error.exit_code)


app = typer.Typer(
    name="nmt",
    cls=ErrorHandlingGroup,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Train, run and evaluate neural machine translation models.",
)


def version(value: bool) -> None:
    """Print the version and exit."""
    if value:
        typer.echo(f"nmt {__version__}")
        raise typer.Exit


@app.callback()
def root(
    context: typer.Context,
    show_version: bool = typer.Option(
        False, "--version", callback=version, is_eager=True, help="Print the version and exit."
    ),
) -> None:
    """Train, run and evaluate neural machine translation models."""
    command = context.invoked_subcommand
    wants_help = bool({"-h", "--help"} & {*sys.argv})
    if command in SINGLE_PROCESS_COMMANDS and torchrun.is_distributed() and not wants_help:
        raise UsageError(
            f"nmt {command} supports a single process only",
            "run it without torchrun, or unset WORLD_SIZE",
        )
    process_settings.set_defaults()
    if command == "translate":
        process_settings.use_one_thread_for_numpy()
    elif command == "train":
        process_settings.tune_malloc_for_training()


def main() -> None:
    """Run the `nmt` command."""
    if sys.stderr is None:  # closed: not needed for results
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    if sys.stdout is None:
        _report(NMTError("standard output is closed", "redirect standard output to a file"))
    if os.environ.get("COLUMNS") == "0":  # help would be empty
        del os.environ["COLUMNS"]
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # UTF-8 in every locale
            stream.reconfigure(encoding="utf-8", errors="replace")
    app(prog_name="nmt")
