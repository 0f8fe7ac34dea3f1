"""A forked command is to a test what a plainly started one is, and its server leaves nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import forkserver
import pytest
from commandline import CommandLine

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere every command starts plainly")


@pytest.mark.parametrize(
    "command", ["--version", "", "translate --beam-size 2 a", "translate", "config nope", "data check text.en text.de"]
)
def test_it_says_what_a_plain_start_says(command: str, trained: CommandLine) -> None:
    forked, plain = (each(*command.split(), stdin=b"a\r\nb\n") for each in (trained, replace(trained, plain=True)))
    assert forked == plain


@pytest.mark.parametrize("sign", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_it_is_a_child_with_a_session_and_signals_of_its_own(sign: signal.Signals, trained: CommandLine) -> None:
    process = trained.start("translate", start_new_session=True)  # which waits for its input
    assert isinstance(process, forkserver.Forked)
    status = Path(f"/proc/{process.pid}/status").read_text()
    assert f"\nPPid:\t{os.getpid()}\n" in status
    assert process.stderr is not None
    assert process.stderr.readline().startswith(b"nmt: using")
    assert os.getsid(process.pid) == process.pid
    assert process.poll() is None
    process.send_signal(sign)
    process.communicate(timeout=60)
    assert process.returncode == (130 if sign == signal.SIGINT else -sign)
    with pytest.raises(ChildProcessError):
        os.waitpid(process.pid, 0)  # it was waited for


def test_what_others_may_have_read_when_they_were_imported_starts_plainly(trained: CommandLine) -> None:
    env = dict(os.environ) | {"OMP_NUM_THREADS": "1"}
    assert forkserver.can_start(env | {"NMT_RUNS": "x"}, {"stdout": None})
    assert not forkserver.can_start(env | {"RANK": "1"}, {})
    assert not forkserver.can_start(env | {"OMP_NUM_THREADS": "2"}, {})
    assert not forkserver.can_start(env, {"preexec_fn": print})


def test_servers_end_with_who_started_them() -> None:
    code = "import forkserver; forkserver._servers(); print('started', flush=True); input()"
    process = subprocess.Popen(
        [sys.executable, "-c", code], cwd=Path(__file__).parent, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"started\n"
    servers = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    assert len(servers) == 2
    process.kill()
    process.communicate()
    end = time.monotonic() + 60
    while any(b"forkserver" in command(server) for server in servers):
        assert time.monotonic() < end
        time.sleep(0.1)


def command(process: str) -> bytes:
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""
