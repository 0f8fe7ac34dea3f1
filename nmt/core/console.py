"""Log lines and progress bars, all on stderr, and formats of quantities. stdout is for results."""

from __future__ import annotations

import contextlib
import os
import sys
from functools import cache
from typing import TYPE_CHECKING, Any, TextIO

from nmt.core import torchrun

if TYPE_CHECKING:
    from tqdm import tqdm

SILENT = torchrun.is_distributed() and torchrun.rank() not in ("", "0")
"""Whether this process logs nothing: under torchrun only rank 0 logs."""
CONTROL = {
    code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160)) if chr(code) not in "\n\t"
}

IN_SWEEP = "NMT_IN_SWEEP"
"""Environment variable of the commands of a sweep, which reports that they were interrupted."""
COLORS = {"error": "\x1b[1;31m", "warning": "\x1b[1;33m"}
"""Colors of the first word of messages."""
RESET_COLOR = "\x1b[0m"


def has_colors() -> bool:
    """Return whether stderr shows colors; see https://no-color.org and https://force-color.org."""
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return sys.stderr.isatty() and os.environ.get("TERM") != "dumb"


def discard(stream: TextIO) -> None:
    """Redirect a stream to the null device. Otherwise the interpreter reports an error when it
    flushes it at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


class Log:
    """stderr. The work goes on without a reader, or with a full disk."""

    def __getattr__(self, name: str) -> Any:
        return getattr(sys.stderr, name)

    def write(self, text: str) -> None:
        """Write a text, if possible."""
        try:
            sys.stderr.write(text)
        except OSError:
            discard(sys.stderr)

    def flush(self) -> None:
        """Flush stderr, if possible."""
        try:
            sys.stderr.flush()
        except OSError:
            discard(sys.stderr)


LOG: Any = Log()


def escape_control(message: str) -> str:
    """Escape control characters: a logged sentence must not move the cursor or change colors."""
    return message.translate(CONTROL)


@cache
def log_once(message: str) -> None:
    """Log a message once in this process."""
    log(message)


def log(message: str, *, every_rank: bool = False) -> None:
    """Print one line on stderr without breaking a progress bar; under torchrun only on rank 0, or
    on every rank. Errors and warnings are colored in a terminal."""
    if SILENT and not every_rank:
        return
    message = escape_control(message)
    kind, colon, rest = message.partition(":")
    if colon and kind in COLORS and has_colors():
        message = f"{COLORS[kind]}{kind}:{RESET_COLOR}{rest}"
    if "tqdm" in sys.modules and is_terminal():  # there may be a progress bar
        from tqdm import tqdm

        tqdm.write(f"nmt: {message}", file=LOG)
    else:
        print(f"nmt: {message}", file=LOG, flush=True)


def log_interruption(message: str) -> None:
    """Log that a signal has interrupted this process, unless the sweep does that."""
    if IN_SWEEP not in os.environ:
        log(message, every_rank=True)


def log_in_signal_handler(message: str) -> None:
    """Log a message from a signal handler, unless the sweep reports the signal."""
    if SILENT or IN_SWEEP in os.environ:
        return
    start = "\n" if is_terminal() else ""  # the cursor may be at the end of a progress bar
    # The handler may have interrupted a write to stderr, whose buffer then rejects another one.
    with contextlib.suppress(OSError):
        os.write(sys.stderr.fileno(), f"{start}nmt: {message}\n".encode())


def is_terminal() -> bool:
    """Return whether stderr is a terminal, which shows progress bars well."""
    return sys.stderr.isatty()


def progress(
    total: float | None, description: str, unit: str, *, disable: bool = False, **options: Any
) -> tqdm[Any]:
    """Open a progress bar. If stderr is not a terminal, it prints one line per minute."""
    from nmt.core.progress_bar import ProgressBar, ProgressLines  # tqdm is slow to import

    options |= {
        "disable": disable or SILENT,
        "total": total,
        "desc": description,
        "unit": unit,
        "file": LOG,
        "leave": False,
    }
    if not is_terminal():
        line = "{l_bar}{r_bar}"
        return ProgressLines(mininterval=60.0, delay=60.0, bar_format=line, **options)
    has_size = os.get_terminal_size(sys.stderr.fileno()).columns > 0
    return ProgressBar(ncols=None if has_size else 80, dynamic_ncols=has_size, **options)


def format_duration(seconds: float) -> str:
    """Format a duration with at most two units: 0.4 s, 45 s, 12 min, 3 h 5 min, 2 d 4 h."""
    if seconds < 1:
        return f"{seconds:.1g} s"
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 24:
        return f"{hours} h {minutes} min"
    return f"{hours // 24} d {hours % 24} h"


def format_count(number: float) -> str:
    """Format a large number: 950, 31.7 K, 16.5 M, 120 M."""
    return _with_prefix(number, ("", " K", " M"))


def format_bytes(num_bytes: float) -> str:
    """Format a size: 950 B, 31.7 kB, 16.5 MB, 120 MB."""
    return _with_prefix(num_bytes, (" B", " kB", " MB", " GB"))


def _with_prefix(value: float, units: tuple[str, ...]) -> str:
    exponent = 0
    while value >= 999.5 and exponent < len(units) - 1:
        value /= 1000
        exponent += 1
    num_decimals = 1 if exponent and value < 99.95 else 0
    return f"{value:,.{num_decimals}f}".removesuffix(".0") + units[exponent]


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, such as `1 pair` or `1,000 pairs`."""
    return f"{number:,} {noun}{'s' * (number != 1)}"


def format_p(p: float) -> str:
    """Format a p-value with three decimals. It is never zero."""
    return f"{p:.3f}" if p >= 0.001 else "< 0.001"
