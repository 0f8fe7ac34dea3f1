"""Completion of option values in the shell, without importing PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from types import SimpleNamespace
from typing import Any

from nmt.core.paths import runs_dir

FORMATS = ("ctranslate2", "onnx", "safetensors", "transformers")
"""Names of the formats of `nmt export`, whose modules import PyTorch."""


def _models() -> Iterable[str]:
    from nmt.models import catalog

    runs = [str(run) for run in sorted(runs_dir().glob("[!.]*")) if (run / "config.yaml").exists()]
    return [*runs, *catalog.names()]


def _configs() -> Iterable[str]:
    from nmt.core.config import config_io

    return config_io.builtin_configs()


def _keys() -> Iterable[str]:
    from nmt.core.config import config_io

    return [f"{name}=" for name, _, _ in config_io.options()]


def _languages() -> Iterable[str]:
    from nmt.runs import pretrained

    return [target for _, target in pretrained.DIRECTIONS.values()]


COMPLETIONS: dict[str, Callable[[], Iterable[str]]] = {
    "--model": _models,
    "--init-from": _models,
    "--config": _configs,
    "--set": _keys,
    "--to": _languages,
}
"""What completes the values of an option, in every command that has it."""


def prepare(command: Any) -> None:
    """Complete the options of a command."""
    for option in command.params:
        for flag in option.opts:
            values = COMPLETIONS.get(flag)
            if command.name == "export" and flag == "--to":
                values = partial(iter, FORMATS)
            if values:
                option.shell_complete = partial(_complete, values)


def _complete(values: Callable[[], Iterable[str]], context: Any, incomplete: str) -> list[Any]:
    return [
        SimpleNamespace(value=value, help=None, type="plain")
        for value in values()
        if value.startswith(incomplete)
    ]
