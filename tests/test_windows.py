"""Tests without modules and functions that Windows does not have (a simulation)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from commandline import sentences, training, write

from nmt import paths

WINDOWS = """
import os, sys
import multiprocessing.spawn, datasets, filelock, jinja2, numpy, safetensors.torch, sacrebleu, sentencepiece, torch
import torch.utils.data, tqdm, typer.main, typer.rich_utils, yaml  # import before the patch, which is for nmt only
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
from nmt.cli import main
main()
"""


def windows(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run `nmt` without Unix-only modules and functions and without a C compiler."""
    variables = {"NMT_DATA": "data", "NMT_RUNS": "runs", "OMP_NUM_THREADS": "1", "CC": "no-such-compiler"}
    command = [sys.executable, "-W", "ignore", "-c", WINDOWS, *arguments]
    env = os.environ | variables
    done = subprocess.run(
        command, cwd=directory, env=env, capture_output=True, text=True, timeout=300, encoding="utf-8"
    )
    assert done.returncode == 0, done.stderr
    return done


@pytest.mark.slow
def test_train_resume_and_translate(tmp_path: Path) -> None:
    write(tmp_path / "text", *sentences(400))
    first = windows(tmp_path, *training("runs/tiny", train__steps="10"))
    assert first.stdout == "runs/tiny/step-000010\n"
    arguments = ("--model", "runs/tiny", "--precision", "fp32", "the small dog sees the old tree.")
    translated = windows(tmp_path, "translate", *arguments)
    assert "using PyTorch" in translated.stderr
    assert translated.stdout.count("\n") == 1
    assert "10 updates" in windows(tmp_path, "info", "runs/tiny").stdout


@pytest.mark.slow
def test_first_commands(tmp_path: Path) -> None:
    assert windows(tmp_path, "translate", "--precision", "fp32", "im thirsty").stdout == "Ich habe Durst.\n"
    assert "not found" in windows(tmp_path, "doctor").stdout


HOLD = """
import sys, time
from pathlib import Path
from nmt.paths import locked
with locked(Path("lock"), lambda: sys.exit("busy")):
    print("held", flush=True)
    time.sleep(60)
"""


def test_killed_process_releases_its_lock(tmp_path: Path) -> None:
    class BusyError(Exception):
        pass

    def refuse() -> None:
        raise BusyError

    lock = tmp_path / "lock"
    with subprocess.Popen([sys.executable, "-c", HOLD], cwd=tmp_path, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(BusyError), paths.locked(lock, refuse):
            pass
        holder.send_signal(signal.SIGKILL)
        holder.wait(10)
    with paths.locked(lock, refuse):
        pass


def test_lock_is_awaited_if_callback_returns(tmp_path: Path) -> None:
    calls: list[float] = []
    command = [sys.executable, "-c", HOLD.replace("60", "0.5")]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with paths.locked(tmp_path / "lock", lambda: calls.append(time.monotonic())):
            assert holder.wait(10) == 0
    assert len(calls) == 1
