"""An interactive prompt with line editing and a persistent history."""

from __future__ import annotations

import atexit
import contextlib
import io
import os
import sys
from collections.abc import Callable
from pathlib import Path

import typer

PROMPT = "> "
MAX_HISTORY_LINES = 1000


def run_prompt(translate_line: Callable[[str], list[str]]) -> None:
    """Print the translations of each line until the end of input (Ctrl-D). Ctrl-C cancels the
    current line."""
    load_history()
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(errors="replace")  # a typo in the encoding must not end the prompt
    print("Type a sentence and press Enter. Press Ctrl-D to exit.", file=sys.stderr)
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
            with contextlib.suppress(KeyboardInterrupt):  # cancels the translation
                for translation in translate_line(line):
                    typer.echo(translation)


def load_history() -> None:
    """Load the lines of earlier sessions, and save them with those of this one at its end."""
    try:
        import readline
    except ImportError:  # optional in Python
        return
    try:
        state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
        history = Path(state) / "nmt" / "history"
    except RuntimeError:  # there is no home directory
        return
    readline.set_history_length(MAX_HISTORY_LINES)
    with contextlib.suppress(OSError):
        readline.read_history_file(history)

    def save() -> None:
        with contextlib.suppress(OSError):  # the home directory may be read-only
            history.parent.mkdir(parents=True, exist_ok=True)
            readline.write_history_file(history)

    atexit.register(save)
