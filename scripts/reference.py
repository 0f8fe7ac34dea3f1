"""Hook of the documentation site: generate the pages on commands, options and modules."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import typer
from properdocs.config.defaults import ProperDocsConfig
from properdocs.structure.files import File, Files

from nmt.cli import app
from nmt.core.config import config_io

PACKAGE = Path(__file__).resolve().parent.parent / "nmt"


def on_files(files: Files, config: ProperDocsConfig) -> Files:
    """Add the generated pages."""
    for name, text in (("cli", commands()), ("config", options()), ("modules", modules())):
        files.append(File.generated(config, f"reference/{name}.md", content=text))
    return files


def commands() -> str:
    """Return the command reference as Markdown."""
    root: Any = typer.main.get_command(app)
    return (
        "\n\n".join(
            ["# Commands", *(_command(name, command) for name, command in _leaves("nmt", root))]
        )
        + "\n"
    )


def _leaves(name: str, command: Any) -> Iterator[tuple[str, Any]]:
    """Yield each command without subcommands and its full name."""
    if hasattr(command, "list_commands"):
        for sub in sorted(command.list_commands(None)):
            yield from _leaves(f"{name} {sub}", command.get_command(None, sub))
    else:
        yield name, command


def _command(name: str, command: Any) -> str:
    about, _, examples = inspect.cleandoc(command.help or "").partition("Examples:\n")
    parts = [f"## {name}", about.replace("\b", "").strip()]
    if examples:
        parts.append(f"```sh\n{inspect.cleandoc(examples)}\n```")
    rows = [
        _parameter(parameter)
        for parameter in command.params
        if not getattr(parameter, "hidden", False)
    ]
    if rows:
        parts.append("\n".join(["| parameter | default | description |", "|---|---|---|", *rows]))
    return "\n\n".join(parts)


def _parameter(parameter: Any) -> str:
    is_argument = parameter.param_type_name == "argument"
    value = parameter.metavar or parameter.name.rstrip("_").upper().replace("_", "-")
    suffix = "" if getattr(parameter, "is_flag", False) else f" {value}"
    names = (
        [value]
        if is_argument
        else [f"{name}{suffix}" for name in (*parameter.opts, *parameter.secondary_opts)]
    )
    default = (
        parameter.show_default
        if isinstance(parameter.show_default, str)
        else _code(parameter.default)
    )
    return f"| {', '.join(map(_code, names))} | {default} | {_cell(parameter.help or '')} |"


def options() -> str:
    """Return the reference of config options as Markdown."""
    parts = ["# Config options", "`nmt config --options` prints the same list."]
    for section, rows in groupby(config_io.options(), key=lambda row: row[0].rpartition(".")[0]):
        parts.append(f"## {section or 'Top level'}")
        table = [f"| `{key}` | {_code(default)} | {_cell(text)} |" for key, default, text in rows]
        parts.append("\n".join(["| option | default | description |", "|---|---|---|", *table]))
    return "\n\n".join(parts) + "\n"


def modules() -> str:
    """Return every module with the first paragraph of its docstring as Markdown."""
    parts = [
        "# Modules",
        "The layers of the packages are described under [Architecture](../architecture.md).",
    ]
    files = sorted(
        (path.relative_to(PACKAGE.parent) for path in PACKAGE.rglob("*.py")),
        key=lambda path: path.parts[:-1],
    )
    for directory, paths in groupby(files, key=lambda path: path.parent):
        rows = [
            f"| [{path.name}](../../{path.as_posix()}) | {_cell(_summary(path))} |"
            for path in sorted(paths)
        ]
        parts.append(f"## {directory.as_posix()}")
        parts.append("\n".join(["| module | subject |", "|---|---|", *rows]))
    return "\n\n".join(parts) + "\n"


def _summary(path: Path) -> str:
    source = (PACKAGE.parent / path).read_text(encoding="utf-8")
    # A module starts with its docstring; parsing all modules takes a second.
    _, docstring, *_ = source.split('"""', 2)
    return inspect.cleandoc(docstring).partition("\n\n")[0]


def _code(value: object) -> str:
    """Format a value as code. Unset, empty and computed values are omitted."""
    return "" if value in (None, False, "", "''") or callable(value) else f"`{_cell(str(value))}`"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
