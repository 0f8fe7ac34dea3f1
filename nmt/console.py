"""What a person sees while nmt works: log lines and progress bars, all on stderr; stdout is for results."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from tqdm import tqdm

T = TypeVar("T")

SILENT = os.environ.get("RANK", "0") != "0"
"""Of the processes that torchrun starts, the first speaks for all."""


CONTROL = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160)) if chr(code) not in "\n\t"}


def visible(message: str) -> str:
    """Spell out what would move the cursor or change colors: sentences, a model's too, may hold any character."""
    return message.translate(CONTROL)


def log(message: str) -> None:
    """Print one line on stderr without tearing a progress bar."""
    if SILENT:
        return
    message = visible(message)
    if sys.stderr.isatty():
        tqdm.write(f"nmt: {message}", file=sys.stderr)
    else:
        print(f"nmt: {message}", file=sys.stderr, flush=True)


def counted(items: Iterable[T], tick: Callable[[], object]) -> Iterator[T]:
    """Yield items, and call `tick` behind each."""
    for item in items:
        yield item
        tick()


def progress(total: float | None, what: str, unit: str, **options: Any) -> tqdm[Any]:
    """Open a progress bar with the time left; where stderr is a file it writes a line a minute, not ten a second."""
    terminal = sys.stderr.isatty()
    return tqdm(
        disable=options.pop("disable", False) or SILENT,
        total=total,
        desc=what,
        unit=unit,
        file=sys.stderr,
        dynamic_ncols=terminal,
        mininterval=0.1 if terminal else 60.0,
        delay=0.0 if terminal else 60.0,
        bar_format=None if terminal else "{l_bar}{r_bar}\n",
        leave=False,
        **options,
    )
