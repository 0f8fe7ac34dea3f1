"""A process that has imported PyTorch already, in whose forks scripts run their commands: importing
it takes two seconds of CPU time, and a script runs many commands."""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import NoReturn
from unittest import mock

from commandline import run_and_exit

from nmt import cli

CLIENT = """#!{python} -IS
import json, os, socket, sys
server = socket.socket(socket.AF_UNIX)
server.connect({address!r})
socket.send_fds(server, [b" "], [0, 1, 2])
server.sendall(json.dumps([sys.argv, os.getcwd(), dict(os.environ)]).encode())
server.shutdown(socket.SHUT_WR)
sys.exit(int(server.recv(9)))
"""
"""A program that asks the server to run it."""
MAX_PAIRS = 200
"""Size of the splits of the phrasebook: preparing all of its pairs would take seconds."""
PRELOADED = (
    "jinja2",
    "matplotlib.figure",
    "nmt.evaluate.evaluation",
    "nmt.jobs.synthesis",
    "nmt.training.session",
    "portalocker",
    "safetensors.torch",
)


@contextlib.contextmanager
def fork_server(directory: Path) -> Iterator[Path]:
    """Yield a directory with the programs `nmt`, `python`, `python3` and `torchrun`."""
    address = str(directory / "socket")
    for name in ("nmt", "python", "python3", "torchrun"):
        client = directory / name
        client.write_text(CLIENT.format(python=sys.executable, address=address))
        client.chmod(0o755)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen()
        descriptor = listener.fileno()
        environment = os.environ | {"PYTHONPATH": str(Path(__file__).parent)}
        # Not a fork of the test process, whose libraries may have started threads.
        server = subprocess.Popen(
            [sys.executable, __file__, str(descriptor)], pass_fds=[descriptor], env=environment
        )
        listener.close()  # a client must not wait if the server has ended
        try:
            yield directory
        finally:
            server.kill()
            server.wait()


def _serve(listener: socket.socket) -> NoReturn:
    """Answer each connection in a fork, which waits for the end of the program in another one."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the answering processes
    while True:
        connection, _ = listener.accept()
        with connection:
            if not os.fork():
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                _answer(connection)


def _answer(connection: socket.socket) -> NoReturn:
    _, streams, *_ = socket.recv_fds(connection, 1, 3)
    request = b"".join(iter(lambda: connection.recv(65536), b""))
    arguments, directory, variables = json.loads(request)
    program = os.fork()
    if not program:
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
        os.chdir(directory)
        run_and_exit(lambda: _run(*arguments), variables)
    status = os.waitstatus_to_exitcode(os.waitpid(program, 0)[1])
    connection.sendall(str(status).encode())
    os._exit(0)


def _run(client: str, *arguments: str) -> None:
    """Run what the arguments of `nmt` or of Python name."""
    name = Path(client).name
    if name == "torchrun":
        name, arguments = "python", ("-m", "torch.distributed.run", *arguments)
    if arguments[:1] == ("-u",):  # torchrun starts the ranks with it
        arguments = arguments[1:]
    sys.executable = str(Path(client).with_name("python"))
    # A worker process of the program would import this module again.
    sys.modules["__main__"] = ModuleType("__main__")
    if name == "nmt" or arguments[:2] == ("-m", "nmt"):
        sys.argv = ["nmt", *arguments[2 * (name != "nmt") :]]
        cli.main()
    elif arguments[0] == "-m":
        sys.argv = [*arguments[1:]]
        numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        handlers = {number: signal.getsignal(number) for number in numbers}
        try:
            runpy.run_module(arguments[1], run_name="__main__")
        finally:
            for number, handler in handlers.items():  # torchrun has set its own
                signal.signal(number, handler)
    elif arguments[0] == "-c":
        sys.argv = ["-c", *arguments[2:]]
        exec(arguments[1], {"__name__": "__main__"})
    elif arguments[0] == "-":
        sys.argv = [*arguments]
        exec(sys.stdin.read(), {"__name__": "__main__"})
    else:
        sys.argv = [*arguments]
        sys.path.insert(0, str(Path(arguments[0]).parent.resolve()))
        runpy.run_path(arguments[0], run_name="__main__")


def _preload() -> None:
    """Import what commands import when they need it."""
    for module in PRELOADED:
        importlib.import_module(module)
    with (
        mock.patch.object(sys, "argv", ["nmt", "config", "quickstart"]),
        open(os.devnull, "w", encoding="utf-8") as null,
        contextlib.redirect_stdout(null),
        contextlib.suppress(SystemExit),
    ):
        cli.main()
    from nmt.data.sources import phrasebook
    from nmt.training import fine_tuning

    fine_tuning.RESAMPLES = 20  # as in the test process
    for pairs in phrasebook._splits().values():
        del pairs[MAX_PAIRS:]  # of the corpus of each fork, which reads the file only once
    # A garbage collection would copy the pages of all objects in each fork.
    gc.freeze()


if __name__ == "__main__":
    _preload()
    _serve(socket.socket(fileno=int(sys.argv[1])))
