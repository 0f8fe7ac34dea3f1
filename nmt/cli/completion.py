"""Completion of option values in the shell, without importing PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from types import SimpleNamespace
from typing import Any

from nmt.core.paths import runs_dir

FORMATS = ("ctranslate2", "firefox", "onnx", "safetensors", "transformers")
"""Names of the formats of `nmt export`, whose modules import PyTorch."""
DEVICES = ("auto", "cpu", "cuda")


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


def _corpora() -> Iterable[str]:
    from nmt.data.sources import SOURCES

    return SOURCES


def _engines() -> Iterable[str]:
    from nmt.translation.translator import ENGINES

    return ENGINES


def _training_precisions() -> Iterable[str]:
    from nmt.core.runtime import PRECISIONS

    return ("auto", *PRECISIONS)


def _search_precisions() -> Iterable[str]:
    return (*_training_precisions(), "int8")


def _metrics() -> Iterable[str]:
    from nmt.evaluate.metrics import METRICS

    return METRICS


COMPLETIONS: dict[str, Callable[[], Iterable[str]]] = {
    "--model": _models,
    "--then": _models,
    "--init-from": _models,
    "--config": _configs,
    "--set": _keys,
    "--to": _languages,
    "--data": _corpora,
    "--test": _corpora,
    "--metric": _metrics,
    "--device": lambda: DEVICES,
    "--engine": _engines,
    "--precision": _search_precisions,
    "first": _models,
    "second": _models,
    "model": _models,
    "run": _models,
}
"""What completes the values of an option or argument, in every command that has it."""
SPECIAL: dict[tuple[str, str], Callable[[], Iterable[str]]] = {
    ("config", "name"): _configs,
    ("download", "name"): _corpora,
    ("encode", "model"): list,  # a file
    ("export", "--to"): lambda: FORMATS,
    ("train", "--precision"): _training_precisions,
}
"""What completes the values of an option or argument of one command."""


def prepare(command: Any) -> None:
    """Complete the options and arguments of a command."""
    for option in command.params:
        for flag in option.opts:
            if values := SPECIAL.get((command.name, flag), COMPLETIONS.get(flag)):
                option.shell_complete = partial(_complete, values)


def _complete(values: Callable[[], Iterable[str]], context: Any, incomplete: str) -> list[Any]:
    return [
        SimpleNamespace(value=value, help=None, type="plain")
        for value in values()
        if value.startswith(incomplete)
    ]
