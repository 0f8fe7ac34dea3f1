"""CUDA graphs: the kernels of a search step or an update are recorded once, then launched together.

Python takes about 2.5 ms to launch the 130 kernels of a step of the base model, which an H200
computes in 0.3 ms for a few rows.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Generic, TypeVar

import torch

from nmt.core.runtime import is_out_of_memory
from nmt.model.cache import KVCache

T = TypeVar("T")
MIN_STEPS = 4
"""Minimum number of steps that a graph is recorded for: recording takes longer than a step."""
_LOCK = threading.Lock()
"""Of all models: before PyTorch 2.12, captures and replays share the state of the GPU's random
generator."""
_STREAMS: dict[torch.device, torch.cuda.Stream] = {}
"""The stream of all captures on a GPU: PyTorch keeps a workspace of cuBLAS for every stream."""


def replay(graph: torch.cuda.CUDAGraph) -> None:
    """Launch the kernels of a graph."""
    with _LOCK:
        graph.replay()


@contextmanager
def capture_stream(device: torch.device) -> Iterator[None]:
    """Enter the stream of all captures: after the kernels of the current stream, and before its
    next ones."""
    if device not in _STREAMS:
        _STREAMS[device] = torch.cuda.Stream(device)
    stream = _STREAMS[device]
    current = torch.cuda.current_stream(device)
    stream.wait_stream(current)
    try:
        with torch.cuda.stream(stream):
            yield
    finally:
        current.wait_stream(stream)


def record(
    function: Callable[[], T], device: torch.device, old: torch.cuda.CUDAGraph | None = None
) -> tuple[torch.cuda.CUDAGraph, T]:
    """Record, but do not run, the kernels that a function launches.

    Args:
        function: what to record; it must not wait for the GPU.
        device: the GPU.
        old: a graph whose memory the new one shares: one that is no longer used, or that never runs
            at the same time and leaves nothing in memory that is read later.
    """
    graph = torch.cuda.CUDAGraph()
    with _LOCK, capture_stream(device):
        graph.capture_begin(old.pool() if old else None, capture_error_mode="thread_local")
        try:
            result = function()
        except BaseException:
            with suppress(RuntimeError):  # if the function has waited, the capture cannot end
                graph.capture_end()
            raise
        graph.capture_end()
    return graph, result


class SpareGraphs:
    """Graphs of a model that are no longer used: a new one takes the memory of one of them. Threads
    may share it."""

    def __init__(self) -> None:
        self._graphs: list[torch.cuda.CUDAGraph] = []

    def take(self) -> torch.cuda.CUDAGraph | None:
        """Return a graph, which must exist until the new one shares its memory."""
        with _LOCK:
            return self._graphs.pop() if self._graphs else None

    def give(self, graph: torch.cuda.CUDAGraph) -> None:
        """Keep a graph."""
        self._graphs.append(graph)

    def release(self) -> None:
        """Return the memory of all graphs to the GPU."""
        # `empty_cache` fails during a capture, also during one that could not end.
        with _LOCK, suppress(RuntimeError):
            self._graphs.clear()
            torch.cuda.empty_cache()


class GraphedSteps(Generic[T]):
    """The steps of one search, each of which reads one more token per row: the second of several
    with equal shapes, and all after it, are graphs.

    Steps that reorder the rows of the KV caches exchange the buffers of these, so two graphs take
    turns.
    """

    def __init__(
        self,
        spare: SpareGraphs,
        caches: Sequence[KVCache],
        max_positions: int | None,
        *,
        reorders: bool = False,
    ) -> None:
        """Begin a search.

        Args:
            spare: the unused graphs of the model.
            caches: the KV caches of its networks.
            max_positions: number of positions of the model; None: unlimited.
            reorders: whether the steps reorder the rows of the caches.
        """
        self._spare = spare
        self._caches = caches
        self._max_positions = max_positions or sys.maxsize
        self._reorders = reorders
        self._recorded: list[tuple[torch.cuda.CUDAGraph, T]] = []
        """Graphs for the current shapes, with what their steps have returned."""
        self._turn = 0
        """Index of the graph of the next step."""
        self._may_record = True
        self._last_shape: tuple[int, int] | None = None
        """Number of rows and of reserved positions after the last step."""

    @property
    def is_recorded(self) -> bool:
        """Whether there is a graph for the current shapes."""
        return bool(self._recorded)

    def run(self, step: Callable[[], T], num_rows: int, num_left: int = sys.maxsize) -> T:
        """Make a step.

        Args:
            step: makes a step without a graph; must not wait for the GPU.
            num_rows: number of rows of the caches.
            num_left: maximum number of further steps, with this one.

        Returns:
            What `step` returns; in a graph always the same tensors, which the next step overwrites.
        """
        cache = self._caches[0]
        if cache.length == cache.capacity:
            self.close()
        elif self._is_worthwhile(num_rows, num_left):
            self._record(step)
        has_graph = self._turn < len(self._recorded)
        result = self._replay() if has_graph else step()
        if self._recorded and self._reorders:
            self._turn = 1 - self._turn
        self._last_shape = num_rows, cache.capacity
        return result

    def close(self) -> None:
        """Let the caches grow again."""
        for cache in self._caches:
            cache.unfix_shapes()
        if self._recorded:  # the second one shares the memory of the first one
            self._spare.give(self._recorded[0][0])
        self._recorded = []
        self._turn = 0

    def __del__(self) -> None:
        if self._recorded:
            self._spare.give(self._recorded[0][0])

    def _is_worthwhile(self, num_rows: int, num_left: int) -> bool:
        """Return whether to record a graph of the next step."""
        cache = self._caches[0]
        num_left = min(num_left, cache.capacity - cache.length)
        has_same_shape = self._last_shape == (num_rows, cache.capacity)
        return (
            self._may_record
            and self._turn == len(self._recorded)
            and has_same_shape
            and num_left >= MIN_STEPS
            # A graph could not raise an error.
            and cache.capacity <= self._max_positions
        )

    def _record(self, step: Callable[[], T]) -> None:
        """Record, but do not run, a step; if there is not enough memory, do without graphs: a
        capture can neither use nor free the memory that PyTorch caches."""
        try:
            for cache in self._caches:
                cache.fix_shapes(reorders=self._reorders)
            memory = self._recorded[0][0] if self._recorded else self._spare.take()
            with ExitStack() as stack:
                for cache in self._caches:
                    stack.enter_context(cache.unchanged())
                self._recorded.append(record(step, self._caches[0].device, memory))
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            memory = None
            self._may_record = False
            self.close()
            self._spare.release()

    def _replay(self) -> T:
        graph, result = self._recorded[self._turn]
        replay(graph)
        for cache in self._caches:
            cache.length += 1
            if self._reorders:
                cache.swap()
        return result
