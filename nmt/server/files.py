"""Documents: the process that reads and writes them, and translated files until they are
downloaded."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import secrets
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import PurePath
from time import monotonic
from typing import Any

from anyio.to_thread import run_sync

from nmt.core import plugins
from nmt.core.errors import DataError
from nmt.server.worker import Order, Request, Sample, Task, TranslatedDocument, work
from nmt.translation.guard import Guard

LIFETIME = 30 * 60
"""Time for which a translated file can be downloaded, in seconds."""
MAX_UNPACKED_BYTES = 200 * 2**20
"""Maximum size of an Office file without compression."""
MAX_STORED_BYTES = 200_000_000
"""Maximum size of all translated files. If it is exceeded, the oldest ones are deleted."""
WALL_TIME = 3
"""Maximum time for which the server waits for a process, relative to the processor time of
parsing."""
PRELOADED = ["nmt.cli", "nmt.server.preload"]
"""Modules that all processes of documents share. Each of them imports the main module, which
imports `nmt.cli`."""


@cache
def start_processes() -> Any:
    """Start the process that those of documents are forked from, and return the context that
    creates them.

    Where processes cannot be forked, as on Windows, each of them imports the modules again.
    """
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    from multiprocessing import forkserver

    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    forkserver.ensure_running()
    return context


class DocumentProcess:
    """A process that reads documents. Its methods wait for it, so they run in threads."""

    def __init__(self, contents: Sequence[bytes], task: Task) -> None:
        self.samples: list[Sample] = []
        self._contents = contents
        self._seconds_left: float = WALL_TIME * task.max_seconds
        self._is_ended = False
        self._connection, self._other_end = multiprocessing.Pipe()
        # The process is forked from one that started before the models named their plug-ins.
        modules = os.environ.get(plugins.VARIABLE, "")
        self._process = start_processes().Process(
            target=work, args=(self._other_end, task, modules), daemon=True
        )

    def read(self) -> None:
        """Start the process, and read samples of the documents.

        Raises:
            NMTError: see the parser; or a limit is exceeded.
        """
        self._process.start()
        self._other_end.close()  # otherwise, the end of the process would not close the connection
        if self._is_ended:  # meanwhile
            self.end()
        self._send(list(self._contents))
        self._contents = ()
        self.samples = self.receive()

    def translate(
        self, indices: Sequence[int], guard: Guard, search: str
    ) -> list[TranslatedDocument]:
        """Translate some of the documents.

        Raises:
            NMTError: a limit is exceeded, or the request was cancelled.
        """
        self._send(Order(indices, guard.config, guard.tokenizer.language_token))
        while True:
            answer = self.receive()
            if not isinstance(answer, Request):
                translated: list[TranslatedDocument] = answer
                return translated
            n_bests = guard.stream([answer.lines], search, details=answer.details)
            self._send([n_best[:1] for n_best in n_bests])

    def end(self) -> None:
        """End the process. A thread that waits for it gets an error and closes the connection."""
        self._is_ended = True
        if self._process.is_alive():
            self._process.kill()

    def _send(self, message: object) -> None:
        try:
            self._connection.send(message)
        except OSError:
            raise self._reason() from None

    def receive(self) -> Any:
        """Wait for the next message of the process, and raise it if it is an exception."""
        start = monotonic()
        try:
            if not self._connection.poll(self._seconds_left):
                raise _too_slow()
            message = self._connection.recv()
        except (EOFError, OSError):
            raise self._reason() from None
        self._seconds_left = max(0.0, self._seconds_left - (monotonic() - start))
        if isinstance(message, Exception):
            raise message
        return message

    def _reason(self) -> DataError:
        """Return why the process has ended."""
        self._process.join(1)
        if self._process.exitcode == -getattr(signal, "SIGXCPU", 0):
            return _too_slow()
        return DataError("the file cannot be read; it may need too much memory", "split it")


def _too_slow() -> DataError:
    return DataError("reading the file takes too long", "split it")


@asynccontextmanager
async def open_documents(contents: Sequence[bytes], task: Task) -> AsyncIterator[DocumentProcess]:
    """Read documents in a process, which ends with the block.

    Raises:
        NMTError: see `DocumentProcess.read`.
    """
    process = DocumentProcess(contents, task)
    try:
        await run_sync(process.read, abandon_on_cancel=True)
        yield process
    finally:
        process.end()


@dataclass(frozen=True)
class NamedFile:
    """A translated file."""

    name: str
    content: bytes


class TranslatedFiles:
    """Translated files in memory. Their names cannot be guessed."""

    def __init__(self) -> None:
        self._files: dict[str, NamedFile] = {}

    def add(self, file: NamedFile) -> str:
        """Keep a file for a while, and return its name."""
        name = f"{secrets.token_urlsafe(24)}{PurePath(file.name).suffix}"
        self._files[name] = file
        while (
            len(self._files) > 1
            and sum(len(each.content) for each in self._files.values()) > MAX_STORED_BYTES
        ):
            del self._files[next(iter(self._files))]
        asyncio.get_running_loop().call_later(LIFETIME, self._files.pop, name, None)
        return name

    def get(self, name: str) -> NamedFile | None:
        """Return a file, or None if there is none with this name any more."""
        return self._files.get(name)
