"""Parts of work for several machines."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Self

from nmt.core.errors import UsageError


@dataclass(frozen=True)
class Part:
    """The shards that one of several machines handles: every `count`-th from `number` on, which
    starts at 1."""

    number: int = 1
    count: int = 1

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse `I/N`.

        Raises:
            UsageError: the text is not two integers with 1 <= I <= N.
        """
        match = re.fullmatch(r"(\d{1,9})/(\d{1,9})", text)
        if not match or not 1 <= int(match[1]) <= int(match[2]):
            raise UsageError(
                f"--shard must be I/N with I from 1 to N, got '{text}'", "for example --shard 1/4"
            )
        return cls(int(match[1]), int(match[2]))

    def has(self, index: int) -> bool:
        """Return whether a shard belongs to this part."""
        return index % self.count == self.number - 1
