"""Pictures by matplotlib, which need no screen."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from nmt.errors import NMTError, UsageError

FORMATS = (".png", ".svg", ".pdf")


def figure(output: Path, width: float, height: float) -> Any:
    """Return an empty figure of so many inches.

    Raises:
        UsageError: matplotlib is not installed, or does not know the format that the suffix of `output` names.
    """
    try:
        from matplotlib.figure import Figure  # not pyplot, which would look for a screen
    except ImportError:
        raise UsageError("matplotlib is not installed", "pip install matplotlib") from None
    check_format(output)
    return Figure(figsize=(width, height), layout="constrained")


def check_format(output: Path, *others: str) -> None:
    """Refuse a name whose suffix, in capitals or not, is no format of pictures, nor one of `others`.

    Raises:
        UsageError: it is not.
    """
    known = [*others, *FORMATS]
    if output.suffix.lower() not in known:  # without one, matplotlib would write to another name
        raise UsageError(f"cannot write the format '{output.suffix}' of {output}", f"end it in {', '.join(known)}")


def save(page: Any, output: Path) -> None:
    """Write a figure, its folder with it.

    Raises:
        NMTError: it cannot be written.
    """
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        page.savefig(output, dpi=120)
    except OSError as error:
        raise NMTError(f"cannot write {output}: {error.strerror}", "name another file with --output") from None
