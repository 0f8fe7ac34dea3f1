"""Learning rates against their formulas."""

from __future__ import annotations

import pytest
import torch

from nmt.config import ModelConfig, TrainConfig
from nmt.errors import ConfigError
from nmt.model import build
from nmt.optim import adam, schedule


@pytest.mark.parametrize(
    ("step", "rate"),
    [(1, 512**-0.5 * 4000**-1.5), (4000, 512**-0.5 * 4000**-0.5), (100_000, 512**-0.5 * 100_000**-0.5)],
)
def test_noam_is_the_papers_equation_3(step: int, rate: float) -> None:
    assert schedule("noam(warmup=4000)")(step, 100_000, 512) == pytest.approx(rate)


def test_the_papers_highest_rate() -> None:
    assert max(schedule("noam")(step, 0, 512) for step in range(1, 10_000, 7)) == pytest.approx(7e-4, rel=0.01)


@pytest.mark.parametrize(("step", "rate"), [(1, 1e-5), (50, 5e-4), (100, 1e-3), (400, 5e-4), (10_000, 1e-4)])
def test_inverse_square_root(step: int, rate: float) -> None:
    assert schedule("inverse_sqrt(peak=1e-3, warmup=100)")(step, 0, 512) == pytest.approx(rate)


@pytest.mark.parametrize(("step", "rate"), [(1, 1e-5), (100, 1e-3), (101, 1e-3), (551, 5e-4), (1000, 1e-3 / 900)])
def test_linear_comes_down_at_the_last_update(step: int, rate: float) -> None:
    assert schedule("linear(peak=1e-3, warmup=100)")(step, 1000, 512) == pytest.approx(rate)


def test_linear_is_never_negative_when_training_outlasts_its_estimate() -> None:
    rate = schedule("linear(peak=1e-3, warmup=100)")
    assert rate(1200, 1000, 512) == 0
    assert rate(3, 2, 512) >= 0  # a limit shorter than the warm-up


@pytest.mark.parametrize(("step", "rate"), [(1, 1e-5), (100, 1e-3), (550, 5e-4), (1000, 0.0), (1200, 0.0)])
def test_cosine(step: int, rate: float) -> None:
    assert schedule("cosine(peak=1e-3, warmup=100)")(step, 1000, 512) == pytest.approx(rate, abs=2e-6)


@pytest.mark.parametrize(("step", "rate"), [(1, 1e-5), (100, 1e-3), (10**9, 1e-3)])
def test_constant(step: int, rate: float) -> None:
    assert schedule("constant(peak=1e-3, warmup=100)")(step, 1000, 512) == pytest.approx(rate)


@pytest.mark.parametrize(
    ("step", "rate"), [(1, 1e-5), (100, 1e-3), (801, 1e-3), (901, 5e-4), (1000, 5e-6), (1200, 0.0)]
)
def test_warm_up_stay_decay(step: int, rate: float) -> None:
    assert schedule("wsd(peak=1e-3, warmup=100, decay=0.2)")(step, 1000, 512) == pytest.approx(rate)


def test_adam_has_the_papers_constants() -> None:
    model = build(ModelConfig(dim=8, heads=2, ff=8, encoder_layers=1, decoder_layers=1), 9)
    (group,) = adam(model, TrainConfig()).param_groups
    assert group["betas"] == (0.9, 0.98)
    assert group["eps"] == 1e-9
    assert group["weight_decay"] == 0
    assert len(group["params"]) == len(list(model.parameters()))


@pytest.mark.parametrize(
    "spec", ["noam(warmup=0)", "lineer", "linear(peek=1)", "wsd(decay=0.0)", "cosine(peak=-1.0)", "noam(warmup='x')"]
)
def test_mistakes_are_refused(spec: str) -> None:
    with pytest.raises(ConfigError):
        schedule(spec)


def test_one_adam_update_is_the_formula() -> None:
    model = build(ModelConfig(dim=8, heads=2, ff=8, encoder_layers=1, decoder_layers=1), 9)
    optimizer = adam(model, TrainConfig())
    parameter = model.output_weight_VD
    before, gradient = parameter.detach().clone(), torch.randn_like(parameter)
    parameter.grad = gradient.clone()
    optimizer.param_groups[0]["lr"] = 0.01
    optimizer.step()
    # The first bias-corrected moments are the gradient and its square.
    torch.testing.assert_close(parameter.detach(), before - 0.01 * gradient / (gradient.abs() + 1e-9))
