"""The environment variables with which torchrun tells a process its place among the others."""

from __future__ import annotations

import os

from nmt.core.errors import UsageError


def is_distributed() -> bool:
    """Return whether torchrun started several processes."""
    return world_size() != "1"


def world_size() -> str:
    """Return the number of processes."""
    return _variable("WORLD_SIZE", "1")


def rank() -> str:
    """Return the rank of this process; empty without torchrun."""
    return _variable("RANK", "")


def local_rank() -> int:
    """Return the rank of this process on its machine, which selects its GPU."""
    return int(_variable("LOCAL_RANK", "0"))


def local_world_size() -> int:
    """Return the number of processes on this machine."""
    return int(_variable("LOCAL_WORLD_SIZE", "1"))


def position() -> tuple[int, int]:
    """Return the rank and the number of processes, by default 0 of 1.

    Raises:
        UsageError: the environment variables are not those of torchrun.
    """
    if not is_distributed():
        return 0, 1
    count = world_size()
    if not (count.isdecimal() and rank().isdecimal() and int(rank()) < int(count)):
        raise not_started_error()
    return int(rank()), int(count)


def not_started_error() -> UsageError:
    """Return the error for variables of torchrun in a process that it did not start."""
    return UsageError(
        f"WORLD_SIZE is {world_size()}, but torchrun did not start this process",
        "start it with torchrun, or unset WORLD_SIZE",
    )


def _variable(name: str, default: str) -> str:
    return os.environ.get(name) or default
