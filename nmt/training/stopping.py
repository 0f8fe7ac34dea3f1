"""Stop signals and time limits."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from nmt.core import runtime
from nmt.core.console import log_in_signal_handler
from nmt.runs.checkpoint import Progress

T = TypeVar("T")


class _InterruptedError(BaseException):
    """A stop signal interrupted a function. Like KeyboardInterrupt, `except Exception` must not
    catch it."""


class StopSignal:
    """Signal handler. The first signal requests a stop, and ends a function that runs in
    `interruptible`.

    Ctrl-C (SIGINT) a second time raises KeyboardInterrupt. SIGTERM and SIGHUP do not: a process
    group may get them, and the parent process may then forward them, torchrun as they are and other
    programs as SIGINT.
    """

    def __init__(self, message: str = "") -> None:
        """Request no stop yet; `message` is logged when the first signal must wait."""
        self.requested = False
        self._message = message
        self._is_interrupted = False
        self._interruptible = False

    def __call__(self, signal_number: int, frame: Any) -> None:
        """Handle a signal."""
        if signal_number == signal.SIGINT:
            if self._is_interrupted:
                raise KeyboardInterrupt
            self._is_interrupted = True
        is_first = not self.requested
        self.requested = True
        if self._interruptible:
            raise _InterruptedError
        if is_first and self._message:
            log_in_signal_handler(self._message)

    def interruptible(self, function: Callable[[], T]) -> T | None:
        """Return `function()`, or None if a signal interrupts it. The function must be safe to
        repeat."""
        try:
            try:
                self._interruptible = True
                return None if self.requested else function()
            finally:
                self._interruptible = False
        except _InterruptedError:
            return None


@contextmanager
def handle_stop_signals(message: str = "") -> Iterator[StopSignal]:
    """Handle Ctrl-C, SIGTERM and SIGHUP, and restore the previous handlers at the end; see
    `runtime.stop_signals`. `message`: see `StopSignal`.

    Only the main thread of a program can handle signals; in another one, training cannot be stopped
    by them.
    """
    stop = StopSignal(message)
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    previous = {number: signal.signal(number, stop) for number in runtime.stop_signals()}
    try:
        yield stop
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


class TimeBudget:
    """Training time, and the number of updates that fit into a time limit."""

    def __init__(
        self, limit: float | None, progress: Progress, num_final_validations: int = 1
    ) -> None:
        """Start the clock; `num_final_validations` must fit into the limit after the last
        update."""
        self.limit = limit
        self.progress = progress
        self.num_final_validations = num_final_validations
        self.start_time = time.monotonic()
        self.first_step = progress.step
        self.seconds_before = progress.seconds
        self.validation_seconds = 0.0
        self.max_validation_seconds = 0.0
        self.seconds_of_first_update = 0.0

    def elapsed(self) -> float:
        """Return the seconds since the training loop of this session started."""
        return time.monotonic() - self.start_time

    @contextmanager
    def validation(self) -> Iterator[None]:
        """Measure the duration of a validation."""
        start = self.elapsed()
        yield
        seconds = self.elapsed() - start
        self.max_validation_seconds = max(self.max_validation_seconds, seconds)
        self.validation_seconds += seconds

    def is_exhausted(self) -> bool:
        """Return whether the final validation must start now."""
        return self.limit is not None and self._remaining(self.limit) <= 0

    def _remaining(self, limit: float) -> float:
        reserved = 1.1 * self.max_validation_seconds * self.num_final_validations
        return limit - self.elapsed() - reserved

    def should_measure_validation(self) -> bool:
        """Return whether to validate now, to measure how long the final validation will take."""
        if self.limit is None or self.max_validation_seconds:
            return False
        return self.elapsed() > self.limit / 4

    def num_updates_in(self, seconds: float) -> int:
        """Return about how many updates take `seconds`, at least 1."""
        num_updates, training_seconds = self._updates()
        return max(1, int(seconds * num_updates / training_seconds)) if training_seconds > 0 else 1

    def _updates(self) -> tuple[int, float]:
        """Return the number of updates of this session, and the seconds that they took."""
        seconds = self.elapsed() - self.validation_seconds
        return self.progress.step - self.first_step, seconds

    def seconds_until(self, last_step: int) -> float:
        """Return about how many seconds the updates until `last_step` take."""
        num_updates, seconds = self._updates()
        return (last_step - self.progress.step) * seconds / max(1, num_updates)

    def last_step(self, steps: int, valid_every: int) -> int:
        """Return the last update: `steps`, or an earlier one that the time limit allows."""
        if self.limit is None or not self.progress.step:
            return steps
        num_updates, seconds = self._updates()
        if num_updates > 1:
            seconds_per_update = (seconds - self.seconds_of_first_update) / (num_updates - 1)
        else:
            # The first update of a session takes longer, for example to compile.
            self.seconds_of_first_update = seconds
            first_step = self.first_step
            seconds_per_update = self.seconds_before / first_step if first_step else seconds
        seconds_per_update += self.max_validation_seconds / valid_every
        num_remaining = int(self._remaining(self.limit) / max(1e-9, seconds_per_update))
        return min(steps, self.progress.step + max(0, num_remaining))
