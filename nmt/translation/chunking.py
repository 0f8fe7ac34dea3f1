"""Group lines into chunks that are translated together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from queue import Queue
from threading import Thread
from typing import TypeVar

CHUNK_SIZE = 1024
"""Maximum number of lines in a chunk. Lines are sorted by length within a chunk, so it also limits
memory."""

T = TypeVar("T")
R = TypeVar("R")


def chunked(items: Iterable[T], size: int | None = None) -> Iterator[list[T]]:
    """Group items into lists of `size`, by default CHUNK_SIZE."""
    iterator = iter(items)
    while chunk := list(islice(iterator, size or CHUNK_SIZE)):
        yield chunk


def regroup(items: Iterable[T], sizes: Iterable[int]) -> Iterator[list[T]]:
    """Group items into lists of given sizes."""
    iterator = iter(items)
    for size in sizes:
        yield list(islice(iterator, size))


def compute_valid(
    compute: Callable[[Sequence[T]], Iterable[R]],
    items: Sequence[T],
    error: type[Exception],
    invalid: R,
) -> list[R]:
    """Return the results of items that are computed together, and `invalid` for each item that
    raises an error.

    The other items are found by halving, because computing them one by one is slow.
    """
    try:
        return list(compute(items))
    except error:
        if len(items) < 2:
            return [invalid] * len(items)
    middle = len(items) // 2
    first_half = compute_valid(compute, items[:middle], error, invalid)
    return first_half + compute_valid(compute, items[middle:], error, invalid)


def chunk_by_arrival(lines: Iterable[str]) -> Iterator[list[str]]:
    """Group the lines of a stream that have arrived: a typed line is a chunk, and a fast pipe fills
    larger ones."""
    queue: Queue[str | Exception | None] = Queue(CHUNK_SIZE)

    def read() -> None:
        try:
            for line in lines:
                queue.put(line)
            queue.put(None)
        except Exception as error:  # raised in the consumer, after the preceding lines
            queue.put(error)

    Thread(target=read, daemon=True).start()
    chunk: list[str] = []
    while isinstance(item := queue.get(), str):
        chunk.append(item)
        if len(chunk) == CHUNK_SIZE or queue.empty():
            yield chunk
            chunk = []
    if chunk:
        yield chunk
    if item is not None:
        raise item
