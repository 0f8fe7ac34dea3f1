"""Learning-rate schedules and Adam equal their formulas."""

from __future__ import annotations

import math

import pytest
import torch

from nmt.core.config import ModelConfig, TrainConfig
from nmt.core.errors import ConfigError
from nmt.model.build import build_model
from nmt.training.adamw import AdamW
from nmt.training.optim import adamw, parse_schedule

TOTAL, DIM = 1000, 512
CLOSED_FORMS: list[tuple[str, dict[int, float]]] = [
    (
        "noam(warmup=400)",
        {
            1: DIM**-0.5 * 400**-1.5,
            400: (DIM * 400) ** -0.5,
            401: (DIM * 401) ** -0.5,
            1000: (DIM * 1000) ** -0.5,
        },
    ),
    ("noam(warmup=400, factor=2.0)", {400: 2 * (DIM * 400) ** -0.5}),
    (
        "inverse_sqrt(peak=1e-3, warmup=100)",
        {
            1: 1e-5,
            50: 5e-4,
            100: 1e-3,
            101: 1e-3 * math.sqrt(100 / 101),
            400: 5e-4,
            1000: 1e-3 / math.sqrt(10),
        },
    ),
    (
        "linear(peak=1e-3, warmup=100)",
        {
            1: 1e-5,
            100: 1e-3,
            101: 1e-3,
            102: 1e-3 * 899 / 900,
            551: 5e-4,
            1000: 1e-3 / 900,
            1001: 0,
            1200: 0,
        },
    ),
    (
        "cosine(peak=1e-3, warmup=100)",
        {
            1: 1e-5,
            100: 1e-3,
            101: 5e-4 * (1 + math.cos(math.pi / 901)),
            550: 5e-4 * (1 + math.cos(math.pi * 450 / 901)),
            1000: 5e-4 * (1 + math.cos(math.pi * 900 / 901)),
            1001: 0,
            1200: 0,
        },
    ),
    ("constant(peak=1e-3, warmup=100)", {1: 1e-5, 99: 9.9e-4, 100: 1e-3, 1000: 1e-3, 10**9: 1e-3}),
    (
        "wsd(peak=1e-3, warmup=100, decay=0.2)",
        {
            1: 1e-5,
            100: 1e-3,
            801: 1e-3,
            802: 1e-3 * 199 / 200,
            901: 5e-4,
            1000: 5e-6,
            1001: 0,
            1200: 0,
        },
    ),
]


@pytest.mark.parametrize(("spec", "rates"), CLOSED_FORMS, ids=[spec for spec, _ in CLOSED_FORMS])
def test_schedules_equal_their_closed_forms(spec: str, rates: dict[int, float]) -> None:
    """Schedules that decay to zero are positive at the last update, `TOTAL`, and zero one step
    later."""
    learning_rates = {step: parse_schedule(spec)(step, TOTAL, DIM) for step in rates}
    assert learning_rates == pytest.approx(rates, rel=1e-6, abs=1e-15)


def test_maximum_of_noam_equals_the_paper() -> None:
    assert max(
        parse_schedule("noam")(step, 0, 512) for step in range(1, 10_000, 7)
    ) == pytest.approx(7e-4, rel=0.01)


@pytest.mark.parametrize("name", ["linear", "cosine", "wsd"])
def test_training_shorter_than_the_warmup_has_positive_rates(name: str) -> None:
    rates = [parse_schedule(f"{name}(peak=1e-3, warmup=100)")(step, 2, DIM) for step in (1, 2)]
    assert rates == pytest.approx([1e-5, 2e-5])


def test_adam_uses_the_constants_of_the_paper() -> None:
    model = build_model(
        ModelConfig(dim=8, heads=2, ffn_dim=8, encoder_layers=1, decoder_layers=1), 9
    )
    optimizer = adamw(model, TrainConfig())
    assert (optimizer.beta1, optimizer.beta2) == (0.9, 0.98)
    assert optimizer.eps == 1e-9
    assert optimizer.weight_decay == 0
    (group,) = optimizer.param_groups
    assert len(group["params"]) == len(list(model.parameters()))


@pytest.mark.parametrize(
    "spec",
    [
        "noam(warmup=0)",
        "lineer",
        "linear(peek=1)",
        "wsd(decay=0.0)",
        "cosine(peak=-1.0)",
        "noam(warmup='x')",
    ],
)
def test_invalid_schedules_raise(spec: str) -> None:
    with pytest.raises(ConfigError):
        parse_schedule(spec)


def test_adam_update_equals_the_formula() -> None:
    model = build_model(
        ModelConfig(dim=8, heads=2, ffn_dim=8, encoder_layers=1, decoder_layers=1), 9
    )
    optimizer = adamw(model, TrainConfig())
    parameter = model.output_weight_VD
    before, gradient = parameter.detach().clone(), torch.randn_like(parameter)
    parameter.grad = gradient.clone()
    optimizer.param_groups[0]["lr"] = 0.01
    optimizer.step()
    # The first bias-corrected moments are the gradient and its square.
    torch.testing.assert_close(
        parameter.detach(), before - 0.01 * gradient / (gradient.abs() + 1e-9)
    )


def test_adam_is_bitwise_equal_to_pytorch() -> None:
    """With weight decay, a parameter that has no gradient at first, and an update that is
    skipped."""
    weights, copies = ([torch.ones(3, 5), torch.zeros(7)] for _ in range(2))
    options = {"beta1": 0.9, "beta2": 0.98, "eps": 1e-9, "weight_decay": 0.1}
    optimizer = AdamW(weights, **options)
    reference = torch.optim.AdamW(copies, betas=(0.9, 0.98), eps=1e-9, weight_decay=0.1, fused=True)
    for number in range(4):
        for index, (weight, other) in enumerate(zip(weights, copies, strict=True)):
            weight.grad = other.grad = torch.randn_like(weight) if index <= number else None
        for each in (optimizer, reference):
            each.param_groups[0]["lr"] = 0.1 / (number + 1)
            each.found_inf = torch.tensor(float(number == 2))
            each.step()
        for weight, other in zip(weights, copies, strict=True):
            assert torch.equal(weight, other)
            state = reference.state[other]
            assert all(
                torch.equal(tensor, state[key]) for key, tensor in optimizer.state[weight].items()
            )
