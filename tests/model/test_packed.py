"""Packed batches have the loss and the gradients of padded ones."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from test_model import PADDED, TINY, VARIANTS, VOCABULARY
from torch import Tensor

from nmt.data.batching import Batch, collate
from nmt.data.packing import PackedBatch, PackShape, pack
from nmt.model import segment_attention
from nmt.model.build import build_model
from nmt.model.segment_attention import Segments
from nmt.model.seq2seq import Seq2Seq
from nmt.model.transformer import DecoderLayer, EncoderLayer, LayerFunctions, Transformer
from nmt.training.step import batch_loss, packed_loss

MAX_LENGTH = 16
Pair = tuple[list[int], list[int]]


def random_pairs(count: int, seed: int = 3) -> list[Pair]:
    rng = random.Random(seed)

    def ids() -> list[int]:
        return [rng.randrange(4, VOCABULARY) for _ in range(rng.randint(1, MAX_LENGTH - 1))]

    return [(ids(), ids()) for _ in range(count)]


def shape_for(pairs: int) -> PackShape:
    slots = MAX_LENGTH * pairs
    return PackShape(slots, slots + 5, pairs + 80, MAX_LENGTH)


def build(variant: str, **options: Any) -> Seq2Seq:
    torch.manual_seed(0)
    config = dataclasses.replace(TINY, **{"dropout": 0.0} | VARIANTS[variant] | options)
    return build_model(config, VOCABULARY).train()


PACKABLE = [name for name in VARIANTS if name not in PADDED]


def loss_and_gradients(
    model: Seq2Seq, batch: Batch | PackedBatch, **options: Any
) -> tuple[float, dict[str, Tensor]]:
    model.zero_grad()
    if isinstance(batch, PackedBatch):
        assert isinstance(model, Transformer)
        loss = packed_loss(model, batch, smoothing=0.1, **options)
    else:
        loss = batch_loss(model, batch, smoothing=0.1)
    loss.backward()
    gradients = {name: parameter.grad for name, parameter in model.named_parameters()}
    return loss.item(), {name: g.clone() for name, g in gradients.items() if g is not None}


def test_the_variants_that_can_be_packed() -> None:
    assert {name for name in VARIANTS if not build(name).supports_packing} == PADDED
    assert not build("pre", attention_dropout=0.1).supports_packing


@pytest.mark.parametrize("variant", PACKABLE)
def test_packed_equals_padded(variant: str) -> None:
    model = build(variant, output_bias=True)
    pairs = random_pairs(12)
    expected_loss, expected = loss_and_gradients(model, collate(pairs))
    loss, actual = loss_and_gradients(model, pack(pairs, shape_for(12)))
    assert loss == pytest.approx(expected_loss, rel=1e-6)
    assert actual.keys() == expected.keys()
    for name, gradient in actual.items():
        if "kv.bias" in name or "qkv.bias" in name:  # those of keys are zero but for rounding
            assert torch.allclose(gradient, expected[name], atol=1e-4), name
            continue
        error = (gradient - expected[name]).norm() / expected[name].norm()
        assert error <= 5e-6, name


def test_the_content_of_padding_changes_nothing() -> None:
    model = build("pre")
    pairs = random_pairs(5)
    batch = pack(pairs, shape_for(9))
    noise_S = torch.randint_like(batch.src_S, 4, VOCABULARY)
    noise_T = torch.randint_like(batch.tgt_in_T, 4, VOCABULARY)
    is_source = torch.arange(len(batch.src_S)) < sum(len(source) + 1 for source, _ in pairs)
    is_target = batch.label_weight_T > 0
    other = dataclasses.replace(
        batch,
        src_S=batch.src_S.where(is_source, noise_S),
        tgt_in_T=batch.tgt_in_T.where(is_target, noise_T),
        labels_T=batch.labels_T.where(is_target, noise_T),
    )
    expected_loss, expected = loss_and_gradients(model, batch)
    loss, actual = loss_and_gradients(model, other)
    assert loss == expected_loss
    for name, gradient in actual.items():
        assert torch.equal(gradient, expected[name]), name


def attend_to_each(q: Tensor, k: Tensor, v: Tensor, segments: Segments) -> Tensor:
    """Compute attention segment by segment."""
    outputs = []
    queries = zip(segments.query_bounds_E[:-1], segments.query_bounds_E[1:], strict=True)
    keys = zip(segments.key_bounds_E[:-1], segments.key_bounds_E[1:], strict=True)
    for (first, end), (first_key, end_key) in zip(queries, keys, strict=True):
        if first == end:
            continue
        scores = torch.einsum("qhk,shk->hqs", q[0, first:end], k[0, first_key:end_key])
        scores = scores * q.shape[-1] ** -0.5
        if segments.causal:
            scores = scores.masked_fill(~torch.ones_like(scores).bool().tril(), -torch.inf)
        outputs.append(torch.einsum("hqs,shk->qhk", scores.softmax(-1), v[0, first_key:end_key]))
    return torch.cat(outputs)[None]


def bounds(*ends: int) -> Tensor:
    return torch.tensor([0, *ends], dtype=torch.int32)


@pytest.mark.parametrize("causal", [False, True])
def test_segment_attention_and_its_gradients_are_those_of_each_segment(causal: bool) -> None:
    torch.manual_seed(0)
    segments = Segments(bounds(3, 4, 9, 9), bounds(3, 4, 9, 9), 6, causal)
    qkv = torch.randn(1, 9, 3, 2, 4, dtype=torch.double, requires_grad=True)
    check(lambda: segment_attention.self_attention(qkv, segments),
          lambda: attend_to_each(*qkv.unbind(2), segments), [qkv])  # fmt: skip
    if causal:
        return
    segments = Segments(bounds(3, 4, 9, 9), bounds(2, 7, 8, 8), 6)
    q = torch.randn(1, 9, 2, 4, dtype=torch.double, requires_grad=True)
    k, v = (torch.randn(1, 8, 2, 4, dtype=torch.double, requires_grad=True) for _ in "kv")
    check(lambda: segment_attention.cross_attention(q, k, v, segments),
          lambda: attend_to_each(q, k, v, segments), [q, k, v])  # fmt: skip


def check(
    actual: Callable[[], Tensor], expected: Callable[[], Tensor], inputs: list[Tensor]
) -> None:
    torch.testing.assert_close(actual(), expected())
    grad = torch.randn_like(expected())
    for one, other in zip(
        torch.autograd.grad(actual(), inputs, grad),
        torch.autograd.grad(expected(), inputs, grad),
        strict=True,
    ):
        torch.testing.assert_close(one, other)


def test_operators_tell_the_compiler_their_shapes() -> None:
    q, k, v = (torch.randn(1, 9, 2, 4) for _ in range(3))
    arguments = (bounds(3, 4, 9), bounds(3, 4, 9), 6, True)
    checks = ("test_schema", "test_faketensor")
    torch.library.opcheck(
        torch.ops.nmt.segment_attention.default, (q, k, v, *arguments), test_utils=checks
    )
    out, lse = torch.ops.nmt.segment_attention(q, k, v, *arguments)
    backward = torch.ops.nmt.segment_attention_backward.default
    torch.library.opcheck(backward, (out, q, k, v, out, lse, *arguments), test_utils=checks)
    qkv = torch.stack((q, k, v), 2)
    self_backward = torch.ops.nmt.segment_self_attention_backward.default
    torch.library.opcheck(self_backward, (out, qkv, out, lse, *arguments[1:]), test_utils=checks)


@pytest.mark.slow
@pytest.mark.parametrize("variant", ["pre", "rotary", "swiglu"])
def test_layers_compile_into_two_graphs_for_all_batches(variant: str) -> None:
    """One for the layers of the encoder and one for those of the decoder, without graph breaks."""
    torch._dynamo.reset()
    num_graphs = 0

    def count(graph: torch.fx.GraphModule, inputs: Any) -> Any:
        nonlocal num_graphs
        num_graphs += 1
        return graph.forward

    compiled = LayerFunctions(
        *(
            torch.compile(layer.forward, dynamic=False, fullgraph=True, backend=count)
            for layer in (EncoderLayer, DecoderLayer)
        )
    )
    model = build(variant)
    for seed in (1, 2, 3):
        batch = pack(random_pairs(6, seed), shape_for(6))
        expected_loss, expected = loss_and_gradients(model, batch)
        loss, actual = loss_and_gradients(model, batch, layers=compiled)
        assert loss == pytest.approx(expected_loss, rel=1e-6)
        for name, gradient in actual.items():
            torch.testing.assert_close(gradient, expected[name], rtol=1e-4, atol=1e-5)
    assert num_graphs == 2
