"""A progress bar of tqdm that stays readable in a narrow terminal."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

from tqdm import tqdm

MIN_CELLS = 20
"""Minimum width of the bar: figures that leave less room are dropped."""
TIMES = ("{elapsed}<{remaining}, {rate_fmt}", "<{remaining}, {rate_fmt}", "<{remaining}")
"""Times from the widest to the narrowest."""


class ProgressBar(tqdm):  # type: ignore[type-arg]
    """A bar of at least `MIN_CELLS` cells."""

    @staticmethod
    def format_meter(  # type: ignore[override]
        n: float, total: Any, elapsed: float, ncols: int | None = None, **options: Any
    ) -> str:
        """Return the bar with as many figures as fit in `ncols` columns."""
        if total and ncols is not None and not options.get("bar_format"):
            figures = options.pop("postfix", None)
            for layout in _layouts(figures.split(", ") if figures else []):
                without_bar = options | {"bar_format": layout.replace("{bar}", "")}
                width = len(tqdm.format_meter(n, total, elapsed, None, **without_bar))
                if width + MIN_CELLS <= ncols:
                    break
            options["bar_format"] = layout
        text = str(tqdm.format_meter(n, total, elapsed, ncols, **options))
        # Below one per second, tqdm has seconds for each unit, of which the names are plural.
        unit = options.get("unit", "")
        return text.replace(f"s/{unit}", f"s/{unit.strip().removesuffix('s')}") if unit else text


class ProgressLines(ProgressBar):
    """A line of a log file in each interval instead of a bar, with nothing that moves a cursor."""

    @staticmethod
    def status_printer(file: Any) -> Callable[[str], None]:
        """Return a function that prints a line, and nothing for the empty text that clears a
        bar."""

        def print_line(text: str) -> None:
            if text:
                file.write(f"{text}\n")
                file.flush()

        return print_line

    def close(self) -> None:
        """End the lines, without the carriage return after a bar."""
        self.fp = io.StringIO()
        super().close()


def _layouts(figures: list[str]) -> list[str]:
    """Return layouts from the widest to the narrowest: they lose figures from the last to the
    second, then times, then all."""
    details = [", ".join((TIMES[0], *figures[:count])) for count in range(len(figures), 0, -1)]
    details += [", ".join((times, *figures[:1])) for times in TIMES]
    details += TIMES[-1:]
    layouts = [f"{{l_bar}}{{bar}}| {{n_fmt}}/{{total_fmt}} [{detail}]" for detail in details]
    for start in ("{l_bar}", "{percentage:3.0f}%|"):
        layouts.append(f"{start}{{bar}}| [<{{remaining}}]")
    return [*layouts, "{percentage:3.0f}%|{bar}|"]
