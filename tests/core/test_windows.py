"""Tests without modules and functions that Windows does not have (a simulation)."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from commandline import CommandLine, sentences, training, write

from nmt.core import paths

WINDOWS = """
import os, sys, warnings
warnings.simplefilter("ignore")
# Import before the patch, which is for nmt only
import multiprocessing.spawn, portalocker, pyarrow, zoneinfo, jinja2, safetensors.torch, sacrebleu
import torch.utils.data, tqdm, typer.rich_utils
for name in ("fcntl", "pwd", "grp", "readline", "resource", "termios"):
    sys.modules[name] = None
for name in ("fork", "getpgrp", "getuid", "sched_getaffinity", "sysconf", "tcgetpgrp", "uname"):
    delattr(os, name)
sys.platform = "win32"
opened = os.open
def open_file(path, flags, *rest, **options):
    if os.path.isdir(path):
        raise PermissionError(13, "a directory cannot be opened", path)
    return opened(path, flags, *rest, **options)
os.open = open_file
"""
"""Removes the modules and functions that Windows does not have."""


@pytest.mark.slow
def test_commands_run_without_posix_modules(tmp_path: Path) -> None:
    write(tmp_path / "text", *sentences(400))
    text = "the small dog sees the old tree."
    done = CommandLine(tmp_path, {"CC": "no-such-compiler"}).in_one_fork(
        # With a pretrained model, because there are no runs.
        [
            "translate",
            "--precision",
            "fp32",
            "im thirsty",
        ],
        ["doctor"],
        training("runs/tiny", train__steps="2", train__valid_every="2"),
        ["translate", "--model", "runs/tiny", "--precision", "fp32", text],
        ["info", "runs/tiny"],
        prelude=WINDOWS,
    )
    assert [each.code for each in done] == [0] * 5, done
    pretrained, doctor, trained, translated, info = (each.out for each in done)
    assert (pretrained, trained) == ("Ich habe Durst.\n", "runs/tiny/step-000002\n")
    assert "using PyTorch" in done[0].err
    assert "not found" in doctor
    assert translated.count("\n") == 1
    assert "2 updates" in info


HOLD = """
import sys
from pathlib import Path
from nmt.core.paths import locked
with locked(Path("lock"), lambda: sys.exit("busy")):
    print("held", flush=True)
    sys.stdin.read()
"""


@contextlib.contextmanager
def holding(directory: Path) -> Iterator[subprocess.Popen[str]]:
    """Start a process that holds a lock until its stdin is closed."""
    command, pipe = [sys.executable, "-c", HOLD], subprocess.PIPE
    with subprocess.Popen(command, cwd=directory, stdin=pipe, stdout=pipe, text=True) as holder:
        assert holder.stdout.readline() == "held\n"
        yield holder


def test_killed_process_releases_its_lock(tmp_path: Path) -> None:
    class BusyError(Exception):
        pass

    def refuse() -> None:
        raise BusyError

    lock = tmp_path / "lock"
    with holding(tmp_path) as holder:
        with pytest.raises(BusyError), paths.locked(lock, refuse):
            pass
        holder.send_signal(signal.SIGKILL)
        holder.wait(10)
    with paths.locked(lock, refuse):
        pass


def test_lock_is_awaited_if_callback_returns(tmp_path: Path) -> None:
    calls = []
    with holding(tmp_path) as holder:

        def release() -> None:
            calls.append("waiting")
            holder.communicate()  # closes its stdin

        with paths.locked(tmp_path / "lock", release):
            assert holder.wait(10) == 0
    assert calls == ["waiting"]
