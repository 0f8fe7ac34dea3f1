"""When a training ends: signals that ask it to stop, and a limit of time."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from nmt.runs.checkpoint import Progress

T = TypeVar("T")


class _Interrupted(BaseException):
    """A validation was broken off; like KeyboardInterrupt nothing on the way may take it for an error."""


class Stop:
    """Counts requests to stop: the first awaits the update's end or breaks off a validation, the second is obeyed."""

    def __init__(self) -> None:
        self.requested = False
        self._breakable = False

    def __call__(self, number: int, frame: Any) -> None:
        """Take note of a signal."""
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True
        if self._breakable:
            raise _Interrupted

    def interruptible(self, work: Callable[[], T]) -> T | None:
        """Return `work()`, or None if a request to stop broke it off; it must be something that can be done again."""
        try:
            try:
                self._breakable = True
                return None if self.requested else work()
            finally:
                self._breakable = False
        except _Interrupted:
            return None


@contextmanager
def stopping() -> Iterator[Stop]:
    """Listen for Ctrl-C and SIGTERM."""
    stop = Stop()
    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Clock:
    """How long training has run, and how many updates still fit into a time limit."""

    def __init__(self, limit: float | None, progress: Progress, last_validations: int = 1) -> None:
        """Start now; `last_validations` must fit behind the last update."""
        self.limit, self.progress, self.last_validations = limit, progress, last_validations
        self.started = time.monotonic()
        self.first_step = progress.step
        self.seconds_before = progress.seconds
        self.validating = 0.0
        self.longest_validation = 0.0

    def elapsed(self) -> float:
        """Seconds since this session began."""
        return time.monotonic() - self.started

    @contextmanager
    def validation(self) -> Iterator[None]:
        """Measure a validation, since the last one must fit into the limit too."""
        before = self.elapsed()
        yield
        self.longest_validation = max(self.longest_validation, self.elapsed() - before)
        self.validating += self.elapsed() - before

    def is_up(self) -> bool:
        """Say whether the last validation must begin."""
        return self.limit is not None and self._left(self.limit) <= 0

    def _left(self, limit: float) -> float:
        return limit - self.elapsed() - 1.1 * self.longest_validation * self.last_validations

    def must_know_validation(self) -> bool:
        """Say whether it is time to measure how long the last validation will take, by making one."""
        return self.limit is not None and not self.longest_validation and self.elapsed() > self.limit / 4

    def last_step(self, steps: int, valid_every: int) -> int:
        """Return the update at which training will end: `steps`, or what the time limit leaves room for."""
        if self.limit is None:
            return steps
        done = self.progress.step - self.first_step
        if not done:
            return steps
        per_step = (self.elapsed() - self.validating) / done + self.longest_validation / valid_every
        return min(steps, self.progress.step + max(0, int(self._left(self.limit) / per_step)))
