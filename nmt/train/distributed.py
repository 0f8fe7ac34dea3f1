"""The processes of one training: started by torchrun, or just this one.

Tensors are summed by NCCL between GPUs and by gloo between CPUs. What is decided (stop, validate, how many updates
fit) is decided by rank 0 and told to the others over gloo, so that no rank can be of another opinion.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from nmt.errors import TrainingError

T = TypeVar("T")
TIMEOUT = timedelta(days=1)
"""How long a rank waits for another, which may be validating; one that died is noticed at once."""


@dataclass(frozen=True)
class Group:
    """The ranks that train together; on its own, rank 0 of 1."""

    rank: int = 0
    world_size: int = 1
    control: dist.ProcessGroup | None = None
    """For objects, on the CPU; None where there is one rank."""

    @property
    def is_main(self) -> bool:
        """Whether this is the rank that validates, saves and decides."""
        return self.rank == 0

    def broadcast(self, decision: T) -> T:
        """Return rank 0's `decision` on every rank."""
        if self.world_size == 1:
            return decision
        box = [decision]
        dist.broadcast_object_list(box, src=0, group=self.control)
        return box[0]

    def barrier(self) -> None:
        """Wait until every rank is here."""
        self.broadcast(None)

    def all_gather(self, value: T) -> list[T]:
        """Return every rank's `value`, in order of rank."""
        values: list[T] = [value] * self.world_size
        if self.world_size > 1:
            dist.all_gather_object(values, value, group=self.control)
        return values

    def all_reduce_(self, tensors: Sequence[Tensor]) -> None:
        """Replace each tensor by its sum over the ranks, all in one message."""
        if self.world_size == 1 or not tensors:
            return
        flat = torch.cat([tensor.reshape(-1) for tensor in tensors])
        dist.all_reduce(flat)
        parts = torch.split(flat, [tensor.numel() for tensor in tensors])
        torch._foreach_copy_(list(tensors), [part.view_as(tensor) for part, tensor in zip(parts, tensors, strict=True)])


@contextmanager
def init_process_group(device: torch.device) -> Iterator[Group]:
    """Join the other processes that torchrun started, if it did.

    Raises:
        TrainingError: another rank ended, whose own message says why.
    """
    world = int(os.environ.get("WORLD_SIZE", "1"))
    if world == 1:
        yield Group()
        return
    if device.type == "cuda":
        torch.cuda.set_device(device)
    backend = "nccl" if device.type == "cuda" else "gloo"
    try:
        dist.init_process_group(backend, timeout=TIMEOUT)
        yield Group(dist.get_rank(), world, dist.new_group(backend="gloo", timeout=TIMEOUT))
    except RuntimeError as error:  # what torch raises when a connection breaks has no class of its own
        if not _lost(error):
            raise
        raise TrainingError(
            "another process of this training has ended", "its message says why; --resume goes on"
        ) from None
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()


def _lost(error: RuntimeError) -> bool:
    text = str(error).lower()
    return isinstance(error, dist.DistError) or any(word in text for word in ("connection", "peer", "gloo", "nccl"))
