"""Run `nmt` commands in a temporary directory, and a small parallel corpus."""

from __future__ import annotations

import contextlib
import gc
import itertools
import json
import os
import random
import runpy
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, NoReturn, TypeVar
from unittest import mock

import numpy as np
import pytest
import torch
from tqdm import tqdm

from nmt import cli
from nmt.jobs import process_settings

T = TypeVar("T")
STREAMS = ("stdin", "stdout", "stderr")
TINY = {
    "tokenizer.vocab_size": "350",
    "model.dim": "32",
    "model.heads": "2",
    "model.ffn_dim": "64",
    "model.encoder_layers": "1",
    "model.decoder_layers": "1",
    "train.steps": "20",
    "train.valid_every": "10",
    "train.valid_pairs": "5",
    "train.batch_tokens": "512",
    # Also for the recurrent model, and for equality in two processes to 1e-6
    "train.optimizer": "adamw",
    # With a higher one, translations would be empty
    "train.schedule": "linear(peak=1e-3, warmup=100)",
    "train.source_noise": "",
    "train.log_every": "5",
}
NOUNS = {
    "dog": "Hund",
    "cat": "Kater",
    "tree": "Baum",
    "bird": "Vogel",
    "boat": "Kahn",
    "stone": "Stein",
}
ADJECTIVES = {
    "small": "kleine",
    "old": "alte",
    "green": "grüne",
    "heavy": "schwere",
    "quiet": "leise",
}
VERBS = {"sees": "sieht", "draws": "malt", "finds": "findet", "carries": "trägt"}


def sentences(count: int) -> tuple[list[str], list[str]]:
    """Return unique English sentences and their German translations."""
    things = list(itertools.product(ADJECTIVES, NOUNS))
    chosen = random.Random(1).sample(list(itertools.product(things, VERBS, things)), count)
    source = [f"the {a} {n} {v} the {b} {m}." for (a, n), v, (b, m) in chosen]
    target = [
        f"der {ADJECTIVES[a]} {NOUNS[n]} {VERBS[v]} den {ADJECTIVES[b]}n {NOUNS[m]}."
        for (a, n), v, (b, m) in chosen
    ]
    return source, target


def heed_interrupts() -> None:
    """Reset signals that are ignored if the tests run as a background job of a shell, or under
    nohup."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


SEVERAL = """
import json, sys
from nmt.cli import main
for arguments in json.loads(sys.argv[1]):
    sys.argv = ["nmt", *arguments]
    code = 0
    try:
        main()
    except SystemExit as end:
        code = end.code or 0
    print(end="\\f", flush=True)
    print(f"\\n{code}", end="\\f", file=sys.stderr, flush=True)
"""


REGISTERING = ("nmt.model.segment_attention",)
"""Modules that register operators of PyTorch, which is possible once per process."""


@dataclass(frozen=True)
class Done:
    """Exit code and output of a command."""

    code: int
    out: str
    err: str

    @property
    def errors(self) -> list[str]:
        """The error messages without their prefix."""
        label = "nmt: error: "
        return [line.removeprefix(label) for line in self.err.split("\n") if line.startswith(label)]

    def without_traceback(self) -> Done:
        """Check that neither the command nor its child processes printed a traceback, and return
        self."""
        assert "Traceback" not in self.err, self.err
        return self

    def check(self) -> Done:
        """Check that the command succeeded, and return self."""
        assert self.code == 0, self.err
        return self

    def assert_fails(self, code: int, *texts: str) -> None:
        """Check that the command failed with this exit code, one error line with the texts, and no
        output."""
        assert self.code == code, self.err
        assert len(self.errors) == 1, self.err
        assert self.out == ""
        for text in texts:
            assert text in self.err


@dataclass(frozen=True)
class CommandLine:
    """Runs `nmt` commands in `directory`.

    A call runs a command in the test process, which avoids importing PyTorch again. So does `fork`,
    which starts a process, for tests of signals, locks and limits. `process` and `start` run
    `python -m nmt`, for tests of imports, of the end of the interpreter, or of equal results in two
    processes; importing PyTorch takes two seconds of CPU time.
    """

    directory: Path
    environment: dict[str, str] = field(default_factory=dict)

    def __call__(self, *arguments: str | Path, stdin: bytes = b"") -> Done:
        """Run a command in this process. Unhandled exceptions fail the test."""
        with contextlib.ExitStack() as stack:
            streams = [stack.enter_context(tempfile.TemporaryFile()) for _ in range(3)]
            streams[0].write(stdin)
            streams[0].seek(0)
            with (
                _isolated(self._variables()),
                contextlib.chdir(self.directory),
                _redirected(streams),
            ):
                sys.argv = ["nmt", *map(str, arguments)]
                with pytest.raises(SystemExit) as end:
                    cli.main()
            out, err = (
                os.pread(file.fileno(), os.fstat(file.fileno()).st_size, 0) for file in streams[1:]
            )
        assert isinstance(end.value.code, int | None)
        return Done(end.value.code or 0, out.decode(), err.decode()).without_traceback()

    def run(self, *arguments: str | Path, stdin: bytes = b"") -> Done:
        """Run a command in this process, and check that it succeeds."""
        return self(*arguments, stdin=stdin).check()

    def start(
        self, *arguments: str | Path, program: Sequence[str] = ("-m", "nmt"), **options: object
    ) -> subprocess.Popen[bytes]:
        """Start a process. By default, stdin, stdout and stderr are pipes."""
        defaults = dict.fromkeys(STREAMS, subprocess.PIPE) | {"preexec_fn": heed_interrupts}
        command = [sys.executable, *program, *map(str, arguments)]
        return subprocess.Popen(
            command, cwd=self.directory, env=self._variables(), **defaults | options
        )

    def fork(
        self,
        *arguments: str | Path,
        preexec_fn: Callable[[], object] = heed_interrupts,
        main: Callable[[], object] = cli.main,
        **options: object,
    ) -> subprocess.Popen[bytes]:
        """Start a process that runs a command, or `main`, in a fork of this one.

        Not for large data: the threads that libraries keep do not exist in it.
        """
        if torch.cuda.is_available() and main is cli.main:  # cannot be used in a fork
            return self.start(*arguments, preexec_fn=preexec_fn, **options)

        def run() -> NoReturn:
            preexec_fn()
            sys.argv = ["nmt", *map(str, arguments)]
            run_and_exit(main, self._variables())

        defaults = dict.fromkeys(STREAMS, subprocess.PIPE)
        return subprocess.Popen(
            [sys.executable],  # not executed: `run` does not return
            cwd=self.directory,
            preexec_fn=run,
            restore_signals=False,
            **defaults | options,
        )

    def script(self, path: Path, *arguments: str | Path) -> Done:
        """Run a Python script in a fork of this process."""
        if torch.cuda.is_available():  # cannot be used in a fork
            return self.process(*arguments, program=[str(path)])

        def main() -> None:
            sys.argv[0] = str(path)
            sys.path.insert(0, str(path.parent))
            runpy.run_path(str(path), run_name="__main__")

        return finish(self.fork(*arguments, main=main))

    def process(self, *arguments: str | Path, stdin: bytes = b"", **options: object) -> Done:
        """Run a process, and check that it does not print a traceback."""
        return finish(self.start(*arguments, **options), stdin)

    def in_one_process(self, *commands: Sequence[str | Path], prelude: str = "") -> list[Done]:
        """Run commands in one new process after `prelude`: importing PyTorch takes longer than most
        of them."""
        return several_commands(
            sys.executable, *commands, prelude=prelude, cwd=self.directory, env=self._variables()
        )

    def in_one_fork(
        self, *commands: Sequence[str | Path], without: Sequence[str] = (), prelude: str = ""
    ) -> list[Done]:
        """Run commands in a fork of this process, which imports `nmt` again after `prelude`.

        The modules in `without` cannot be imported there; all others are imported already.
        """

        def main() -> None:
            forget_modules(without)
            sys.argv = ["-c", _to_json(commands)]
            exec(prelude + SEVERAL, {"__name__": "__main__"})

        if torch.cuda.is_available():  # cannot be used in a fork
            block = f"import sys; sys.modules.update(dict.fromkeys({tuple(without)}))\n"
            return self.in_one_process(*commands, prelude=block + prelude)
        done = finish(self.fork(main=main))
        assert done.code == 0, done.err
        return _split_outputs(len(commands), done.out, done.err)

    def _variables(self) -> dict[str, str]:
        known = {"NMT_DATA": "data", "NMT_RUNS": "runs", "OMP_NUM_THREADS": "1", "COLUMNS": "200"}
        return os.environ | known | self.environment

    def train(
        self, run: str, corpus: str = "files(train='text')", *arguments: str, **changes: str
    ) -> Done:
        """Train a tiny model. `changes` are config options with `__` in place of a dot."""
        return self.run(*training(run, corpus, *arguments, **changes))


def forget_modules(without: Sequence[str]) -> None:
    """Let the next imports execute the modules of `nmt` again, and those of `without` fail."""
    removed = tuple(f"{name}." for name in ("nmt", *without))
    for name in list(sys.modules):
        if f"{name}.".startswith(removed) and name not in REGISTERING:
            del sys.modules[name]
    sys.modules.update(dict.fromkeys(without))


def several_commands(
    interpreter: str | Path, *commands: Sequence[str | Path], prelude: str = "", **options: Any
) -> list[Done]:
    """Run commands in one new process of an interpreter after `prelude`. `options` are those of
    `subprocess.run`."""
    done = subprocess.run(
        [interpreter, "-c", prelude + SEVERAL, _to_json(commands)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        timeout=300,
        check=False,
        **options,
    )
    assert done.returncode == 0, done.stderr
    return _split_outputs(len(commands), done.stdout, done.stderr)


def _to_json(commands: Sequence[Sequence[str | Path]]) -> str:
    return json.dumps([[*map(str, arguments)] for arguments in commands])


def _split_outputs(num_commands: int, stdout: str, stderr: str) -> list[Done]:
    """Split the output of `SEVERAL`."""
    *outs, rest_out = stdout.split("\f")
    *logs, rest_err = stderr.split("\f")
    assert len(outs) == len(logs) == num_commands, stderr
    assert (rest_out, rest_err) == ("", ""), stderr
    parts = (log.rpartition("\n") for log in logs)
    return [
        Done(int(code), out, err).without_traceback()
        for out, (err, _, code) in zip(outs, parts, strict=True)
    ]


def training(
    run: str, corpus: str = "files(train='text')", *arguments: str, **changes: str
) -> list[str]:
    """Return the arguments to train a tiny model."""
    options = (
        TINY
        | {key.replace("__", "."): value for key, value in changes.items()}
        | {"data.train": corpus}
    )
    if "--batch-tokens" in arguments:
        del options["train.batch_tokens"]
    # The other options have no effect.
    if "tokenizer.model" in options or "--init-from" in arguments:
        options = {
            key: options[key]
            for key in options
            if key == "tokenizer.model" or "tokenizer." not in key
        }
    return [
        "train",
        "--run",
        run,
        *arguments,
        *(w for k, v in options.items() for w in ("--set", f"{k}={v}")),
    ]


def write(prefix: Path, source: list[str] | bytes, target: list[str] | bytes) -> None:
    """Write PREFIX.en and PREFIX.de."""
    for code, text in (("en", source), ("de", target)):
        content = (
            text if isinstance(text, bytes) else "".join(f"{line}\n" for line in text).encode()
        )
        prefix.with_name(f"{prefix.name}.{code}").write_bytes(content)


def finish(process: subprocess.Popen[bytes], stdin: bytes = b"") -> Done:
    """Wait for the end of a process, and check that it does not print a traceback."""
    try:
        out, err = process.communicate(stdin or None, timeout=300)
    finally:
        process.kill()
    return Done(
        process.returncode, (out or b"").decode(), (err or b"").decode()
    ).without_traceback()


def wait_until(process: subprocess.Popen[bytes], condition: Callable[[], T]) -> T:
    """Wait until the result of `condition` is true, and return it. Fails if the process ends, or
    after two minutes."""
    end = time.monotonic() + 120
    while not (result := condition()):
        assert process.poll() is None, process.stderr and process.stderr.read()
        assert time.monotonic() < end
        time.sleep(0.005)
    return result


def has_content(path: Path) -> bool:
    return path.exists() and path.stat().st_size > 0


@contextlib.contextmanager
def _isolated(variables: Mapping[str, str]) -> Iterator[None]:
    """Emulate environment, seeds and warnings of a new process, and check that the command changes
    nothing else."""
    states = random.getstate(), np.random.get_state()
    thresholds = gc.get_threshold()
    settings = _process_settings()
    with (
        mock.patch.dict(os.environ, variables, clear=True),
        mock.patch.object(sys, "argv", sys.argv),
        # Would affect the following tests.
        mock.patch.object(process_settings, "tune_malloc_for_training"),
        mock.patch.object(gc, "freeze"),
        torch.random.fork_rng(devices=[]),
        warnings.catch_warnings(),
    ):
        random.seed()
        np.random.seed()
        torch.manual_seed(67280421310721)  # default seed of PyTorch
        warnings.showwarning = _print_warning
        warnings.simplefilter("ignore", DeprecationWarning)  # default outside of pytest
        warnings.simplefilter("ignore", PendingDeprecationWarning)
        yield
    random.setstate(states[0])
    np.random.set_state(states[1])
    gc.set_threshold(*thresholds)
    assert _process_settings() == settings


def _process_settings() -> tuple[object, ...]:
    """Return process settings that a command must not change."""
    torch_settings = (
        torch.get_num_threads(),
        torch.are_deterministic_algorithms_enabled(),
        torch.get_default_dtype(),
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
    )
    signals = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE)
    return os.getcwd(), *map(signal.getsignal, signals), *torch_settings


def _print_warning(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, *rest: object
) -> None:
    """Print a warning to stderr instead of recording it in pytest."""
    sys.stderr.write(warnings.formatwarning(message, category, filename, lineno))


def run_and_exit(main: Callable[[], object], variables: Mapping[str, str]) -> NoReturn:
    """Run a program in a fork of the test process."""
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))  # subprocess.Popen waits for the end of its pipe
    if signal.getsignal(signal.SIGINT) == signal.SIG_DFL:  # as the interpreter does when it starts
        signal.signal(signal.SIGINT, signal.default_int_handler)
    _open_streams()
    torch.set_num_threads(1)  # the other threads of OpenMP do not exist in a fork
    tqdm.set_lock(threading.RLock())  # that of the parent is shared by all of its forks
    code: object = 0
    try:
        with _isolated(variables):
            main()
    except SystemExit as end:
        code = end.code or 0
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    if not isinstance(code, int):
        print(code, file=sys.stderr)
        code = 1
    os._exit(code)


def _open_streams() -> None:
    """Replace the standard streams of Python by new ones for the same descriptors."""
    for number, name in enumerate(STREAMS):
        mode, buffering = "w" if number else "r", 1 if name == "stderr" else -1
        setattr(sys, name, open(number, mode, buffering, "utf-8", newline="\n", closefd=False))  # noqa: SIM115


@contextlib.contextmanager
def _redirected(files: list[BinaryIO]) -> Iterator[None]:
    """Redirect the standard streams to files, including those of child processes and C
    libraries."""
    before = [(getattr(sys, name), os.dup(number)) for number, name in enumerate(STREAMS)]
    try:
        for number, file in enumerate(files):
            os.dup2(file.fileno(), number)
        _open_streams()
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        for number, (name, (stream, saved)) in enumerate(zip(STREAMS, before, strict=True)):
            setattr(sys, name, stream)
            os.dup2(saved, number)
            os.close(saved)
