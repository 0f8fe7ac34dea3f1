"""Sentences typed at a prompt, with line editing and a history that outlives the session."""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
from collections.abc import Callable
from pathlib import Path

import typer

PROMPT = "> "
MAX_LINES = 1000
"""Lines of history kept."""


def ask(answer: Callable[[str], list[str]]) -> None:
    """Print the answer to each line typed, until the end of input (Ctrl-D); Ctrl-C drops the line."""
    _remember_lines()
    print("Type a sentence and press Enter; Ctrl-D ends.", file=sys.stderr)
    while True:
        try:
            line = input(PROMPT)
        except EOFError:
            typer.echo()
            return
        except KeyboardInterrupt:
            typer.echo()
            continue
        if line.strip():
            with contextlib.suppress(KeyboardInterrupt):  # drops the translation too
                for translation in answer(line):
                    typer.echo(translation)


def _remember_lines() -> None:
    try:
        import readline
    except ImportError:  # a Python without it still reads lines
        return
    history = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "nmt" / "history"
    readline.set_history_length(MAX_LINES)
    with contextlib.suppress(OSError):
        readline.read_history_file(history)

    def save() -> None:
        with contextlib.suppress(OSError):  # a home that cannot be written to must not spoil the end
            history.parent.mkdir(parents=True, exist_ok=True)
            readline.write_history_file(history)

    atexit.register(save)
