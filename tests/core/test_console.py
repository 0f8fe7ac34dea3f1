"""Progress bars and messages in a terminal."""

from __future__ import annotations

import contextlib
import itertools
import os
import pty
import re
import subprocess
import sys

import pytest

from nmt.core import console
from nmt.core.progress_bar import MIN_CELLS, ProgressBar

FIGURES = "loss 4.210, 3,120 tok/s, lr 3.0e-03, BLEU 12.3"


@pytest.mark.parametrize("columns", [24, 30, 40, 60, 80, 100, 140])
def test_a_bar_has_20_cells_and_the_most_important_figures(columns: int) -> None:
    line = ProgressBar.format_meter(
        120, 470, 60.0, columns, prefix="training", unit=" updates", postfix=FIGURES
    )
    assert len(line) == columns
    assert len(line.split("|")[1]) >= MIN_CELLS or columns < 30
    figures = ["26%", "02:55", "loss 4.210", "updates/s", "01:00", "tok/s", "lr 3.0", "BLEU 12.3"]
    # A figure is shown only together with all that are more important.
    is_shown = [figure in line for figure in figures]
    assert is_shown == sorted(is_shown, reverse=True)
    assert sum(is_shown) >= {24: 1, 30: 1, 40: 2, 60: 2, 80: 3, 100: 5, 140: 8}[columns]


def test_slow_work_counts_seconds_for_each_unit() -> None:
    for total in (470, None):
        line = ProgressBar.format_meter(3, total, 6.0, 80, prefix="training", unit=" updates")
        assert "2.00s/update" in line
        assert "s/ update" not in line


MESSAGES = """
from nmt.core.console import log
log("error: a\\x1b[2J")
log("warning: b")
log("saved: c")
"""


def in_terminal(**environment: str) -> str:
    """Return what messages write into a terminal."""
    reader, terminal = pty.openpty()
    inherited = {name: value for name, value in os.environ.items() if not name.endswith("_COLOR")}
    subprocess.run(
        [sys.executable, "-c", MESSAGES],
        stderr=terminal,
        env=inherited | {"TERM": "xterm"} | environment,
        check=True,
    )
    os.close(terminal)
    output = b""
    with open(reader, "rb", buffering=0) as stream, contextlib.suppress(OSError):  # closed
        while part := stream.read(10_000):
            output += part
    return output.decode().replace("\r\n", "\n")


def test_errors_and_warnings_have_colors_in_a_terminal_only() -> None:
    plain = "nmt: error: a\\x1b[2J\nnmt: warning: b\nnmt: saved: c\n"
    colored = in_terminal()
    assert colored.count("\x1b[") == 4
    assert "\x1b[1;31merror:" in colored
    assert "\x1b[1;33mwarning:" in colored
    assert re.sub(r"\x1b\[[0-9;]*m", "", colored) == plain
    assert in_terminal(NO_COLOR="1") == plain
    assert in_terminal(TERM="dumb") == plain
    for environment, expected in (({}, plain), ({"FORCE_COLOR": "1"}, colored)):
        inherited = {k: v for k, v in os.environ.items() if not k.endswith("_COLOR")}
        done = subprocess.run(
            [sys.executable, "-c", MESSAGES],
            capture_output=True,
            text=True,
            env=inherited | environment,
            check=True,
        )
        assert done.stderr == expected


def test_a_log_file_has_lines_instead_of_a_bar(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Minutes pass between any two steps, so that each of them prints a line.
    monkeypatch.setattr("tqdm.std.time", itertools.count(0, 100).__next__)
    with console.progress(3, "reading", " lines") as bar:
        for _ in range(3):
            bar.update()
            console.log("read a line")
    error = capsys.readouterr().err
    assert "\r" not in error
    lines = error.splitlines()
    assert lines[1::2] == ["nmt: read a line"] * 3
    assert [line.rpartition("| ")[2][:3] for line in lines[::2]] == ["1/3", "2/3", "3/3"]
