"""Durations on the command line."""

from __future__ import annotations

import re

from nmt.core.errors import UsageError

UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def parse_duration(text: str) -> float:
    """Parse a duration such as 90s, 30m or 1h30m, and return seconds. A number without a unit is in
    seconds.

    Raises:
        UsageError: the text is not a positive duration.
    """
    parts = re.findall(r"(\d+(?:\.\d+)?)([smhd])", text)
    if text and "".join(number + unit for number, unit in parts) == text:
        seconds = sum(float(number) * UNITS[unit] for number, unit in parts)
    else:
        try:
            seconds = float(text)
        except ValueError:
            seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise UsageError(
            f"invalid --time-limit '{text}'", "use a duration such as 90s, 30m, 2h or 1h30m"
        )
    return seconds
