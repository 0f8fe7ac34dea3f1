"""Results in terminals of several widths, and quantities."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import termios
from collections.abc import Callable

import pytest
from commandline import CommandLine

from nmt.core import layout
from nmt.core.console import format_bytes, format_count, format_duration

ROWS = [
    ["name", "score", "size of the model", "comment"],
    ["  first", "22.5 ± 1.3", "17", "one two three four five"],
    ["second", "9.0 ± 0.1", "301", ""],
]
SIGNATURE = "nrefs:1|bs:1000|seed:12345|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0"
COMMANDS = [
    ["info", "runs/tiny"],
    ["summary", "runs/tiny"],
    ["models"],
    ["data", "list"],
    ["evaluate", "--src", "few.en", "--ref", "few.de"],
    ["compare", "few.de", "few.en", "--src", "few.en", "--ref", "few.de", "--resamples", "100"],
    ["data", "check", "few.en", "few.de"],
]


@pytest.fixture
def set_width(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Emulate a terminal of some columns."""
    return lambda width: monkeypatch.setattr(layout, "terminal_width", lambda: width)


def test_a_table_wraps_then_loses_columns_then_becomes_a_list(
    set_width: Callable[[int], None],
) -> None:
    set_width(61)
    assert layout.format_table(ROWS, optional=(2,)) == [
        "name          score  size of the model  comment",
        "  first  22.5 ± 1.3                 17  one two three four",
        "                                        five",
        "second    9.0 ± 0.1                301",
    ]
    set_width(42)
    lines = layout.format_table(ROWS, optional=(2,))
    assert lines[0].split() == ["name", "score", "size", "of", "comment"]
    assert "22.5 ± 1.3" in "\n".join(lines)  # numbers stay whole
    set_width(28)
    lines = layout.format_table(ROWS, optional=(2,))
    assert lines[:3] == [
        "name          score  comment",
        "  first  22.5 ± 1.3  one two",
        "                     three",
    ]
    set_width(20)
    assert layout.format_table(ROWS, optional=(2,))[-3:] == [
        "second",
        "  score              9.0 ± 0.1",
        "  size of the model  301",
    ]


def test_lines_break_between_words_and_parts_of_signatures(
    set_width: Callable[[int], None],
) -> None:
    set_width(40)
    assert layout.wrap(f"BLEU 22.5 ± 1.3  {SIGNATURE}", indent="  ") == [
        "BLEU 22.5 ± 1.3  nrefs:1|bs:1000|",
        "  seed:12345|case:mixed|eff:no|tok:13a|",
        "  smooth:exp|version:2.6.0",
    ]
    path = "a/very/long/path/of/which/the/parts/belong-together.txt"
    assert layout.wrap(f"wrote {path}") == ["wrote", path]
    assert layout.wrap("of the model has 31.7 K parameters in all") == [
        "of the model has 31.7 K parameters in",
        "all",
    ]
    set_width(22)
    assert layout.format_fields({"a": "one", "label": ["one two three four", "five"]}) == [
        "a      one",
        "label  one two three",
        "       four",
        "       five",
    ]


@pytest.fixture
def results(trained: CommandLine) -> CommandLine:
    for suffix in ("en", "de"):
        lines = (trained.directory / f"text.{suffix}").read_text().splitlines(keepends=True)
        (trained.directory / f"few.{suffix}").write_text("".join(lines[:20]))
    return trained


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: " ".join(command[:2]))
def test_results_fit_into_a_narrow_terminal(
    command: list[str], results: CommandLine, set_width: Callable[[int], None]
) -> None:
    words = results(*command).out.split()
    for width in (80, 60):
        set_width(width)
        lines = results(*command).out.splitlines()
        assert lines
        assert [line for line in lines if len(line) > width and "://" not in line] == []
    if command[0] not in ("summary", "models", "data", "compare"):  # tables lose columns
        # Signatures are broken without a space.
        assert "".join(" ".join(lines).split()) == "".join(words)


def test_the_width_is_that_of_the_terminal(bare: CommandLine) -> None:
    nmt = CommandLine(bare.directory, {"COLUMNS": ""})
    reader, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("4H", 24, 78, 0, 0))
    with nmt.fork("models", stdout=terminal) as process:
        os.close(terminal)
        output = b""
        while b"opus-mt-zh-en" not in output:
            output += os.read(reader, 10_000)
    os.close(reader)
    assert 70 < max(map(len, output.decode().splitlines())) <= 78
    assert process.returncode == 0


def test_quantities_have_a_unit_in_which_they_are_not_zero() -> None:
    counts = [0, 950, 9_960, 31_744, 2_500_000, 16_540_000, 120_400_000, 4_000_000_000]
    assert list(map(format_count, counts)) == [
        "0",
        "950",
        "10 K",
        "31.7 K",
        "2.5 M",
        "16.5 M",
        "120 M",
        "4,000 M",
    ]
    sizes = [12, 999_600, 126_976, 1_500_000_000]
    assert list(map(format_bytes, sizes)) == ["12 B", "1 MB", "127 kB", "1.5 GB"]
    durations = [0.04, 45, 1_800, 11_100]
    assert list(map(format_duration, durations)) == [
        "0.04 s",
        "45 s",
        "30 min",
        "3 h 5 min",
    ]
