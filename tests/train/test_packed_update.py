"""Updates of packed batches: on the emulated GPU as CUDA graphs, on the CPU, and with several
ranks."""

from __future__ import annotations

import copy
import dataclasses
import functools
import os
import random
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import tiny
import torch
import torch.distributed as dist
from commandline import CommandLine, finish
from fake_cuda import FakeCUDA, fake_cuda
from test_model import TINY, VARIANTS, VOCABULARY
from torch import Tensor

from nmt.core.config import Config, TrainConfig
from nmt.core.errors import TrainingError
from nmt.data.batching import collate
from nmt.data.packing import PackedBatch, PackShape, pack
from nmt.model.build import build_model
from nmt.model.transformer import Transformer
from nmt.runs import checkpoint
from nmt.training import packed_update, profiling
from nmt.training import trainer as trainer_module
from nmt.training.adamw import AdamW
from nmt.training.distributed import all_reduce
from nmt.training.optim import parse_optimizer
from nmt.training.packed_update import LowPrecisionCopy, PackedUpdate
from nmt.training.session import estimate_training, train
from nmt.training.step import UpdateStats, train_step

Pair = tuple[list[int], list[int]]
SHAPE = PackShape(64, 70, 90, 16)
OPTIMIZERS = ["adamw", "muon"]
NUM_UPDATES = 3


def random_pairs(seed: int, count: int = 4) -> list[Pair]:
    rng = random.Random(seed)

    def ids() -> list[int]:
        return [rng.randrange(4, VOCABULARY) for _ in range(rng.randint(1, 15))]

    return [(ids(), ids()) for _ in range(count)]


def packed(seed: int, count: int = 4) -> PackedBatch:
    return pack(random_pairs(seed, count), SHAPE, range(count))


def build(variant: str = "pre", dropout: float = 0.0) -> Transformer:
    torch.manual_seed(0)
    one_layer = dataclasses.replace(TINY, encoder_layers=1, decoder_layers=1, dropout=dropout)
    config = dataclasses.replace(one_layer, **VARIANTS[variant])
    model = build_model(config, VOCABULARY).train()
    assert isinstance(model, Transformer)
    return model


def optimizer_of(model: Transformer, spec: str, options: TrainConfig) -> AdamW:
    return parse_optimizer(spec, "transformer")(model, options)


def make_updates(
    model: Transformer, spec: str, options: TrainConfig, batches: list[PackedBatch]
) -> tuple[list[UpdateStats], dict[str, Tensor]]:
    """Make updates with a changing learning rate; return their statistics and the weights."""
    updates = PackedUpdate(model, optimizer_of(model, spec, options), options)
    per_update = options.grad_accumulation
    stats = []
    for first in range(0, len(batches), per_update):
        share = batches[first : first + per_update]
        updates.compute_gradient(share, sum(batch.tokens for batch in share))
        stats.append(updates.apply(0.001 * (1 + first % 3)).read())
    return stats, {name: weight.cpu() for name, weight in model.state_dict().items()}


def pinned(batches: list[PackedBatch]) -> list[PackedBatch]:
    return [batch.pin_memory() for batch in batches]


def same(weights: dict[str, Tensor], others: dict[str, Tensor]) -> bool:
    return all(torch.equal(weight, others[name]) for name, weight in weights.items())


@pytest.mark.parametrize("spec", OPTIMIZERS)
@pytest.mark.parametrize("clip_norm", [0.0, 0.1])
def test_update_equals_one_of_padded_batches(spec: str, clip_norm: float) -> None:
    options = TrainConfig(clip_norm=clip_norm)
    pairs = random_pairs(1)
    padded = build()
    optimizer = optimizer_of(padded, spec, options)
    for group in optimizer.param_groups:
        group["lr"] = 0.001
    expected = train_step(padded, [collate(pairs)], optimizer, options).read()
    model = build()
    (stats,), weights = make_updates(model, spec, options, [pack(pairs, SHAPE)])
    assert stats.loss == pytest.approx(expected.loss, rel=1e-6)
    assert stats.grad_norm == pytest.approx(expected.grad_norm, rel=1e-5)
    assert stats.tokens == expected.tokens
    for name, weight in padded.state_dict().items():
        if (
            ".kv.bias" in name or "qkv.bias" in name
        ):  # the gradient of keys is zero but for rounding
            continue
        torch.testing.assert_close(weights[name], weight, atol=2e-5, rtol=1e-4)


def test_gradients_accumulate() -> None:
    batches = [packed(seed) for seed in range(8)]
    one, weights = make_updates(build(), "adamw", TrainConfig(grad_accumulation=4), batches)
    options = TrainConfig()
    padded = build()
    optimizer = optimizer_of(padded, "adamw", options)
    for number, stats in enumerate(one):
        optimizer.param_groups[0]["lr"] = 0.001 * (1 + 4 * number % 3)
        share = [collate(random_pairs(seed)) for seed in range(4 * number, 4 * number + 4)]
        expected = train_step(padded, share, optimizer, options).read()
        assert stats.loss == pytest.approx(expected.loss, rel=1e-5)
    for name, weight in padded.state_dict().items():
        if "kv.bias" not in name:
            torch.testing.assert_close(weights[name], weight, atol=1e-4, rtol=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("variant", "spec", "dtype", "accumulation"),
    [
        ("post", "adamw", torch.float32, 1),
        ("rotary", "adamw", torch.bfloat16, 1),
        ("learned", "muon", torch.bfloat16, 2),
        ("shared", "muon", torch.float32, 1),
        ("rms, gelu", "adamw", torch.bfloat16, 1),
    ],
)
def test_graph_equals_eager_and_the_cpu(
    variant: str, spec: str, dtype: torch.dtype, accumulation: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Updates with dropout and a changing learning rate, and the state of the generator."""
    options = TrainConfig(grad_accumulation=accumulation)
    batches = [packed(seed) for seed in range(NUM_UPDATES * accumulation)]
    results = []
    for warm_up in (1, 100):
        monkeypatch.setattr(packed_update, "WARM_UP", warm_up)
        with fake_cuda() as gpu:
            model = build(variant, dropout=0.1).to("cuda:0")
            model.compute_dtype = None if dtype == torch.float32 else dtype
            gpu.manual_seed_all(5)
            stats, weights = make_updates(model, spec, options, pinned(batches))
            results.append((stats, weights, gpu.rng_state))
            replays = NUM_UPDATES - 1 + len(batches) - 1
            assert gpu.replays == (replays if warm_up == 1 else 0)
    (stats, weights, state), (eager_stats, eager_weights, eager_state) = results
    assert stats == eager_stats
    assert same(weights, eager_weights)
    assert torch.equal(state, eager_state)
    # Without dropout, as on the CPU.
    monkeypatch.setattr(packed_update, "WARM_UP", 1)
    model = build(variant)
    model.compute_dtype = None if dtype == torch.float32 else dtype
    expected, expected_weights = make_updates(copy.deepcopy(model), spec, options, batches)
    with fake_cuda():
        stats, weights = make_updates(model.to("cuda:0"), spec, options, pinned(batches))
    assert [each.loss for each in stats] == pytest.approx(
        [each.loss for each in expected], rel=1e-4
    )
    assert same(weights, expected_weights)


VIEWS = {
    "view",
    "t",
    "detach",
    "unsqueeze",
    "squeeze",
    "transpose",
    "select",
    "split",
    "slice",
    "expand",
}
"""Operators that launch no kernel."""


def launches(gpu: FakeCUDA) -> int:
    """Return the number of operators that launch kernels."""
    return sum(count for name, count in gpu.operators.items() if name not in VIEWS)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_recorded_update_never_waits_and_launches_two_graphs(dtype: torch.dtype) -> None:
    with fake_cuda() as gpu:
        model = build(dropout=0.1).to("cuda:0")
        model.compute_dtype = None if dtype == torch.float32 else dtype
        options = TrainConfig()
        updates = PackedUpdate(model, optimizer_of(model, "adamw", options), options)
        for seed in range(6):
            (batch,) = pinned([packed(seed)])
            gpu.waits.clear()
            gpu.copies.clear()
            gpu.operators.clear()
            replays = gpu.replays
            updates.compute_gradient([batch], batch.tokens)
            pending = updates.apply(0.001)
            if seed > 0:
                assert not gpu.waits
                assert gpu.copies.total() == 8  # the tensors of the batch
            if seed == 2:
                assert launches(gpu) < 250
            if seed > 3:
                assert gpu.replays == replays + 2
                assert gpu.operators.total() < 20
            pending.read()


@pytest.mark.parametrize("num_updates", [1, 6])
def test_non_finite_gradient_leaves_the_weights(num_updates: int) -> None:
    """Eagerly and in a graph; the following updates are as if it had not been."""
    with fake_cuda():
        model = build().to("cuda:0")
        options = TrainConfig()
        updates = PackedUpdate(model, optimizer_of(model, "muon", options), options)
        for seed in range(num_updates):
            (batch,) = pinned([packed(seed)])
            updates.compute_gradient([batch], batch.tokens)
            updates.apply(0.001).read()
        before = {name: weight.clone() for name, weight in model.state_dict().items()}
        states = [copy.deepcopy(state) for state in updates.optimizer.state.values()]
        (batch,) = pinned([packed(9)])
        updates.compute_gradient([batch], 0)  # divides by zero
        pending = updates.apply(0.001)
        with pytest.raises(
            TrainingError, match=r"the loss is inf in a batch of 4 pairs \(lines 1, 2"
        ):
            pending.read()
        assert same(before, model.state_dict())
        for state, old in zip(updates.optimizer.state.values(), states, strict=True):
            assert same(state, old)
        updates.compute_gradient([batch], batch.tokens)
        assert not updates.apply(0.001).read().skipped
        assert not same(before, model.state_dict())


def test_low_precision_copies_are_those_of_matrices_and_layer_norms() -> None:
    model = build("rms, gelu")
    model.compute_dtype = torch.bfloat16
    computing = LowPrecisionCopy(model).model
    pairs = zip(model.named_parameters(), computing.parameters(), strict=True)
    for (name, original), parameter in pairs:
        is_matrix = name.startswith(("encoder.", "decoder.")) and "norm" not in name
        assert (parameter is not original) == is_matrix
        assert parameter.dtype == (torch.bfloat16 if is_matrix else torch.float32)
    model.compute_dtype = None
    assert LowPrecisionCopy(model).model is model


# ---- Several ranks

SHARES = [
    ([1, 2], [3], [4]),
    ([5], [], [6, 7]),
    ([], [8], []),
]
"""The batches of each rank in each update."""


def update_as_rank(rank: int, world_size: int, path: Path) -> None:
    """Make the updates of `SHARES` with packed and with padded batches, and save the weights."""
    torch.set_num_threads(1)
    os.environ |= {"MASTER_ADDR": "localhost", "GLOO_SOCKET_IFNAME": "lo"}
    store = dist.FileStore(str(path / f"store-{world_size}"), world_size)
    dist.init_process_group(
        "gloo", store=store, rank=rank, world_size=world_size, timeout=timedelta(seconds=60)
    )
    for kind in ("packed", "padded"):
        weights, losses = updated_weights(kind, rank, world_size)
        torch.save((weights, losses), path / f"{kind}-{rank}-of-{world_size}.pt")
    check_bf16(rank, world_size)
    dist.destroy_process_group()


def updated_weights(kind: str, rank: int, world_size: int) -> tuple[dict[str, Tensor], list[float]]:
    model = build()
    # Several batches may be those of one rank.
    options = TrainConfig(grad_accumulation=4)
    optimizer = optimizer_of(model, "adamw", options)
    reduce = functools.partial(all_reduce, dtype=torch.float32) if world_size > 1 else None
    updates = PackedUpdate(model, optimizer, options, all_reduce=reduce)
    losses = []
    for shares in SHARES:
        tokens = sum(packed(seed).tokens for share in shares for seed in share)
        seeds = [seed for share in shares[rank::world_size] for seed in share]
        if kind == "packed":
            updates.compute_gradient([packed(seed) for seed in seeds], tokens)
            losses.append(updates.apply(0.01).read().loss)
            continue
        optimizer.param_groups[0]["lr"] = 0.01
        batches = [collate(random_pairs(seed)) for seed in seeds]
        pending = train_step(model, batches, optimizer, options, tokens=tokens, all_reduce=reduce)
        losses.append(pending.read().loss)
    return model.state_dict(), losses


def check_bf16(rank: int, world_size: int) -> None:
    """Gradients are rounded, summed and rounded again; the loss is not."""
    torch.manual_seed(0)
    gradients, loss = torch.randn(world_size, 1000), torch.tensor(1 / 3)
    gradient_P = gradients[rank].clone()
    all_reduce(gradient_P, loss, torch.bfloat16)
    if world_size == 2:
        assert torch.equal(gradient_P, gradients.bfloat16().float().sum(0).bfloat16().float())
    assert loss.item() == pytest.approx(world_size / 3)


@pytest.mark.slow
@pytest.mark.parametrize("world_size", [2, 3])
def test_ranks_equal_a_single_process(world_size: int, tmp_path: Path) -> None:
    """Also if a rank has no batch."""
    nmt = CommandLine(tmp_path)
    ranks = [
        nmt.fork(main=functools.partial(update_as_rank, rank, world_size, tmp_path))
        for rank in range(world_size)
    ]
    for process in ranks:
        finish(process).check()
    for kind in ("packed", "padded"):
        expected_weights, expected_losses = updated_weights(kind, 0, 1)
        results = [
            torch.load(tmp_path / f"{kind}-{r}-of-{world_size}.pt") for r in range(world_size)
        ]
        for weights, losses in results:
            assert same(weights, results[0][0])  # bit for bit
            assert losses == pytest.approx(expected_losses, rel=1e-5)
            for name, weight in weights.items():
                if "kv.bias" not in name:
                    torch.testing.assert_close(weight, expected_weights[name], atol=1e-4, rtol=1e-3)


# ---- Runs


def config(directory: Path, *changes: str) -> Config:
    """Return a config of a short run; a new model would translate until the longest length."""
    return tiny.config(
        directory,
        "train.valid_pairs=2",
        "train.valid_search=greedy(max_length_ratio=1.0)",
        "train.calibration_pairs=0",
        "train.steps=4",
        "train.valid_every=2",
        *changes,
    )


@pytest.mark.slow
@pytest.mark.parametrize(("precision", "optimizer"), [("fp32", "adamw"), ("bf16", "muon")])
def test_packed_run_equals_that_of_the_cpu(
    precision: str, optimizer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With validation, checkpoints, a moving average and an average of checkpoints."""
    experiment = config(
        tmp_path,
        "model.dropout=0.0",
        "train.ema=0.9",
        "train.average_last=2",
        "train.keep_last=2",
        "train.grad_accumulation=2",
        f"train.optimizer={optimizer}",
    )
    monkeypatch.setattr(packed_update, "WARM_UP", 1)
    with fake_cuda() as gpu:
        train(experiment, tmp_path / "gpu", device="cuda", precision=precision)
        assert gpu.replays > 8
    monkeypatch.setattr(trainer_module, "supports_packing", lambda *_: True)
    train(experiment, tmp_path / "cpu", device="cpu", precision=precision)
    for name in ("loss", "valid_loss", "grad_norm"):
        one, other = (
            [line[name] for line in tiny.metrics(tmp_path / run) if name in line]
            for run in ("cpu", "gpu")
        )
        assert one == pytest.approx(other, rel=1e-5 if precision == "fp32" else 1e-2)
    assert (tmp_path / "gpu/average-2").exists()


@pytest.mark.slow
def test_resumed_run_is_identical_and_padded_and_packed_runs_continue_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packed_update, "WARM_UP", 1)
    changes = ("model.dropout=0.2", "train.ema=0.9", "train.source_noise=[lowercase(p=0.5)]")
    with fake_cuda():
        train(config(tmp_path, *changes), tmp_path / "whole", device="cuda", precision="bf16")
    half = config(tmp_path, *changes, "train.steps=2")
    with fake_cuda():
        train(half, tmp_path / "run", device="cuda", precision="bf16")
    with fake_cuda():  # as in a new process
        train(config(tmp_path, *changes), tmp_path / "run", resume=True, device="cuda")
    assert tiny.same_weights(tmp_path / "whole", tmp_path / "run")
    packed_share = share_of_epoch(tmp_path / "run")
    longer = config(tmp_path, *changes, "train.steps=5")
    train(longer, tmp_path / "run", resume=True, device="cpu", precision="fp32")
    assert not checkpoint.read_progress(checkpoint.checkpoints(tmp_path / "run")[-1]).packed
    assert share_of_epoch(tmp_path / "run") - packed_share < 3


def share_of_epoch(run: Path) -> int:
    return checkpoint.read_progress(checkpoint.checkpoints(run)[-1]).batches_in_window


@pytest.mark.slow
def test_packed_batches_that_do_not_fit_are_halved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    loss, sizes = packed_update.packed_loss, list[int]()

    def limited(model: Transformer, batch: PackedBatch, **options: Any) -> Tensor:
        slots = len(batch.tgt_in_T)
        if slots > 300:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        sizes.append(slots)
        return loss(model, batch, **options)

    monkeypatch.setattr(packed_update, "packed_loss", limited)
    experiment = config(tmp_path, "train.batch_tokens=512", "train.max_length=64")
    with fake_cuda():
        train(experiment, tmp_path / "run", device="cuda", precision="fp32")
    assert "continuing with 256 tokens, and twice as many batches" in capsys.readouterr().err
    assert set(sizes) == {256}
    progress = checkpoint.read_progress(checkpoint.checkpoints(tmp_path / "run")[-1])
    assert (progress.batch_tokens, progress.step) == (256, 4)
    too_long = config(tmp_path, "train.batch_tokens=512", "train.max_length=300")
    with fake_cuda(), pytest.raises(TrainingError, match="batches of 512 tokens do not fit"):
        train(too_long, tmp_path / "other", device="cuda", precision="fp32")


@pytest.mark.slow
@pytest.mark.parametrize(
    "change",
    [
        "train.packing=false",
        "model.position_encoding=alibi",
        "train.subword_regularization=bpe_dropout(p=0.1)",
    ],
)
def test_what_cannot_be_packed_is_padded(
    change: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise AssertionError("packed")

    monkeypatch.setattr(PackedUpdate, "compute_gradient", fail)
    with fake_cuda():
        train(config(tmp_path, "train.steps=2", change), tmp_path / "run", device="cuda")


def test_plan_counts_the_padding_of_packed_batches(
    gpu: FakeCUDA, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(profiling, "MAX_UPDATES", 2)
    estimate = estimate_training(config(tmp_path, "train.max_length=64"), device="cuda")
    assert 0 < estimate.padding < 0.15  # six batches, the last one of which is not full


@pytest.fixture
def gpu() -> Any:
    with fake_cuda() as gpu:
        yield gpu
