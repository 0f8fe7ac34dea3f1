#!/usr/bin/env python3
"""Run commands and render them with their output as an SVG image of a terminal.

    scripts/record_terminal.py -o docs/figures/terminal.svg
    scripts/record_terminal.py -o tour.svg 'nmt translate "im thirsty"' 'nmt data list'

Without commands, those of the figure in README.md run.
"""

from __future__ import annotations

import argparse
import io
import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

from command_errors import error_messages
from nmt.core.errors import NMTError

COMMANDS = (
    'nmt translate "im thirsty" "are we done"',
    'nmt translate --to en "ich hab durst"',
    'nmt translate --top-beams 3 --show-scores "Where is the station?"',
    'nmt translate --prefix "Könntest du" "Can you help me?"',
)
WEB_FONT = re.compile(r"\s*@font-face \{.*?\}", re.DOTALL)


def main() -> None:
    """Parse the arguments, run the commands and write the image."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "commands", nargs="*", default=COMMANDS, help="commands to run, each in quotes"
    )
    parser.add_argument("-o", "--output", type=Path, required=True, help="SVG file to write")
    parser.add_argument("--width", type=int, default=110, help="columns of the terminal")
    args = parser.parse_args()
    with error_messages(args.output):
        args.output.write_text(record(args.commands, args.width), encoding="utf-8")


def record(commands: list[str] | tuple[str, ...], width: int) -> str:
    """Return an SVG image of a terminal in which the commands have run.

    Raises:
        NMTError: a command failed.
    """
    console = Console(record=True, width=width, file=io.StringIO())
    # Without runs, the pretrained models translate.
    with tempfile.TemporaryDirectory() as directory:
        for command in commands:
            console.print(Text.assemble(("$ ", "bold green"), (command, "bold")))
            console.print(Text(_run(command, directory, width).rstrip()))
    svg = console.export_svg(title="nmt", theme=MONOKAI, unique_id="terminal")
    return WEB_FONT.sub("", svg)  # the image loads nothing from other servers


def _run(command: str, directory: str, width: int) -> str:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    environment = os.environ | {
        "PATH": path,
        "COLUMNS": str(width),
        "NO_COLOR": "1",
        "NMT_RUNS": directory,
    }
    done = subprocess.run(
        shlex.split(command),
        cwd=directory,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        check=False,
    )
    if done.returncode:
        raise NMTError(
            f"{command} failed with exit code {done.returncode}:\n{done.stdout.rstrip()}"
        )
    return done.stdout


if __name__ == "__main__":
    main()
