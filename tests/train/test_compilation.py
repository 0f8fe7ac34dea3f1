"""Compiled updates (`train.compile`) equal plain ones."""

from __future__ import annotations

import copy
import dataclasses
import random
from pathlib import Path
from typing import Any

import pytest
import tiny
import torch
from test_model import TINY, VARIANTS, VOCABULARY

from nmt.core.config import Config, config_io
from nmt.core.errors import ConfigError, UsageError
from nmt.data.batching import Batch, collate
from nmt.model.attention import Attention, additive_mask
from nmt.model.build import build_model
from nmt.model.transformer import Transformer
from nmt.train import compilation
from nmt.train import loss as loss_module
from nmt.train.loss import compiled_logits_loss, cross_entropy, fused_logits_loss
from nmt.train.session import check_specs, train
from nmt.train.step import batch_loss

needs_compiler = pytest.mark.skipif(
    " " in torch.__file__, reason="PyTorch does not compile in a path with a space"
)
SHAPES = [(3, 6, 5), (4, 7, 9), (2, 12, 11), (8, 5, 17)]
"""Sentences, maximum source and target length."""


def batches() -> list[Batch]:
    rng = random.Random(0)

    def ids(max_length: int) -> list[int]:
        return [rng.randrange(4, VOCABULARY) for _ in range(rng.randint(2, max_length))]

    return [collate([(ids(src), ids(tgt)) for _ in range(size)]) for size, src, tgt in SHAPES]


@pytest.mark.slow
@pytest.mark.parametrize(("variant", "path"), [("pre", "cpu"), ("alibi", "gpu")])
def test_model_compiles_into_few_graphs(
    variant: str, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without graph breaks, on the operators of either device."""
    if path == "gpu":
        monkeypatch.setattr(
            Transformer,
            "_padding_mask",
            lambda self, mask_BS: additive_mask(mask_BS[:, None, None], torch.float32),
        )
        monkeypatch.setattr(Attention, "attend", Attention.sdpa)
    torch._dynamo.reset()
    num_graphs = 0

    def count(graph: torch.fx.GraphModule, inputs: Any) -> Any:
        nonlocal num_graphs
        num_graphs += 1
        return graph.forward

    torch.manual_seed(0)
    options = {"dropout": 0.0, "encoder_layers": 1, "decoder_layers": 1, **VARIANTS[variant]}
    model = build_model(dataclasses.replace(TINY, **options), VOCABULARY).train()
    compiled = copy.deepcopy(model)
    compiled.compile(dynamic=True, fullgraph=True, backend=count)
    for batch in batches():
        losses = []
        for each in (model, compiled):
            each.zero_grad()
            losses.append(batch_loss(each, batch, smoothing=0.1))
            losses[-1].backward()
        torch.testing.assert_close(*losses)
        for one, other in zip(model.parameters(), compiled.parameters(), strict=True):
            torch.testing.assert_close(one.grad, other.grad)
    assert 1 <= num_graphs <= 2


@needs_compiler
@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_compiled_loss_equals_the_plain_loss(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    for size in (37, 2050, 1500):  # the second one has several chunks
        hidden_ND, weight_VD = torch.randn(size, 16).to(dtype), torch.randn(301, 16)
        labels_N, results = torch.randint(301, (size,)), []
        for options in ({}, {"logits_loss": compiled_logits_loss}):
            hidden, weight = hidden_ND.clone().requires_grad_(), weight_VD.clone().requires_grad_()
            loss = cross_entropy(hidden, weight, labels_N, smoothing=0.1, **options)
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
    monkeypatch.setattr(compilation, "BACKEND", "eager")
    monkeypatch.setattr(loss_module, "compiled_loss", lambda: fused_logits_loss)
    shorter, compiled = (
        ("train.steps=4", "train.valid_every=2", "train.ema=0.9"),
        "train.compile=[loss, model]",
    )
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
    assert resumed.train.compile == ("loss", "model")
    train(resumed, tmp_path / "part", resume=True, device="cpu")
    assert tiny.same_weights(tmp_path / "compiled", tmp_path / "part")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (("train.compile=[los]",), "train.compile: unknown part 'los'"),
        (("train.compile=[model]", "model.arch=rnn"), "does not support model.arch=rnn"),
        (
            ("train.compile=[model]", "model.position_encoding=floater(step=0.5)"),
            "does not support .*floater",
        ),
    ],
)
def test_invalid_compile_raises(changes: tuple[str, ...], message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=message):
        check_specs(config(tmp_path, *changes))


def test_missing_compiler_raises(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compilation, "find_spec", lambda name: None)
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CXX", raising=False)
    experiment = config(tmp_path, "train.compile=[loss]")
    with pytest.raises(UsageError, match=r"train\.compile needs a C\+\+ compiler"):
        train(experiment, tmp_path / "run", device="cpu")
    with pytest.raises(UsageError, match=r"train\.compile needs Triton"):
        compilation.require_compiler(experiment, torch.device("cuda:0"))
