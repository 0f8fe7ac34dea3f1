"""A function on one process per CPU core."""

from __future__ import annotations

import itertools
import multiprocessing
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any, TypeVar

from nmt.core.errors import NMTError
from nmt.core.runtime import num_cores

Item = TypeVar("Item")
Result = TypeVar("Result")
CHUNK_SIZE = 5_000
"""Items per task of a process."""


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
    context = multiprocessing.get_context("spawn")  # fork is unsafe with threads
    with ProcessPoolExecutor(num_workers, context, init_worker, (function,)) as pool:
        pending: deque[Future[Result]] = deque()
        try:
            # Raises if processes cannot start; submitting data would block forever.
            pool.submit(int).result()
            for chunk in chunks:
                pending.append(pool.submit(_call, chunk))
                if len(pending) > 2 * num_workers:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        except BrokenProcessPool:
            raise NMTError(
                "a worker process ended unexpectedly", "it may have run out of memory"
            ) from None
        finally:
            for future in pending:
                future.cancel()


def _chunk(items: Iterable[Item]) -> Iterator[tuple[Item, ...]]:
    iterator = iter(items)
    while chunk := tuple(itertools.islice(iterator, CHUNK_SIZE)):
        yield chunk


_function: Callable[[Any], Any]
"""Of a worker process: sent once, because it may be large."""


def init_worker(function: Callable[[Any], Any]) -> None:
    """Set the function that this process computes."""
    global _function
    _function = function


def _call(chunk: Any) -> Any:
    return _function(chunk)
