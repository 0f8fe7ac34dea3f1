"""An interactive prompt with line editing and a persistent history."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Callable
from pathlib import Path

import typer

from nmt.jobs.argument_lines import argument_lines

PROMPT = "> "
MAX_HISTORY_LINES = 1000


def run_prompt(translate_line: Callable[[str], list[str]]) -> None:
    """Print the translations of each line until the end of input (Ctrl-D). Ctrl-C cancels the
    current line."""
    save_history = load_history()
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
        with contextlib.suppress(KeyboardInterrupt):  # cancels the translation
            save_history()  # not at the end, which may be that of the terminal
            for sentence in argument_lines([line], "replace"):  # a pasted text has several lines
                if sentence.strip():
                    typer.echo("\n".join(translate_line(sentence)))


def load_history() -> Callable[[], None]:
    """Load the lines of earlier sessions. Return a function that saves them with those of this
    one."""
    try:
        import readline
    except ImportError:  # optional in Python
        return lambda: None
    try:
        state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
        history = Path(state) / "nmt" / "history"
    except RuntimeError:  # there is no home directory
        return lambda: None
    readline.set_history_length(MAX_HISTORY_LINES)
    with contextlib.suppress(OSError):
        readline.read_history_file(history)

    def save() -> None:
        with contextlib.suppress(OSError):  # the home directory may be read-only
            history.parent.mkdir(parents=True, exist_ok=True)
            readline.write_history_file(history)

    return save
