"""Sharding of an input file over machines or processes, and joining of the results.

A shard is a range of consecutive lines, so the outputs of the shards in order are the output for
the file.
"""

from __future__ import annotations

import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from nmt.core import torchrun
from nmt.core.errors import UsageError
from nmt.core.parts import Part
from nmt.core.paths import locked, named_errors, sync


@dataclass(frozen=True)
class Shard(Part):
    """Shard `number` of `count` of the lines of a file."""

    @classmethod
    def from_option(cls, text: str | None) -> Shard | None:
        """Return the shard of --shard or of this torchrun process; None: all lines.

        Raises:
            UsageError: the option is invalid, or torchrun shards the lines already.
        """
        rank, world_size = torchrun.position()
        if text is None:
            return cls(rank + 1, world_size) if world_size > 1 else None
        if world_size > 1:
            raise UsageError("torchrun shards the text automatically", "leave out --shard")
        return cls.parse(text)

    def line_range(self, num_lines: int) -> tuple[int, int]:
        """Return the first line (starting at 0) and the end (exclusive) of this shard of
        `num_lines` lines."""
        return (self.number - 1) * num_lines // self.count, self.number * num_lines // self.count

    def path(self, output: Path) -> Path:
        """Return the path of this shard's output."""
        return output.with_name(f"{output.name}.{self.number}-of-{self.count}")

    def finish(self, output: Path) -> None:
        """Mark this shard as complete, and join all shards if it was the last one."""
        path = self.path(output)
        sync(path)
        path.rename(_done(path))
        self.join(output)

    def join(self, output: Path) -> None:
        """Join the shards into `output` if all are complete."""
        shards = [Shard(number, self.count) for number in range(1, self.count + 1)]
        lock = output.with_name(f".{output.name}.lock")
        with locked(lock, busy=lambda: None):
            if all(shard.is_done(output) for shard in shards):
                paths = [_done(shard.path(output)) for shard in shards]
                joined = output.with_name(f".{output.name}.joined")
                with named_errors(output), joined.open("wb") as file:
                    for path in paths:
                        with path.open("rb") as shard:
                            shutil.copyfileobj(shard, file)
                sync(joined)
                joined.rename(output)
                for path in paths:
                    path.unlink()
            if not self.is_done(output):  # joined here or by another process
                # Windows cannot delete an open file; releasing the lock deletes it there.
                with suppress(OSError):
                    lock.unlink()

    def is_done(self, output: Path) -> bool:
        """Return whether an earlier process completed this shard."""
        return _done(self.path(output)).exists()


def _done(path: Path) -> Path:
    return path.with_name(f"{path.name}.done")
