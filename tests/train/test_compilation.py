"""Compiled updates (`train.compile`) equal plain ones."""

from __future__ import annotations

from pathlib import Path

import pytest
import tiny
import torch

from nmt.core.config import Config, config_io
from nmt.core.errors import ConfigError, UsageError
from nmt.training import compilation
from nmt.training import loss as loss_module
from nmt.training.loss import (
    compiled_logits_loss,
    cross_entropy,
    fused_logits_loss,
    packed_logits_loss,
)
from nmt.training.session import check_specs, train

needs_compiler = pytest.mark.skipif(
    " " in torch.__file__, reason="PyTorch does not compile in a path with a space"
)


@needs_compiler
@pytest.mark.slow
@pytest.mark.parametrize(
    ("dtype", "is_weighted", "sizes"),
    [
        (torch.float32, False, (37, 2050, 1500)),
        (torch.bfloat16, True, (2050,)),  # is compiled for each size
    ],
)
def test_compiled_loss_equals_the_plain_loss(
    dtype: torch.dtype, is_weighted: bool, sizes: tuple[int, ...]
) -> None:
    torch.manual_seed(0)
    for size in sizes:  # 2050 has several chunks
        hidden_ND, weight_VD = torch.randn(size, 16).to(dtype), torch.randn(301, 16)
        labels_N, results = torch.randint(301, (size,)), []
        weight_N = torch.randint(2, (size,)).float() if is_weighted else None
        function = packed_logits_loss if is_weighted else compiled_logits_loss
        for options in ({}, {"logits_loss": function}):
            hidden, weight = hidden_ND.clone().requires_grad_(), weight_VD.clone().requires_grad_()
            loss = cross_entropy(
                hidden, weight, labels_N, smoothing=0.1, weight_N=weight_N, **options
            )
            (loss / size).backward()
            results.append((loss.detach(), hidden.grad, weight.grad))
        for one, other in zip(*results, strict=True):
            torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-4)


def config(directory: Path, *changes: str) -> Config:
    return tiny.config(directory, "model.dropout=0.0", *changes)


@needs_compiler
@pytest.mark.slow
def test_compiled_training_equals_plain_training_and_resumes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loss_module, "compiled_loss", lambda **_: fused_logits_loss)
    shorter = "train.steps=4", "train.valid_every=2", "train.ema=0.9"
    compiled = "train.compile=[loss]"
    runs = {
        "plain": shorter,
        "compiled": (*shorter, compiled),
        "part": (*shorter, compiled, "train.steps=2"),
    }
    for name, changes in runs.items():
        train(config(tmp_path, *changes), tmp_path / name, device="cpu", precision="fp32")
    assert tiny.losses(tmp_path / "compiled") == pytest.approx(
        tiny.losses(tmp_path / "plain"), rel=1e-4
    )
    resumed = config_io.load(tmp_path / "part/config.yaml", ["train.steps=4"])
    assert resumed.train.compile == ("loss",)
    train(resumed, tmp_path / "part", resume=True, device="cpu")
    assert tiny.same_weights(tmp_path / "compiled", tmp_path / "part")


def test_invalid_compile_raises(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"train\.compile: unknown part 'los'"):
        check_specs(config(tmp_path, "train.compile=[los]"))
    with pytest.raises(ConfigError, match=r"train\.compile=\[layers\] is for packed batches"):
        train(
            config(tmp_path, "train.compile=[layers]"),
            tmp_path / "run",
            device="cpu",
            precision="fp32",
        )


def test_missing_compiler_raises(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compilation, "find_spec", lambda name: None)
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CXX", raising=False)
    experiment = config(tmp_path, "train.compile=[loss]")
    with pytest.raises(UsageError, match=r"train\.compile needs a C\+\+ compiler"):
        train(experiment, tmp_path / "run", device="cpu")
    with pytest.raises(UsageError, match=r"train\.compile needs Triton"):
        compilation.require_compiler(experiment, torch.device("cuda:0"))
    monkeypatch.setattr(compilation, "find_spec", lambda name: object())
    with pytest.raises(UsageError, match=r"train\.compile needs a C compiler"):
        compilation.require_compiler(experiment, torch.device("cuda:0"))
