"""Data-parallel training with torchrun, or in a single process.

NCCL sums tensors between GPUs, gloo between CPUs. Rank 0 decides when to validate and when training
ends; a stop signal on any rank stops all. Decisions are exchanged over gloo, so that the ranks
never disagree.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from nmt.core import torchrun
from nmt.core.errors import NMTError, TrainingError

T = TypeVar("T")
TIMEOUTS = {"gloo": timedelta(days=1), "nccl": timedelta(minutes=30)}
"""Maximum wait for another rank. With gloo, it may be validating, and its exit is detected
immediately. NCCL only sums gradients, and may not detect an exit."""


@dataclass(frozen=True)
class RankGroup:
    """The ranks that train together. The default is a single process: rank 0 of 1."""

    rank: int = 0
    world_size: int = 1
    object_group: dist.ProcessGroup | None = None
    """gloo group that communicates Python objects; None for a single process."""

    @property
    def is_main(self) -> bool:
        """Whether this is rank 0, which validates, saves and makes decisions."""
        return self.rank == 0

    def broadcast(self, value: T) -> T:
        """Return the `value` of rank 0 on every rank."""
        if self.world_size == 1:
            return value
        values = [value]
        dist.broadcast_object_list(values, src=0, group=self.object_group)
        return values[0]

    @contextmanager
    def on_main(self, context: AbstractContextManager[object]) -> Iterator[None]:
        """Enter a context on rank 0. If that raises an NMTError, the other ranks exit without a
        message."""
        error = None
        with ExitStack() as stack:
            try:
                if self.is_main:
                    stack.enter_context(context)
            except NMTError as caught:
                error = caught
            if error := self.broadcast(error):
                raise error if self.is_main else SystemExit(error.exit_code)
            yield

    def all_gather(self, value: T) -> list[T]:
        """Return the values of all ranks, in order of rank."""
        values: list[T] = [value] * self.world_size
        if self.world_size > 1:
            dist.all_gather_object(values, value, group=self.object_group)
        return values


def all_reduce(gradient_P: Tensor, loss: Tensor, dtype: torch.dtype) -> None:
    """Replace the gradients of all parameters, as one tensor, and the loss by their sums over the
    ranks; the gradients are exchanged in `dtype`."""
    sent_P = gradient_P.to(dtype)
    dist.all_reduce(sent_P)
    dist.all_reduce(loss)
    gradient_P.copy_(sent_P)


@contextmanager
def process_group(device: torch.device) -> Iterator[RankGroup]:
    """Join the process group of torchrun, if torchrun started this process.

    Raises:
        UsageError: WORLD_SIZE is set, but not the other variables of torchrun.
        TrainingError: the connection to another rank is lost.
    """
    _, world_size = torchrun.position()
    if world_size == 1:
        yield RankGroup()
        return
    is_complete = False
    backend, device_id = ("nccl", device) if device.type == "cuda" else ("gloo", None)
    try:
        dist.init_process_group(backend, timeout=TIMEOUTS[backend], device_id=device_id)
        object_group = dist.new_group(backend="gloo", timeout=TIMEOUTS["gloo"])
        yield RankGroup(dist.get_rank(), world_size, object_group)
        is_complete = True
    except ValueError as error:
        if dist.is_initialized():
            raise
        raise torchrun.not_started_error() from error
    except RuntimeError as error:
        if not _is_connection_error(error):
            raise
        reason = (str(error).strip() or type(error).__name__).splitlines()[-1]
        # Without gloo's place in its source, and its advice.
        reason = re.sub(r"^\[.*?\] ", "", reason).split(". ")[0]
        raise TrainingError(
            f"another process of this training run has exited, or cannot be reached: {reason}",
            "see its error message; continue with --resume",
        ) from None
    finally:
        # NCCL would wait here for the other ranks, which do not come after an error; the end of the
        # process suffices.
        if dist.is_initialized() and (is_complete or backend == "gloo"):
            dist.destroy_process_group()


def _is_connection_error(error: RuntimeError) -> bool:
    """Return whether the connection to another rank is lost, for which PyTorch has no exception
    class."""
    message = str(error).lower()
    return isinstance(error, dist.DistError) or any(
        word in message for word in ("connection", "peer", "gloo", "nccl")
    )
