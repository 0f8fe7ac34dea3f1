"""Training with weights rounded to 8 bits."""

from __future__ import annotations

import copy

import pytest
import torch
from test_packed_update import SHAPE, build, make_updates, optimizer_of, random_pairs
from torch import Tensor

from nmt.core.config import TrainConfig
from nmt.data.batching import collate
from nmt.data.packing import pack
from nmt.export import firefox
from nmt.runs.quantization import dequantize, quantize
from nmt.training.rounding import STACKED, rounded_weights
from nmt.training.step import train_step


def firefox_weight(name: str, weight: Tensor) -> Tensor:
    """Return a matrix as it is after an export."""
    count = next((count for end, count in STACKED.items() if name.endswith(end)), 1)
    parts = [firefox._quantize(part.numpy()).dequantize() for part in weight.chunk(count)]
    return torch.cat([torch.from_numpy(part) for part in parts])


def test_weights_are_those_of_the_exported_model() -> None:
    model = build()
    exact = copy.deepcopy(model.state_dict())
    arrays = dequantize(quantize({name: weight.numpy() for name, weight in exact.items()}))
    with rounded_weights(model, "int8"):
        for name, weight in model.state_dict().items():
            torch.testing.assert_close(weight, torch.from_numpy(arrays[name]))
    with rounded_weights(model, "firefox"):
        for name, weight in model.state_dict().items():
            expected = exact[name]
            if expected.dim() == 2:
                expected = firefox_weight(name, expected)
                assert not torch.equal(weight, exact[name])
            torch.testing.assert_close(weight, expected)
    for name, weight in model.state_dict().items():
        assert torch.equal(weight, exact[name])


@pytest.mark.parametrize("rounding", ["int8", "firefox"])
def test_the_gradient_at_rounded_weights_updates_the_exact_ones(rounding: str) -> None:
    options = TrainConfig(weight_rounding=rounding, clip_norm=0)
    batch = collate(random_pairs(1))
    rounded = build()
    with rounded_weights(rounded, rounding):
        weights = copy.deepcopy(rounded.state_dict())
    rounded.load_state_dict(weights)
    expected = train_step(
        rounded, [batch], optimizer_of(rounded, "adamw", options), TrainConfig(clip_norm=0)
    ).read()

    model = build()
    exact = copy.deepcopy(model.state_dict())
    optimizer = optimizer_of(model, "adamw", options)
    for group in optimizer.param_groups:
        group["lr"] = 0.001
    stats = train_step(model, [batch], optimizer, options).read()
    assert stats.loss == expected.loss
    for parameter, other in zip(model.parameters(), rounded.parameters(), strict=True):
        assert torch.equal(parameter.grad, other.grad)  # type: ignore[arg-type]
    changes = [
        (weight - exact[name]).abs().max().item() for name, weight in model.state_dict().items()
    ]
    assert 0 < max(changes) < 0.0011

    (packed,), _ = make_updates(build(), "adamw", options, [pack(random_pairs(1), SHAPE)])
    assert packed.loss == pytest.approx(expected.loss, rel=1e-6)
    assert packed.grad_norm == pytest.approx(expected.grad_norm, rel=1e-5)
