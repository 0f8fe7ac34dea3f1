"""Pictures by matplotlib, which need no screen."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from nmt.errors import NMTError, UsageError


def figure(output: Path, width: float, height: float) -> Any:
    """Return an empty figure of so many inches.

    Raises:
        UsageError: matplotlib is not installed, or does not know the format that the suffix of `output` names.
    """
    try:
        from matplotlib.figure import Figure  # not pyplot, which would look for a screen
    except ImportError:
        raise UsageError("matplotlib is not installed", "pip install matplotlib") from None
    kinds = Figure().canvas.get_supported_filetypes()
    if output.suffix[1:].lower() not in kinds:  # without one, matplotlib would write to another name
        raise UsageError(f"cannot draw a picture of the format '{output.suffix}'", f"one of {', '.join(sorted(kinds))}")
    return Figure(figsize=(width, height), layout="constrained")


def save(page: Any, output: Path) -> None:
    """Write a figure.

    Raises:
        NMTError: it cannot be written.
    """
    try:
        page.savefig(output, dpi=120)
    except OSError as error:
        raise NMTError(f"cannot write {output}: {error.strerror}", "name another file with --output") from None
