"""Ranges of numbers beside the types of options, as in `Annotated[int, Range(1)]`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf, isfinite
from typing import Annotated, Any

from nmt.core.errors import ConfigError


@dataclass(frozen=True)
class Range:
    """The numbers that an option or a schema allows. Infinity and NaN are in no range."""

    minimum: float = -inf
    maximum: float = inf
    above: float = -inf
    """A minimum that is not allowed itself."""
    below: float = inf
    """A maximum that is not allowed itself."""
    hint: str = ""
    """Hint of the error."""

    def __contains__(self, value: float) -> bool:
        """Return whether a number is in the range."""
        return self.minimum <= value <= self.maximum and self.above < value < self.below

    def __str__(self) -> str:
        """Describe the range: "at least 0 and below 1"."""
        if isfinite(self.maximum - self.minimum):
            return f"between {self.minimum} and {self.maximum}"
        bounds = {
            "at least": self.minimum,
            "above": self.above,
            "at most": self.maximum,
            "below": self.below,
        }
        return " and ".join(
            f"{words} {bound}" for words, bound in bounds.items() if isfinite(bound)
        )


NotNegative = Annotated[int, Range(0)]
Positive = Annotated[int, Range(1)]
Size = Annotated[int, Range(1, 2**16)]
Probability = Annotated[float, Range(0, 1)]
Share = Annotated[float, Range(0, below=1)]
Rate = Annotated[float, Range(above=0)]


def check_ranges(values: Mapping[str, Any], annotations: Mapping[str, Any], prefix: str) -> None:
    """Check options against the ranges of their annotations.

    Raises:
        ConfigError: an option is out of range; the error names the first one, after `prefix`.
    """
    for name, value in values.items():
        for allowed in getattr(annotations[name], "__metadata__", ()):
            if value not in allowed:
                raise ConfigError(f"{prefix}{name} must be {allowed}, got {value}", allowed.hint)
