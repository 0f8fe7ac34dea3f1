"""The chunked cross-entropy equals its formula and `torch.nn.functional.cross_entropy`."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F  # noqa: N812

from nmt.train import loss as loss_module
from nmt.train.loss import cross_entropy

N, D, V = 37, 8, 11


@pytest.fixture(params=[5, 37, 1024])
def chunk(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(loss_module, "CHUNK", request.param)
    return int(request.param)


def tensors() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    hidden_ND, weight_VD = torch.randn(N, D, requires_grad=True), torch.randn(V, D, requires_grad=True)
    return hidden_ND, weight_VD, torch.randint(V, (N,))


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.4])
def test_loss_equals_the_formula(chunk: int, smoothing: float) -> None:
    hidden_ND, weight_VD, labels_N = tensors()
    log_p_NV = (hidden_ND @ weight_VD.t()).log_softmax(-1)
    q_NV = torch.full((N, V), smoothing / V)
    q_NV[torch.arange(N), labels_N] += 1 - smoothing
    expected = -(q_NV * log_p_NV).sum()
    torch.testing.assert_close(cross_entropy(hidden_ND, weight_VD, labels_N, smoothing=smoothing), expected)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_gradients_equal_those_of_pytorch(chunk: int, smoothing: float) -> None:
    hidden_ND, weight_VD, labels_N = tensors()
    (cross_entropy(hidden_ND, weight_VD, labels_N, smoothing=smoothing) / 3).backward()
    expected_hidden_ND, expected_weight_VD, _ = (t.detach().clone() for t in (hidden_ND, weight_VD, labels_N))
    expected_hidden_ND.requires_grad_()
    expected_weight_VD.requires_grad_()
    logits_NV = expected_hidden_ND @ expected_weight_VD.t()
    (F.cross_entropy(logits_NV, labels_N, label_smoothing=smoothing, reduction="sum") / 3).backward()
    torch.testing.assert_close(hidden_ND.grad, expected_hidden_ND.grad)
    torch.testing.assert_close(weight_VD.grad, expected_weight_VD.grad)


def test_loss_without_gradients_is_equal() -> None:
    hidden_ND, weight_VD, labels_N = tensors()
    with torch.inference_mode():
        value = cross_entropy(hidden_ND, weight_VD, labels_N, smoothing=0.1)
        assert value.grad_fn is None
    torch.testing.assert_close(value, cross_entropy(hidden_ND, weight_VD, labels_N, smoothing=0.1).detach())


def test_large_logits_do_not_overflow() -> None:
    hidden_ND = torch.full((2, 1), 1e4, requires_grad=True)
    weight_VD = torch.tensor([[1.0], [-1.0], [0.0]])
    value = cross_entropy(hidden_ND, weight_VD, torch.tensor([0, 1]), smoothing=0.0)
    assert value.item() == pytest.approx(2e4)
    value.backward()
    assert hidden_ND.grad is not None
    assert hidden_ND.grad.isfinite().all()


def test_bf16_loss_is_close_to_float32() -> None:
    hidden_ND, weight_VD, labels_N = tensors()
    exact = cross_entropy(hidden_ND, weight_VD, labels_N, smoothing=0.1).item()
    rounded = cross_entropy(hidden_ND.bfloat16(), weight_VD, labels_N, smoothing=0.1)
    assert rounded.dtype == torch.float32
    assert rounded.item() == pytest.approx(exact, rel=0.02)
