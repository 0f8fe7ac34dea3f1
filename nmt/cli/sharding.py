"""A corpus in parts: which lines each of several machines or processes translates, and how their results join.

Parts are runs of lines, so their results, one after the other, are those of the whole.
"""

from __future__ import annotations

import os
import re
import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from nmt.errors import UsageError
from nmt.paths import locked, sync


@dataclass(frozen=True)
class Part:
    """The `number`-th of `count` parts, counted from 1."""

    number: int
    count: int

    @classmethod
    def parse(cls, text: str) -> Part:
        """Read `I/N`.

        Raises:
            UsageError: not two numbers, or I not between 1 and N.
        """
        match = re.fullmatch(r"(\d{1,9})/(\d{1,9})", text)
        if not match or not 1 <= int(match[1]) <= int(match[2]):
            raise UsageError(f"--shard must be I/N with I from 1 to N, got '{text}'", "--shard 1/4")
        return cls(int(match[1]), int(match[2]))

    @classmethod
    def of_torchrun(cls) -> Part | None:
        """Return the part of this process where torchrun started several, else None."""
        world = int(os.environ.get("WORLD_SIZE", "1"))
        return cls(int(os.environ.get("RANK", "0")) + 1, world) if world > 1 else None

    def lines(self, total: int) -> tuple[int, int]:
        """Return the first line of this part and the first of the next, counted from 0, of `total` lines."""
        return (self.number - 1) * total // self.count, self.number * total // self.count

    def file(self, output: Path) -> Path:
        """Return where this part's result stands until all are there."""
        return output.with_name(f"{output.name}.{self.number}-of-{self.count}")

    def finish(self, output: Path) -> bool:
        """Mark this part's file as complete, and join all if it was the last; says whether it was."""
        own = self.file(output)
        own.rename(_done(own))
        return self.join(output)

    def join(self, output: Path) -> bool:
        """Join the parts into `output` if all are complete, and say whether they were."""
        lock = output.with_name(f".{output.name}.lock")
        with locked(lock, busy=lambda: None):
            files = [_done(Part(number, self.count).file(output)) for number in range(1, self.count + 1)]
            if not all(file.exists() for file in files):
                return False
            whole = output.with_name(f".{output.name}.whole")
            with whole.open("wb") as joined:
                for file in files:
                    with file.open("rb") as part:
                        shutil.copyfileobj(part, joined)
            sync(whole)
            whole.rename(output)
            for file in files:
                file.unlink()
            with suppress(OSError):  # Windows deletes no open file; there the lock's release does
                lock.unlink()
        return True

    def is_done(self, output: Path) -> bool:
        """Say whether an earlier process finished this part."""
        return _done(self.file(output)).exists()


def _done(file: Path) -> Path:
    return file.with_name(f"{file.name}.done")
