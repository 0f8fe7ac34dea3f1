"""Muon equals its formula, and training with it resumes exactly."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from test_train import check_resume, run
from tiny import config, losses, same_weights
from torch.amp.grad_scaler import GradScaler

from nmt.core.config import ModelConfig, TrainConfig
from nmt.core.errors import ConfigError, TrainingError, UsageError
from nmt.data.batching import collate
from nmt.model.build import build_model
from nmt.model.transformer import Transformer
from nmt.runs import checkpoint, run_report
from nmt.training.adamw import AdamW
from nmt.training.muon import Muon, orthogonalize
from nmt.training.optim import adamw, parse_optimizer
from nmt.training.step import train_step

SWIGLU = ModelConfig(
    dim=16, heads=4, kv_heads=2, ffn_dim=24, encoder_layers=2, decoder_layers=2, activation="swiglu"
)
FAST = ("train.optimizer=muon", "train.schedule=inverse_sqrt(peak=1e-2, warmup=4)")


def make(
    spec: str = "muon", options: TrainConfig | None = None, **changes: object
) -> tuple[Transformer, Muon]:
    torch.manual_seed(0)
    model = build_model(SWIGLU, 20)
    for name, value in changes.items():
        setattr(model, name, value)
    built = parse_optimizer(spec, "transformer")(model, options or TrainConfig())
    return model, built


def set_gradients(model: torch.nn.Module) -> None:
    for parameter in model.parameters():
        parameter.grad = torch.randn_like(parameter)


def set_rate(built: AdamW, lr: float) -> None:
    for group in built.param_groups:
        group["lr"] = lr


@pytest.mark.parametrize(
    ("steps", "low", "high"), [(4, 0.42, 1.57), (5, 0.84, 1.13), (6, 0.99, 1.01), (9, 0.999, 1.001)]
)
@pytest.mark.parametrize("shape", [(3, 20, 50), (1, 8, 8), (2, 1, 7)])
def test_orthogonalization_makes_singular_values_equal(
    steps: int, low: float, high: float, shape: tuple[int, int, int]
) -> None:
    torch.manual_seed(0)
    u, _, vh = torch.linalg.svd(torch.randn(shape, dtype=torch.float64), full_matrices=False)
    values = torch.logspace(0, -2, shape[1], dtype=torch.float64)
    result = orthogonalize(1e-20 * u @ (values[:, None] * vh), steps, torch.float64)
    singular = torch.linalg.svdvals(result)
    assert low < singular.min()
    assert singular.max() < high
    if steps == 9:
        torch.testing.assert_close(result, u @ vh, atol=1e-3, rtol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_orthogonalization_of_zero_and_tiny_matrices_in_every_dtype(dtype: torch.dtype) -> None:
    matrices = torch.stack((torch.zeros(4, 6), torch.randn(4, 6), 1e-25 * torch.randn(4, 6)))
    result = orthogonalize(matrices, 5, dtype)
    assert result.dtype == dtype
    assert not result[0].any()
    assert torch.linalg.svdvals(result[1:].float()).min() > 0.7


def test_updates_equal_the_formula() -> None:
    """Two updates of each stacked matrix, and of the parameters of Adam."""
    options = TrainConfig(weight_decay=0.1)
    model, built = make("muon(momentum=0.9, ns_steps=12, lr_scale=2.0)", options)
    weights = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    reference = copy.deepcopy(model)
    adam_of_all = adamw(reference, options)
    momenta: dict[str, torch.Tensor] = {}
    heads = {"qkv": (0, 4), "cross_attention.q": (0, 4), "kv": (0, 4), "out": (1, 4), "up": (0, 24)}
    for _ in range(2):
        set_gradients(model)
        for one, other in zip(model.parameters(), reference.parameters(), strict=True):
            other.grad = one.grad
        for each in (built, adam_of_all):
            set_rate(each, 0.01)
            each.step()
        expected = dict(reference.named_parameters())
        for name, parameter in model.named_parameters():
            if parameter.dim() < 2 or "embeddings" in name:
                torch.testing.assert_close(parameter, expected[name])
                continue
            momentum = momenta[name] = (
                0.9 * momenta.get(name, torch.zeros(())) + 0.1 * parameter.grad
            )
            direction = 0.1 * parameter.grad + 0.9 * momentum
            weights[name] *= 1 - 0.02 * 0.1
            axis, size = next(
                (split for key, split in heads.items() if f"{key}.weight" in name),
                (0, len(parameter)),
            )
            for matrix, weight in zip(
                direction.split(size, axis), weights[name].split(size, axis), strict=True
            ):
                u, _, vh = torch.linalg.svd(matrix, full_matrices=False)
                weight -= 0.02 * 0.2 * max(matrix.shape) ** 0.5 * u @ vh
            torch.testing.assert_close(parameter.detach(), weights[name], atol=1e-5, rtol=0)


def test_orthogonalized_parameters_are_the_matrices_of_attention_and_feed_forward_layers() -> None:
    model, built = make()
    names = {parameter: name for name, parameter in model.named_parameters()}
    orthogonalized = {names[parameter] for parameter in built.param_groups[-1]["params"]}
    assert orthogonalized == {
        name
        for name, parameter in model.named_parameters()
        if parameter.dim() == 2 and "embeddings" not in name
    }
    assert len(built.param_groups[0]["params"]) + len(orthogonalized) == len(names)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_update_in_half_precision_is_close_to_that_in_float32(dtype: torch.dtype) -> None:
    updates = []
    for compute_dtype in (None, dtype):
        model, built = make(compute_dtype=compute_dtype)
        before = torch.nn.utils.parameters_to_vector(model.parameters()).clone()
        set_gradients(model)
        set_rate(built, 0.01)
        built.step()
        updates.append(torch.nn.utils.parameters_to_vector(model.parameters()) - before)
    assert 0 < (updates[1] - updates[0]).norm() < 0.05 * updates[0].norm()


def test_fp16_overflow_changes_neither_weights_nor_momentum() -> None:
    options = TrainConfig(weight_decay=0.1)
    model, built = make(options=options)
    scaler = GradScaler("cpu", init_scale=2.0**20)
    batch = collate([([5], [9]), ([6], [7])])
    set_rate(built, 0.1)
    assert not train_step(model, [batch], built, options, scaler=scaler).read().skipped
    matrix = model.decoder[0].feed_forward.up.weight
    before = [t.clone() for t in (*model.parameters(), built.state[matrix]["momentum"])]
    handle = matrix.register_hook(lambda grad: grad * float("inf"))
    assert train_step(model, [batch], built, options, scaler=scaler).read().skipped
    assert all(map(torch.equal, before, (*model.parameters(), built.state[matrix]["momentum"])))
    assert scaler.get_scale() == 2.0**19
    handle.remove()
    assert not train_step(model, [batch], built, options, scaler=scaler).read().skipped
    assert not torch.equal(before[-1], built.state[matrix]["momentum"])


def test_gradient_that_is_not_finite_raises_and_changes_nothing() -> None:
    model, built = make()
    set_rate(built, 0.1)
    matrix = model.decoder[0].feed_forward.up.weight
    matrix.register_hook(lambda grad: grad * float("nan"))
    before = [parameter.clone() for parameter in model.parameters()]
    with pytest.raises(TrainingError, match="the gradient is nan"):
        train_step(model, [collate([([5], [9])])], built, TrainConfig()).read()
    assert all(map(torch.equal, before, model.parameters()))


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_resumed_run_is_identical_to_an_uninterrupted_one(directory: Path, precision: str) -> None:
    options = ("train.steps=24", "train.valid_every=50", "train.ema=0.9", "train.weight_decay=0.01")
    experiment = config(directory, *FAST, *options)
    saved = load_file(check_resume(experiment, directory, 9, precision) / checkpoint.TRAINING)
    assert any(name.endswith("up.weight.momentum") for name in saved)


def test_repeated_run_is_identical_and_records_the_optimizer(directory: Path) -> None:
    experiment = config(directory, *FAST, "train.keep_last=2", "train.average_last=2")
    for name in ("run", "again"):
        run(experiment, directory, name)
    assert same_weights(directory / "run", directory / "again")
    assert run_report.collect(directory / "run")["training"]["optimizer"] == "muon"
    assert "- muon, inverse_sqrt" in (directory / "run" / "README.md").read_text()


def test_optimizer_of_a_resumed_run_cannot_change_but_its_options_can(directory: Path) -> None:
    run(config(directory, *FAST), directory)
    with pytest.raises(UsageError, match=r"trained with another 'train\.optimizer'"):
        run(config(directory, "train.steps=14"), directory, resume=True)
    run(
        config(directory, *FAST[1:], "train.steps=14", "train.optimizer=muon(momentum=0.9)"),
        directory,
        resume=True,
    )


def test_fine_tuning_a_model_of_adam_with_muon_lowers_the_loss(directory: Path) -> None:
    run(config(directory), directory, "first")
    start = (
        f"train.init_from={directory / 'first'}",
        f"tokenizer.model={directory / 'first' / 'spm.model'}",
    )
    run(config(directory, *FAST, *start, "train.steps=20"), directory, "tuned")
    tuned = losses(directory / "tuned")
    assert tuned[20] < tuned[1]


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("mion", "unknown optimizer 'mion'"),
        ("muon(lr=1)", "optimizer 'muon' has no option 'lr'"),
        ("muon(lr_scale=-1)", "lr_scale must be above 0"),
        ("muon(lr_scale=1e999)", "lr_scale must be above 0"),
        ("muon(momentum=1.0)", "momentum must be at least 0 and below 1"),
        ("muon(momentum=-0.1)", "momentum must be at least 0 and below 1"),
        ("muon(ns_steps=0)", "ns_steps must be between 1 and 20"),
        ("adamw(rate=1)", "optimizer 'adamw' has no option 'rate'"),
    ],
)
def test_invalid_optimizers_raise(spec: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message.replace("(", r"\(")):
        parse_optimizer(spec, "transformer")


def test_muon_needs_a_transformer(directory: Path) -> None:
    with pytest.raises(ConfigError, match=r"model\.arch is rnn"):
        run(config(directory, "train.optimizer=muon", "model.arch=rnn"), directory)
