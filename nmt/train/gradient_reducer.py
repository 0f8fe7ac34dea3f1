"""All-reduce of gradients in buckets.

Every rank sums the same buckets in the same order: after the backward pass, or with
`train.overlap_all_reduce` each as soon as the backward pass of the last microbatch has computed it
and all earlier ones. A bucket is sent once per update: after an out-of-memory error, the update is
repeated, and the sums that are already under way are kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import torch
import torch.distributed as dist
from torch import Tensor

BUCKET_BYTES = 25 * 2**20
"""Minimum size of all buckets but the last: large enough for the bandwidth of the network."""


class GradientReducer:
    """Sums the gradients of the ranks."""

    def __init__(
        self,
        parameters: Sequence[Tensor],
        *,
        overlap: bool = False,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        """Divide the parameters into buckets, in about the order in which the backward pass
        finishes them.

        Args:
            parameters: those of the model, in the same order on every rank.
            overlap: send buckets during the backward pass of the last microbatch.
            dtype: dtype of the gradients that are sent.
        """
        self.buckets = _divide(parameters[::-1])
        self.overlap = overlap
        self.dtype = dtype
        self.sent: list[tuple[Tensor, dist.Work]] = []
        self._num_missing: list[int] | None = None
        """Number of gradients that each bucket waits for; None outside of `sending` and without
        overlap."""
        for index, bucket in enumerate(self.buckets):
            for parameter in bucket:
                parameter.register_post_accumulate_grad_hook(partial(self._on_gradient, index))

    @contextmanager
    def sending(self) -> Iterator[None]:
        """With overlap, send buckets as soon as they are complete: for the backward pass of the
        last microbatch."""
        self._num_missing = [len(bucket) for bucket in self.buckets] if self.overlap else None
        try:
            yield
        finally:
            self._num_missing = None

    def finish(self, loss: Tensor) -> None:
        """Send the remaining buckets, and replace all gradients and `loss` by their sums over the
        ranks."""
        for bucket in self.buckets[len(self.sent) :]:
            self._send(bucket)
        work = dist.all_reduce(loss, async_op=True)
        for bucket, (flat, bucket_work) in zip(self.buckets, self.sent, strict=True):
            bucket_work.wait()
            sums = flat.split([parameter.numel() for parameter in bucket])
            gradients = [gradient(parameter) for parameter in bucket]
            torch._foreach_copy_(
                gradients, [s.view_as(g) for s, g in zip(sums, gradients, strict=True)]
            )
        work.wait()
        self.sent.clear()

    def _on_gradient(self, index: int, parameter: Tensor) -> None:
        if self._num_missing is None:
            return
        self._num_missing[index] -= 1
        while len(self.sent) < len(self.buckets) and self._num_missing[len(self.sent)] == 0:
            self._send(self.buckets[len(self.sent)])

    def _send(self, bucket: Sequence[Tensor]) -> None:
        flat = torch.cat([gradient(parameter).reshape(-1) for parameter in bucket]).to(self.dtype)
        self.sent.append((flat, dist.all_reduce(flat, async_op=True)))


def gradient(parameter: Tensor) -> Tensor:
    """Return the gradient of a parameter; set it to zero if this rank has no batch."""
    if parameter.grad is None:
        parameter.grad = torch.zeros_like(parameter)
    return parameter.grad


def _divide(parameters: Sequence[Tensor]) -> list[list[Tensor]]:
    buckets: list[list[Tensor]] = []
    size = BUCKET_BYTES
    for parameter in parameters:
        if size >= BUCKET_BYTES:
            buckets.append([])
            size = 0
        buckets[-1].append(parameter)
        size += parameter.numel() * parameter.element_size()
    return buckets
