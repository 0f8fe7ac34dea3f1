"""Create and save matplotlib figures without a display."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from typing import Any

from nmt.core.errors import UsageError, write_errors
from nmt.core.packages import require_package
from nmt.core.paths import make_parent, write_bytes

FIGURE_FORMATS = (".png", ".svg", ".pdf")


def figure(output: Path, width: float, height: float) -> Any:
    """Return an empty figure for the file `output`; width and height are in inches.

    Raises:
        UsageError: matplotlib is not installed or does not support the format of `output`.
    """
    # `pyplot` would need a display.
    module = require_package("matplotlib", "matplotlib.figure")
    check_figure_format(output)
    return module.Figure(figsize=(width, height), layout="constrained")


def check_figure_format(output: Path, *others: str) -> None:
    """Check that the suffix of a file name is the format of a figure or one of `others`, ignoring
    case.

    Raises:
        UsageError: it is not.
    """
    formats = [*others, *FIGURE_FORMATS]
    if output.suffix.lower() not in formats:  # matplotlib appends a suffix to a name without one
        raise UsageError(
            f"cannot write the format '{output.suffix}' of {output}", f"use {', '.join(formats)}"
        )


def colors(number: int) -> list[Any]:
    """Return different colors for lines."""
    if number <= 10:
        return [f"C{index}" for index in range(number)]
    palette = require_package("matplotlib", "matplotlib").colormaps["turbo"]
    return [palette(0.05 + 0.9 * index / (number - 1)) for index in range(number)]


def start_at_zero(panel: Any, min_top: float) -> None:
    """Let the vertical axis of values that are not negative begin at 0 or above. If all are 0, it
    ends at `min_top`."""
    bottom, top = panel.get_ylim()
    if bottom < 0:
        panel.set_ylim(0, max(top, min_top))


def save(figure: Any, output: Path) -> None:
    """Write a figure, and create its directory.

    Raises:
        NMTError: the file cannot be written.
    """
    with write_errors(output, "choose another file with --output"):
        image = BytesIO()
        name = output.suffix[1:].lower()
        # The same plot is the same file.
        metadata = {"Date": None} if name == "svg" else None
        figure.savefig(image, dpi=120, format=name, metadata=metadata)
        make_parent(output)
        write_bytes(output, image.getvalue())
