"""Tasks on one process per CPU core, or on a Ray cluster."""

from __future__ import annotations

import itertools
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from nmt.core import plugins
from nmt.core.errors import NMTError, check_choice
from nmt.core.packages import require_package
from nmt.core.runtime import num_cores

if TYPE_CHECKING:  # slow to import, and translating needs no other processes
    from concurrent.futures import ProcessPoolExecutor

Item = TypeVar("Item")
Result = TypeVar("Result")
CHUNK_SIZE = 5_000
"""Items per task of `map_chunks`."""
MIN_PARALLEL_SIZE = 100_000
"""Pairs of several tasks below which this process computes them: others take a second to start."""


class Task(Protocol):
    """An argument of a function that an executor calls."""

    @property
    def num_pairs(self) -> int:
        """Number of its pairs."""


Report = Callable[[int], object]
"""Called with the number of pairs that have been computed since the last call."""


class Future(Protocol):
    """The result of a task that may still run."""

    def result(self) -> Any:
        """Wait for the result, and return it."""

    def cancel(self) -> object:
        """Do not start the task any more."""


class Executor:
    """Computes tasks on one process per CPU core, which start when there is enough work. Used as a
    context manager, whose end stops them."""

    def __init__(self, min_parallel_size: int = MIN_PARALLEL_SIZE) -> None:
        """Use other processes for tasks that have at least `min_parallel_size` pairs together."""
        self.num_workers = num_cores()
        self.min_parallel_size = min_parallel_size
        self._stack = ExitStack()
        self._pool: ProcessPoolExecutor | None = None

    def __enter__(self) -> Executor:
        return self

    def __exit__(self, *details: object) -> None:
        self._stack.close()

    def map(
        self, function: Callable[..., Result], tasks: Iterable[Task], report: Report
    ) -> Iterator[Result]:
        """Yield the results of a function for each task, in their order. Tasks are taken when they
        are needed, so only some exist at a time.

        Args:
            function: a function of a module, or a `partial` of one, called with the task; its
                results do not depend on the process. In this process, it is also called with
                `report`.
            tasks: arguments for it.
            report: called with the number of pairs that have been computed.

        Raises:
            NMTError: a process was killed.
        """
        rest = iter(tasks)
        first: list[Task] = []
        while len(first) < 2 or sum(task.num_pairs for task in first) < self.min_parallel_size:
            task = next(rest, None)
            if task is None:
                break
            first.append(task)
        else:
            if self.num_workers > 1:
                yield from self._map_parallel(function, itertools.chain(first, rest), report)
                return
        for task in itertools.chain(first, rest):
            yield function(task, report)

    def _map_parallel(
        self, function: Callable[..., Result], tasks: Iterable[Task], report: Report
    ) -> Iterator[Result]:
        sizes: deque[int] = deque()

        def calls() -> Iterator[tuple[Any, ...]]:
            for task in tasks:
                sizes.append(task.num_pairs)
                yield function, task

        for result in bounded_map(self.submit, calls(), self.num_workers + 1):
            report(sizes.popleft())
            yield result

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Future:
        """Start a task in another process."""
        if self._pool is None:
            self._pool = self._stack.enter_context(_process_pool(self.num_workers))
        return self._pool.submit(function, *arguments)


class RayExecutor(Executor):
    """Computes tasks on a Ray cluster whose nodes share the file system: that of $RAY_ADDRESS, or
    one that it starts on this machine."""

    def __init__(self) -> None:
        super().__init__()
        ray = require_package("Ray", "ray")
        ray.init(log_to_driver=False, logging_level="error", include_dashboard=False)
        self._stack.callback(ray.shutdown)
        self._ray = ray
        self._call = ray.remote(_call_function)
        self.num_workers = max(2, int(ray.cluster_resources().get("CPU", 1)))

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Future:
        """Start a task on a node of the cluster."""
        modules = os.environ.get(plugins.VARIABLE, "")
        reference = self._call.remote(modules, function, *arguments)
        return _RayFuture(self._ray, reference)


EXECUTORS: dict[str, type[Executor]] = {"processes": Executor, "ray": RayExecutor}


def get_executor(name: str) -> Executor:
    """Return an executor by its name.

    Raises:
        UsageError: the name is unknown, or its package is not installed.
    """
    check_choice("--executor", name, EXECUTORS)
    return EXECUTORS[name]()


class _RayFuture:
    """The result of a task on a Ray cluster."""

    def __init__(self, ray: Any, reference: Any) -> None:
        self._ray = ray
        self._reference = reference

    def result(self) -> Any:
        """Wait for the result, and return it."""
        try:
            return self._ray.get(self._reference)
        except self._ray.exceptions.RayTaskError as error:
            raise error.cause from None
        except self._ray.exceptions.RayError as error:
            raise NMTError(f"a task of the Ray cluster failed: {error}", "see ray status") from None

    def cancel(self) -> object:
        """Do not start the task any more."""
        return self._ray.cancel(self._reference)


def _call_function(modules: str, function: Callable[..., Any], *arguments: Any) -> Any:
    init_worker(None)
    os.environ[plugins.VARIABLE] = modules
    return function(*arguments)


def bounded_map(
    submit: Callable[..., Future], calls: Iterable[tuple[Any, ...]], max_pending: int
) -> Iterator[Any]:
    """Submit calls, each a function and its arguments, and yield their results in their order; at
    most `max_pending` of them are submitted and not yet yielded.

    Raises:
        NMTError: a process was killed.
    """
    from concurrent.futures.process import BrokenProcessPool

    pending: deque[Future] = deque()
    try:
        # Raises if processes cannot start; submitting data would block forever.
        submit(int).result()
        for call in calls:
            pending.append(submit(*call))
            if len(pending) >= max_pending:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    except BrokenProcessPool:
        raise NMTError(
            "a worker process ended unexpectedly",
            "it may have run out of memory; a script needs if __name__ == '__main__': around its"
            " calls",
        ) from None
    finally:
        for future in pending:
            future.cancel()


def map_chunks(
    function: Callable[[Sequence[Item]], Result], items: Iterable[Item]
) -> Iterator[Result]:
    """Yield the results of a function for consecutive chunks of items, in their order.

    Few items are computed in this process. Otherwise each process receives the function once, and
    only some chunks are in memory.

    Raises:
        NMTError: a process was killed.
    """
    chunks = _chunk(items)
    first_chunks = list(itertools.islice(chunks, 2))
    chunks = itertools.chain(first_chunks, chunks)
    num_workers = num_cores()
    if len(first_chunks) < 2 or num_workers == 1:
        yield from map(function, chunks)
        return
    with _process_pool(num_workers, function) as pool:
        calls = ((_call, chunk) for chunk in chunks)
        yield from bounded_map(pool.submit, calls, 2 * num_workers)


def _process_pool(
    num_workers: int, function: Callable[[Any], Any] | None = None
) -> ProcessPoolExecutor:
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor

    context = multiprocessing.get_context("spawn")  # fork is unsafe with threads
    return ProcessPoolExecutor(num_workers, context, init_worker, (function,))


def _chunk(items: Iterable[Item]) -> Iterator[tuple[Item, ...]]:
    iterator = iter(items)
    while chunk := tuple(itertools.islice(iterator, CHUNK_SIZE)):
        yield chunk


_function: Callable[[Any], Any] | None
"""Of a worker process: sent once, because it may be large."""
_is_worker = False


def init_worker(function: Callable[[Any], Any] | None) -> None:
    """Set the function that this process computes beside others."""
    global _function, _is_worker
    _function = function
    _is_worker = True


def is_worker() -> bool:
    """Return whether this process is one of several that compute side by side, one per core."""
    return _is_worker


def _call(chunk: Any) -> Any:
    assert _function is not None
    return _function(chunk)
