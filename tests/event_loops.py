"""Event loops in tests: the browser of other tests has one in the main thread."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


def in_a_thread(coroutine: Coroutine[object, object, T]) -> T:
    """Run a coroutine in an event loop of another thread, and return its result."""
    with ThreadPoolExecutor(1) as executor:
        return executor.submit(asyncio.run, coroutine).result()
