"""The chunked cross-entropy equals its formula and `torch.nn.functional.cross_entropy`."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F  # noqa: N812

from nmt.training import loss as loss_module
from nmt.training.loss import (
    LogitsLoss,
    compiled_logits_loss,
    cross_entropy,
    fused_logits_loss,
    logits_loss,
)

N, D, V = 37, 8, 11


@pytest.fixture(params=[5, 37, 1024])
def chunk(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(loss_module, "CHUNK", request.param)
    return int(request.param)


@pytest.fixture(params=[logits_loss, compiled_logits_loss])
def function(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> LogitsLoss:
    """Both functions; `test_compilation.py` compiles the second one."""
    monkeypatch.setattr(loss_module, "compiled_loss", lambda **_: fused_logits_loss)
    function: LogitsLoss = request.param
    return function


def tensors() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    hidden_ND, weight_VD = (
        torch.randn(N, D, requires_grad=True),
        torch.randn(V, D, requires_grad=True),
    )
    return hidden_ND, weight_VD, torch.randint(V, (N,))


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.4])
def test_loss_equals_the_formula(chunk: int, smoothing: float, function: LogitsLoss) -> None:
    hidden_ND, weight_VD, labels_N = tensors()
    log_p_NV = (hidden_ND @ weight_VD.t()).log_softmax(-1)
    q_NV = torch.full((N, V), smoothing / V)
    q_NV[torch.arange(N), labels_N] += 1 - smoothing
    expected = -(q_NV * log_p_NV).sum()
    loss = cross_entropy(hidden_ND, weight_VD, labels_N, smoothing=smoothing, logits_loss=function)
    torch.testing.assert_close(loss, expected)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("has_bias", [False, True])
def test_gradients_equal_those_of_pytorch(
    chunk: int, smoothing: float, has_bias: bool, function: LogitsLoss
) -> None:
    hidden_ND, weight_VD, labels_N = tensors()
    bias_V = torch.randn(V, requires_grad=True) if has_bias else None
    loss = cross_entropy(
        hidden_ND, weight_VD, labels_N, smoothing=smoothing, bias_V=bias_V, logits_loss=function
    )
    (loss / 3).backward()
    expected_hidden_ND, expected_weight_VD, _ = (
        t.detach().clone() for t in (hidden_ND, weight_VD, labels_N)
    )
    expected_bias_V = torch.zeros(V) if bias_V is None else bias_V.detach().clone()
    for tensor in (expected_hidden_ND, expected_weight_VD, expected_bias_V):
        tensor.requires_grad_()
    logits_NV = expected_hidden_ND @ expected_weight_VD.t() + expected_bias_V
    (
        F.cross_entropy(logits_NV, labels_N, label_smoothing=smoothing, reduction="sum") / 3
    ).backward()
    torch.testing.assert_close(hidden_ND.grad, expected_hidden_ND.grad)
    torch.testing.assert_close(weight_VD.grad, expected_weight_VD.grad)
    if bias_V is not None:
        torch.testing.assert_close(bias_V.grad, expected_bias_V.grad)


def test_loss_without_gradients_is_equal(function: LogitsLoss) -> None:
    hidden_ND, weight_VD, labels_N = tensors()
    with torch.inference_mode():
        value = cross_entropy(hidden_ND, weight_VD, labels_N, smoothing=0.1, logits_loss=function)
        assert value.grad_fn is None
    torch.testing.assert_close(
        value, cross_entropy(hidden_ND, weight_VD, labels_N, smoothing=0.1).detach()
    )


def test_large_logits_do_not_overflow(function: LogitsLoss) -> None:
    hidden_ND = torch.full((2, 1), 1e4, requires_grad=True)
    weight_VD = torch.tensor([[1.0], [-1.0], [0.0]])
    value = cross_entropy(
        hidden_ND, weight_VD, torch.tensor([0, 1]), smoothing=0.0, logits_loss=function
    )
    assert value.item() == pytest.approx(2e4)
    value.backward()
    assert hidden_ND.grad.isfinite().all()


def test_bf16_loss_is_close_to_float32(function: LogitsLoss) -> None:
    hidden_ND, weight_VD, labels_N = tensors()
    exact = cross_entropy(hidden_ND, weight_VD, labels_N, smoothing=0.1).item()
    rounded = cross_entropy(
        hidden_ND.bfloat16(), weight_VD, labels_N, smoothing=0.1, logits_loss=function
    )
    assert rounded.dtype == torch.float32
    assert rounded.item() == pytest.approx(exact, rel=0.02)
