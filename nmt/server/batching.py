"""Translates lines of several requests together: one thread per model takes everything that waits in its queue."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from itertools import chain
from queue import SimpleQueue
from threading import Event, Thread
from typing import TypeVar

from nmt.errors import NMTError
from nmt.inference.guard import Guard
from nmt.inference.segments import Line
from nmt.inference.translation import Translation

MAX_BATCH_CHARACTERS = 10_000
"""A batch with more characters takes no further job. Limits the time that later requests wait."""

NBest = list[Translation]
L = TypeVar("L", bound=str | Line)


@dataclass(frozen=True)
class Job:
    """Lines to translate."""

    lines: Sequence[str | Line]
    search: str
    num_characters: int
    details: bool
    """Whether the translations need confidences and alignments."""
    future: Future[list[NBest]] = field(default_factory=Future)
    """The n-best list of each line. A cancelled job is not translated."""


class BatchTranslator:
    """Translates jobs with one model in a thread. Jobs that wait are translated as one batch."""

    def __init__(self, guard: Guard, max_lines: int, on_batch: Callable[[int], object] = lambda lines: None) -> None:
        """Start the thread.

        A batch with `max_lines` lines takes no further job. `on_batch` gets the number of lines of each batch.
        """
        self.guard, self.max_lines, self.on_batch = guard, max_lines, on_batch
        self._queue: SimpleQueue[Job | None] = SimpleQueue()
        self._thread = Thread(target=self._run, name="translate", daemon=True)
        self._thread.start()

    def submit(self, lines: Sequence[str | Line], search: str, *, details: bool) -> Future[list[NBest]]:
        """Add lines to the queue, at most `max_lines` of them."""
        num_characters = sum(len(line if isinstance(line, str) else line.text) for line in lines)
        job = Job(lines, search, num_characters, details)
        self._queue.put(job)
        return job.future

    def close(self) -> None:
        """Translate the jobs that were submitted, and end the thread."""
        self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        for batch in self._batches():
            groups: dict[tuple[str, bool], list[Job]] = {}
            for job in batch:
                groups.setdefault((job.search, job.details), []).append(job)
            for group in groups.values():
                self._translate(group)

    def _batches(self) -> Iterator[list[Job]]:
        """Yield the jobs in the queue that are not cancelled, until it is closed."""
        batch, num_lines, num_characters = list[Job](), 0, 0
        while job := self._queue.get():
            if job.future.set_running_or_notify_cancel():
                batch.append(job)
                num_lines += len(job.lines)
                num_characters += job.num_characters
            is_full = num_lines >= self.max_lines or num_characters >= MAX_BATCH_CHARACTERS
            if batch and (is_full or self._queue.empty()):
                yield batch
                batch, num_lines, num_characters = [], 0, 0
        yield batch

    def _translate(self, jobs: Sequence[Job]) -> None:
        """Translate jobs with the same search, and set their results. If that fails, translate each separately."""
        lines = [line for job in jobs for line in job.lines]
        try:
            self.on_batch(len(lines))
            n_bests = self.guard.stream([lines], jobs[0].search, details=jobs[0].details)
            results = iter([n_best for _, n_best in zip(lines, n_bests, strict=True)])
        except Exception as error:  # of any job; the thread must not end
            if len(jobs) == 1:
                jobs[0].future.set_exception(error)
                return
            for job in jobs:
                self._translate([job])
            return
        for job in jobs:
            job.future.set_result([next(results) for _ in job.lines])


def split_into_parts(lines: Iterable[L], max_lines: int) -> Iterator[list[L]]:
    """Yield parts between which other requests get their turn, with at most `max_lines` lines.

    They have at most `MAX_BATCH_CHARACTERS` characters unless a line is longer.
    """
    part, num_characters = list[L](), 0
    for line in lines:
        length = len(line if isinstance(line, str) else line.text)
        if part and (len(part) == max_lines or num_characters + length > MAX_BATCH_CHARACTERS):
            yield part
            part, num_characters = [], 0
        part.append(line)
        num_characters += length
    if part:
        yield part


class QueuedGuard(Guard):
    """Translates in the thread of a model of the server, together with the lines of other requests."""

    def __init__(self, translator: BatchTranslator) -> None:
        super().__init__(translator.guard.translator)
        self._batch_translator, self._stopped = translator, Event()
        self._future: Future[list[list[Translation]]] = Future()

    def stop(self) -> None:
        """Translate no further lines, and none that wait for other requests."""
        self._stopped.set()
        self._future.cancel()

    def stream(
        self,
        chunks: Iterable[Sequence[str | Line]],
        search: str | None = None,
        *,
        details: bool = False,
        on_progress: Callable[[int], object] = lambda lines: None,
    ) -> Iterator[list[Translation]]:
        """Yield the n-best list of each line; see `Guard.stream`.

        Raises:
            NMTError: `stop` was called.
        """
        for part in split_into_parts(chain.from_iterable(chunks), self._batch_translator.max_lines):
            if self._stopped.is_set():
                raise NMTError("the translation was cancelled")
            self._future = self._batch_translator.submit(part, search or self.config.search, details=details)
            if self._stopped.is_set():  # since the line before
                self._future.cancel()
            yield from self._future.result()
            on_progress(len(part))
