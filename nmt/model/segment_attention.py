"""Attention within segments: sentences side by side, without padding, each of which attends to
itself or to the segment of the same index of another sequence.

PyTorch's memory-efficient kernels (Rabe and Staats 2021) take the boundaries of segments. Here they
are operators of their own, `nmt::segment_attention` and its gradient, so that the compiler sees one
opaque step, and that a CPU can compute the same, for tests.

Shape suffixes: N queries, M keys, H heads, K head dimension, E boundaries of segments, B segments,
Q longest segment of queries, S longest segment of keys.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

LSE_ALIGNMENT = 32
"""The kernels write the log-sum-exp of each segment's rows into a multiple of this."""

_aten = torch.ops.aten
_library = torch.library.Library("nmt", "DEF")
_BOUNDS = "Tensor query_bounds, Tensor key_bounds, int max_length, bool causal"
_library.define(f"segment_attention(Tensor q, Tensor k, Tensor v, {_BOUNDS}) -> (Tensor, Tensor)")
_library.define(
    "segment_attention_backward(Tensor grad, Tensor q, Tensor k, Tensor v, Tensor out, Tensor lse,"
    f" {_BOUNDS}) -> (Tensor, Tensor, Tensor)"
)
_library.define(
    "segment_self_attention_backward(Tensor grad, Tensor qkv, Tensor out, Tensor lse,"
    " Tensor bounds, int max_length, bool causal) -> Tensor"
)


class Segments(NamedTuple):
    """Which keys each query attends to: those of its segment, and with `causal` not the later
    ones."""

    query_bounds_E: Tensor
    """Where the segments of queries begin and end, in int32; no segment is empty, unless it has
    neither queries nor keys."""
    key_bounds_E: Tensor
    max_length: int
    """At least the length of the longest segment."""
    causal: bool = False


def self_attention(qkv_1N3HK: Tensor, segments: Segments) -> Tensor:
    """Return the attention of a sequence to itself, [1, N, H, K].

    Queries, keys and values are one tensor, because so is their gradient: it needs no
    concatenation.
    """
    context: Tensor = _SelfAttention.apply(  # type: ignore[no-untyped-call]
        qkv_1N3HK, segments.query_bounds_E, segments.max_length, segments.causal
    )
    return context


def cross_attention(q_1NHK: Tensor, k_1MHK: Tensor, v_1MHK: Tensor, segments: Segments) -> Tensor:
    """Return the attention of queries to another sequence, [1, N, H, K]."""
    context: Tensor = _CrossAttention.apply(q_1NHK, k_1MHK, v_1MHK, *segments)  # type: ignore[no-untyped-call]
    return context


class _SelfAttention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, qkv_1N3HK: Tensor, bounds_E: Tensor, max_length: int, causal: bool
    ) -> Tensor:
        q, k, v = qkv_1N3HK.unbind(2)
        out, lse = torch.ops.nmt.segment_attention(q, k, v, bounds_E, bounds_E, max_length, causal)
        ctx.save_for_backward(qkv_1N3HK, out, lse, bounds_E)
        ctx.options = max_length, causal
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        backward = torch.ops.nmt.segment_self_attention_backward
        return backward(grad.contiguous(), *ctx.saved_tensors, *ctx.options), None, None, None


class _CrossAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, *segments: Any) -> Tensor:
        query_bounds, key_bounds, *options = segments
        out, lse = torch.ops.nmt.segment_attention(q, k, v, query_bounds, key_bounds, *options)
        ctx.save_for_backward(q, k, v, out, lse, query_bounds, key_bounds)
        ctx.options = options
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        backward = torch.ops.nmt.segment_attention_backward
        grads = backward(grad.contiguous(), *ctx.saved_tensors, *ctx.options)
        return *grads, None, None, None, None


def _lse(q_1NHK: Tensor, bounds_E: Tensor, max_length: int) -> Tensor:
    """Return an empty tensor with the shape of the kernels' log-sum-exp."""
    rows = -(-max_length // LSE_ALIGNMENT) * LSE_ALIGNMENT
    num_segments = bounds_E.shape[0] - 1
    return q_1NHK.new_empty(num_segments, q_1NHK.shape[2], rows, dtype=torch.float32)


# The kernels of a GPU.


def _forward_cuda(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    query_bounds: Tensor,
    key_bounds: Tensor,
    max_length: int,
    causal: bool,
) -> tuple[Tensor, Tensor]:
    out, lse, *_ = _aten._efficient_attention_forward(
        q, k, v, None, query_bounds, key_bounds, max_length, max_length, 0.0, int(causal), True
    )
    return out, lse


def _gradients_cuda(
    grad: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    lse: Tensor,
    query_bounds: Tensor,
    key_bounds: Tensor,
    max_length: int,
    causal: bool,
    *,
    shared: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of q, k and v; `shared`: as slices of one tensor [1, N, 3, H, K].

    With more than one split of the keys, the kernel would zero hundreds of megabytes of workspace,
    and add in any order.
    """
    seed = torch.zeros((), dtype=torch.int64, device=q.device)  # of dropout, which is off
    dq, dk, dv, _ = _aten._efficient_attention_backward(
        grad,
        q,
        k,
        v,
        None,
        out,
        query_bounds,
        key_bounds,
        max_length,
        max_length,
        lse,
        0.0,
        seed,
        seed,
        int(causal),
        False,
        num_splits_key=1,
        shared_storage_dqdkdv=shared,
    )
    return dq, dk, dv


def _backward_cuda(*arguments: Any) -> tuple[Tensor, Tensor, Tensor]:
    return _gradients_cuda(*arguments, shared=False)


def _self_backward_cuda(
    grad: Tensor,
    qkv: Tensor,
    out: Tensor,
    lse: Tensor,
    bounds: Tensor,
    max_length: int,
    causal: bool,
) -> Tensor:
    q, k, v = qkv.unbind(2)
    dq, *_ = _gradients_cuda(
        grad, q, k, v, out, lse, bounds, bounds, max_length, causal, shared=True
    )
    # The tensor whose first slice is the gradient of the queries.
    slots, heads, head_dim = qkv.shape[1], *qkv.shape[3:]
    row = 3 * heads * head_dim
    strides = slots * row, row, heads * head_dim, head_dim, 1
    return dq.as_strided(qkv.shape, strides, dq.storage_offset())


# The same by matrix products of padded segments.


class _Rows(NamedTuple):
    """The rows of a packed sequence that belong to each segment."""

    index_BX: Tensor
    is_row_BX: Tensor

    def pad(self, x_1NHK: Tensor) -> Tensor:
        """Return padded segments, [B, H, X, K]."""
        return x_1NHK[0][self.index_BX].transpose(1, 2)

    def join(self, x_BHXK: Tensor) -> Tensor:
        """Return segments side by side, [1, N, H, K]."""
        return x_BHXK.transpose(1, 2)[self.is_row_BX][None].contiguous()


def _rows(bounds_E: Tensor) -> _Rows:
    lengths_B = bounds_E.diff().long()
    index_X = torch.arange(int(lengths_B.max()), device=bounds_E.device)
    is_row_BX = index_X < lengths_B[:, None]
    index_BX = bounds_E[:-1, None].long() + index_X
    return _Rows(index_BX.where(is_row_BX, 0), is_row_BX)


def _weights(q: Tensor, k: Tensor, queries: _Rows, keys: _Rows, causal: bool) -> Tensor:
    """Return the attention weights, [B, H, Q, S]; zero in padding."""
    scaled_BHQK = queries.pad(q) * q.shape[-1] ** -0.5
    scores_BHQS = scaled_BHQK @ keys.pad(k).mT
    allowed = keys.is_row_BX[:, None, None, :] & queries.is_row_BX[:, None, :, None]
    if causal:
        allowed = allowed & torch.ones_like(scores_BHQS[0, 0], dtype=torch.bool).tril()
    scores_BHQS = scores_BHQS.masked_fill(~allowed, torch.finfo(scores_BHQS.dtype).min)
    return scores_BHQS.softmax(-1).masked_fill(~allowed, 0.0)


def _forward_cpu(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    query_bounds: Tensor,
    key_bounds: Tensor,
    max_length: int,
    causal: bool,
) -> tuple[Tensor, Tensor]:
    queries = _rows(query_bounds)
    keys = _rows(key_bounds)
    context_BHQK = _weights(q, k, queries, keys, causal) @ keys.pad(v)
    return queries.join(context_BHQK), _lse(q, query_bounds, max_length)


def _backward_cpu(
    grad: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    lse: Tensor,
    query_bounds: Tensor,
    key_bounds: Tensor,
    max_length: int,
    causal: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    queries = _rows(query_bounds)
    keys = _rows(key_bounds)
    weights_BHQS = _weights(q, k, queries, keys, causal)
    grad_BHQK = queries.pad(grad)
    dweights_BHQS = grad_BHQK @ keys.pad(v).mT
    # The gradient of a softmax.
    mean_BHQ1 = (weights_BHQS * dweights_BHQS).sum(-1, keepdim=True)
    dscores_BHQS = weights_BHQS * (dweights_BHQS - mean_BHQ1) * q.shape[-1] ** -0.5
    dq = queries.join(dscores_BHQS @ keys.pad(k))
    dk = keys.join(dscores_BHQS.mT @ queries.pad(q))
    dv = keys.join(weights_BHQS.mT @ grad_BHQK)
    return dq, dk, dv


def _self_backward_cpu(
    grad: Tensor,
    qkv: Tensor,
    out: Tensor,
    lse: Tensor,
    bounds: Tensor,
    max_length: int,
    causal: bool,
) -> Tensor:
    q, k, v = qkv.unbind(2)
    grads = _backward_cpu(grad, q, k, v, out, lse, bounds, bounds, max_length, causal)
    return torch.stack(grads, 2)


# What the compiler knows: shapes and types.


def _forward_meta(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    query_bounds: Tensor,
    key_bounds: Tensor,
    max_length: int,
    causal: bool,
) -> tuple[Tensor, Tensor]:
    return q.new_empty(q.shape), _lse(q, query_bounds, max_length)


def _backward_meta(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, *rest: Any
) -> tuple[Tensor, Tensor, Tensor]:
    return q.new_empty(q.shape), k.new_empty(k.shape), v.new_empty(v.shape)


def _self_backward_meta(grad: Tensor, qkv: Tensor, *rest: Any) -> Tensor:
    return qkv.new_empty(qkv.shape)


_IMPLEMENTATIONS = {
    "segment_attention": (_forward_cuda, _forward_cpu, _forward_meta),
    "segment_attention_backward": (_backward_cuda, _backward_cpu, _backward_meta),
    "segment_self_attention_backward": (
        _self_backward_cuda,
        _self_backward_cpu,
        _self_backward_meta,
    ),
}
for _name, (_cuda, _cpu, _meta) in _IMPLEMENTATIONS.items():
    _library.impl(_name, _cuda, "CUDA")
    _library.impl(_name, _cpu, "CPU")
    _library.impl(_name, _meta, "Meta")
