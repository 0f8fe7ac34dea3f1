"""Lines in chunks: of a file by size, of a stream by arrival."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from queue import Queue
from threading import Thread
from typing import TypeVar

WINDOW = 1024
"""Lines that are sorted by length together: bounds memory, whatever the input's length."""


L = TypeVar("L")


def chunked(lines: Iterable[L], size: int | None = None) -> Iterator[list[L]]:
    """Group lines of a file: as many as are sorted together, unless `size` says how many."""
    stream = iter(lines)
    while window := list(islice(stream, size or WINDOW)):
        yield window


def chunk_by_arrival(lines: Iterable[str]) -> Iterator[list[str]]:
    """Group lines of a stream by arrival: a typed line is answered at once, and a fast pipe still fills batches."""
    arrived: Queue[str | Exception | None] = Queue(WINDOW)

    def read() -> None:
        try:
            for line in lines:
                arrived.put(line)
            arrived.put(None)
        except Exception as error:  # raised where it can be reported, after the lines before it
            arrived.put(error)

    Thread(target=read, daemon=True).start()
    last: str | Exception | None = ""
    while isinstance(last, str):
        window = []
        last = arrived.get()
        while isinstance(last, str):
            window.append(last)
            if len(window) == WINDOW or arrived.empty():
                break
            last = arrived.get()
        if window:
            yield window
    if last is not None:
        raise last
