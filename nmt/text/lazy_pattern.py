"""Regular expressions that are compiled on first use. A short translation uses a few of them, and
compiling all takes longer than translating."""

from __future__ import annotations

import re
from typing import Any, cast


def lazy_pattern(expression: str, flags: int = 0) -> re.Pattern[str]:
    """Return what `re.compile` returns, but compile it when a method is used."""
    return cast(re.Pattern[str], _LazyPattern(expression, flags))


class _LazyPattern:
    def __init__(self, expression: str, flags: int) -> None:
        self._expression = expression
        self._flags = flags

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the compiled pattern, and keep it."""
        pattern = re.compile(self._expression, self._flags)
        value = getattr(pattern, name)
        setattr(self, name, value)
        return value
