"""Training: learning, exact resuming, stopping, memory limits and numerical failures."""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import itertools
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import time
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file
from tiny import config, copy_text, losses, metrics, same_weights
from tqdm import tqdm

from nmt.core.config import Config, ModelConfig, config_io
from nmt.core.errors import CheckpointError, StoppedError, TrainingError, UsageError
from nmt.core.runtime import out_of_memory_as
from nmt.data.batching import Batch, collate
from nmt.data.loader import Loader
from nmt.data.prepare import prepare
from nmt.evaluate.metrics import bleu, chrf
from nmt.model.build import build_model
from nmt.models import discovery
from nmt.runs import checkpoint
from nmt.training import loop, profiling, stopping
from nmt.training import session as training
from nmt.training import step as step_module
from nmt.training import trainer as trainer_module
from nmt.training.loss import cross_entropy
from nmt.training.optim import adamw, parse_schedule
from nmt.training.run_directory import check_data_unchanged, saved_precision
from nmt.training.session import train
from nmt.training.step import UpdateStats, train_step
from nmt.training.trainer import Trainer
from nmt.translation.translator import Translator


def run(
    experiment: Config,
    directory: Path,
    name: str = "run",
    *,
    resume: bool = False,
    limit: float | None = None,
) -> Path:
    return train(
        experiment,
        directory / name,
        resume=resume,
        device="cpu",
        precision="fp32",
        time_limit=limit,
    )


def validations(directory: Path) -> dict[int, float]:
    return {
        int(line["step"]): line["valid_loss"] for line in metrics(directory) if "valid_loss" in line
    }


def stop_at(step: int, patch: pytest.MonkeyPatch) -> None:
    """Send SIGTERM during update `step`."""
    updates = itertools.count(1)

    class Interrupting(loop.PeriodStats):
        def add(self, stats: UpdateStats) -> None:
            if next(updates) == step:
                os.kill(os.getpid(), signal.SIGTERM)
            super().add(stats)

    patch.setattr(loop, "PeriodStats", Interrupting)


def check_resume(experiment: Config, directory: Path, at: int, precision: str = "fp32") -> Path:
    """Check that a run that stops in update `at` and is resumed equals an uninterrupted one; return
    its checkpoint."""
    interrupted = directory / "interrupted"
    train(experiment, directory / "uninterrupted", device="cpu", precision=precision)
    with pytest.MonkeyPatch.context() as patch:
        stop_at(at, patch)
        with pytest.raises(StoppedError):
            train(experiment, interrupted, device="cpu", precision=precision)
    progress = checkpoint.read_progress(checkpoint.checkpoints(interrupted)[-1])
    assert progress.step == at
    assert progress.batches_in_window > 0
    resumed = train(experiment, interrupted, resume=True, device="cpu")
    assert same_weights(directory / "uninterrupted", interrupted)
    assert losses(directory / "uninterrupted") == losses(interrupted)
    return resumed


def test_training_in_a_thread(directory: Path) -> None:
    experiment = config(directory, "train.steps=2", "train.valid_every=2")
    with ThreadPoolExecutor(1) as pool:  # cannot handle signals
        best = pool.submit(run, experiment, directory).result()
    assert same_weights(best.parent, run(experiment, directory, "b").parent)


@pytest.mark.slow
def test_model_learns_the_copy_task(directory: Path) -> None:
    copy_text(directory, 4000, longest=5)
    copy_text(directory, 50, longest=5, split="valid")
    experiment = config(
        directory,
        "model.dim=64",
        "model.heads=4",
        "model.ffn_dim=128",
        "train.steps=200",
        "train.valid_every=200",
        "train.schedule=linear(peak=1e-2, warmup=50)",
        "model.dropout=0.0",
    )
    best = run(experiment, directory)
    lines = (directory / "valid.en").read_text().splitlines()
    translations = Translator.load(best, "cpu").translate(lines)
    num_correct = sum(a == b for a, b in zip(translations, lines, strict=True))
    assert num_correct >= 45, list(zip(translations, lines, strict=True))[:10]


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [
        [],
        [
            "train.ema=0.9",
            "train.grad_accumulation=2",
            "train.source_noise=[lowercase_no_punctuation(p=0.5)]",
            "train.subword_regularization=bpe_dropout(p=0.2)",
        ],
    ],
)
def test_resumed_run_is_identical_to_an_uninterrupted_one(
    directory: Path, changes: list[str]
) -> None:
    schedule = "train.schedule=inverse_sqrt(peak=1e-2, warmup=4)"
    experiment = config(directory, schedule, "train.steps=20", "train.valid_every=50", *changes)
    check_resume(experiment, directory, 13)


@pytest.mark.parametrize("at", [4, 8])
def test_resumed_run_makes_the_interrupted_validation(directory: Path, at: int) -> None:
    experiment = config(directory, "train.steps=8", "train.valid_every=4")
    run(experiment, directory, "uninterrupted")
    with pytest.MonkeyPatch.context() as patch:
        stop_at(at, patch)
        with pytest.raises(StoppedError):
            run(experiment, directory, "interrupted")
    last = checkpoint.checkpoints(directory / "interrupted")[-1]
    assert (checkpoint.read_progress(last).step, checkpoint.read_progress(last).scores) == (at, {})
    best = run(experiment, directory, "interrupted", resume=True)
    assert best.name == run(experiment, directory, "uninterrupted", resume=True).name
    assert same_weights(directory / "uninterrupted", directory / "interrupted")
    assert validations(directory / "uninterrupted") == validations(directory / "interrupted")
    states = (
        checkpoint.read_progress(checkpoint.checkpoints(directory / name)[-1])
        for name in ("uninterrupted", "interrupted")
    )
    one, other = (dataclasses.replace(state, seconds=0.0) for state in states)
    assert one == other


def test_log_lines_after_the_last_checkpoint_are_replaced(directory: Path) -> None:
    run(config(directory), directory)
    log = directory / "run" / "metrics.jsonl"
    original = log.read_text()
    with log.open("a") as file:  # as if killed at update 14 during a write
        file.write('{"step": 13, "loss": 9.0}\n{"step": 14, "lo')
    run(config(directory, "train.steps=18"), directory, resume=True)
    steps = [line["step"] for line in metrics(directory / "run") if "loss" in line]
    assert steps == list(range(1, 19))
    assert log.read_text().startswith(original)


@pytest.mark.parametrize("method", ["_write", "record_validation"])
@pytest.mark.parametrize("moment", ["before", "after"])
def test_validation_is_logged_once_if_killed_around_it(
    directory: Path, method: str, moment: str
) -> None:
    """Kill training before or after saving the checkpoint of a validation, or recording its
    scores."""
    experiment = config(directory, "train.steps=4", "train.valid_every=2")
    run(experiment, directory, "uninterrupted")
    original = getattr(Trainer, method)

    def killed(trainer: Trainer, *arguments: object) -> object:
        if trainer.progress.step == 2 and moment == "before":
            raise KeyboardInterrupt
        result = original(trainer, *arguments)
        if trainer.progress.step == 2:
            raise KeyboardInterrupt
        return result

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Trainer, method, killed)
        with pytest.raises(KeyboardInterrupt):
            run(experiment, directory, "interrupted")
    run(experiment, directory, "interrupted", resume=True)
    assert validations(directory / "uninterrupted") == validations(directory / "interrupted")
    steps = [line["step"] for line in metrics(directory / "interrupted") if "valid_loss" in line]
    assert steps == [2, 4]


def test_log_lines_before_the_first_checkpoint_are_replaced(directory: Path) -> None:
    (directory / "run").mkdir()
    (directory / "run" / "config.yaml").write_text(config_io.dump(config(directory)))
    (directory / "run" / "metrics.jsonl").write_text('{"step": 1, "loss": 9.0}\n')
    run(config(directory), directory, resume=True)
    assert [line["step"] for line in metrics(directory / "run") if "loss" in line] == list(
        range(1, 13)
    )


def test_resumed_run_keeps_its_precision(directory: Path) -> None:
    train(
        config(directory, "train.steps=6"),
        directory / "run",
        resume=False,
        device="cpu",
        precision="bf16",
    )
    for requested, expected in (("auto", "bfloat16"), ("fp32", "float32"), ("auto", "float32")):
        last = checkpoint.read_progress(checkpoint.checkpoints(directory / "run")[-1]).step
        experiment = config(directory, f"train.steps={last + 1}")
        best = train(experiment, directory / "run", resume=True, device="cpu", precision=requested)
        latest = checkpoint.checkpoints(best.parent)[-1]
        assert {t.dtype for t in load_file(latest / checkpoint.WEIGHTS).values()} == {torch.float32}
        assert (
            checkpoint.read_progress(latest).step,
            checkpoint.read_progress(latest).precision,
        ) == (
            last + 1,
            expected,
        )


def test_run_in_fp16_resumes_on_the_cpu_in_another_precision(directory: Path) -> None:
    last = run(config(directory, "train.steps=6"), directory)
    meta = json.loads((last / checkpoint.META).read_text())
    meta["progress"]["precision"] = "float16"
    (last / checkpoint.META).write_text(json.dumps(meta))
    assert saved_precision(directory / "run", "cuda") == "fp16"
    assert saved_precision(directory / "run", "cpu") == "auto"
    train(
        config(directory, "train.steps=8"),
        directory / "run",
        resume=True,
        device="cpu",
        precision="auto",
    )
    latest = checkpoint.checkpoints(directory / "run")[-1]
    assert checkpoint.read_progress(latest).precision in ("float32", "bfloat16")


def test_resuming_with_another_batch_size_continues_at_the_same_share_of_the_epoch(
    directory: Path,
) -> None:
    path = run(config(directory, "train.steps=6"), directory)
    position = checkpoint.read_progress(path).batches_in_window
    assert position >= 4
    prepared = prepare(config(directory))
    total = 0
    for batch_tokens in ("256", "512", "128"):
        experiment = config(directory, f"train.batch_tokens={batch_tokens}")
        trainer = Trainer(
            experiment, directory / "run", prepared, torch.device("cpu"), torch.float32
        )
        assert trainer.restore()
        num_batches = len(trainer.loader.window(0, 0).batches)
        total = total or num_batches
        assert trainer.progress.batches_in_window == position * num_batches // total


def test_validation_uses_all_references(directory: Path) -> None:
    experiment = config(directory)
    rows = [{"en": "ba be bi", "de": ["bo bu da", "ba be bi"]}, {"en": "da", "de": "da"}]
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    (directory / "valid.jsonl").write_text(lines, encoding="utf-8")
    valid = f"data.valid=files(valid={str(directory / 'valid.jsonl')!r})"
    prepared = prepare(config(directory, valid))
    test = trainer_module.validation_set(prepared)
    assert test.sources == ["ba be bi", "da"]
    assert test.references == [["bo bu da", "da"], ["ba be bi", None]]
    assert prepared.lines("valid")[1] == ["bo bu da", "da"]  # for the loss
    single = trainer_module.validation_set(prepare(experiment))
    assert len(single.references) == 1


def test_fp16_loss_scale_is_restored(directory: Path) -> None:
    prepared = prepare(config(directory))
    cpu = torch.device("cpu")
    before, after = (
        Trainer(config(directory), directory / "run", prepared, cpu, torch.float16)
        for _ in range(2)
    )
    before.scaler.load_state_dict(
        before.scaler.state_dict() | {"scale": 1024.0, "_growth_tracker": 7}
    )
    before.save()
    assert after.restore()
    assert (after.scaler.get_scale(), after.scaler._get_growth_tracker()) == (1024.0, 7)


def test_resuming_a_finished_run_changes_nothing(directory: Path) -> None:
    best = run(config(directory), directory)
    before = sorted(p.name for p in (directory / "run").iterdir())
    assert run(config(directory), directory, resume=True) == best
    assert sorted(p.name for p in (directory / "run").iterdir()) == before


def test_accumulated_gradients_equal_those_of_one_batch(directory: Path) -> None:
    torch.manual_seed(0)
    model = build_model(
        ModelConfig(dim=16, heads=2, ffn_dim=32, encoder_layers=1, decoder_layers=1, dropout=0.0),
        20,
    )
    pairs = [([5, 6, 7], [8, 9]), ([10, 11], [12]), ([13] * 5, [14] * 7), ([15], [16, 17, 18])]
    # With learning rate 0, so the weights do not change.
    optimizer = adamw(model, config(directory).train)
    gradients = []
    for microbatches in (
        [collate(pairs)],
        [collate(pairs[:1]), collate(pairs[1:])],
        [collate([pair]) for pair in pairs],
    ):
        stats = train_step(
            model, microbatches, optimizer, config(directory, "train.clip_norm=0.0").train
        ).read()
        gradients.append([p.grad.clone() for p in model.parameters() if p.grad is not None])
        assert stats.tokens == 3 + 2 + 8 + 4
    for other in gradients[1:]:
        for a, b in zip(gradients[0], other, strict=True):
            torch.testing.assert_close(a, b, atol=1e-6, rtol=1e-4)


def test_loss_is_normalized_by_the_number_of_sampled_subwords(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    divisors: list[tuple[int | None, int]] = []

    def recording_step(
        model: Any, microbatches: list[Batch], *rest: Any, tokens: int | None, **options: Any
    ) -> step_module.PendingStats:
        divisors.append((tokens, sum(batch.tokens for batch in microbatches)))
        return step_module.train_step(model, microbatches, *rest, tokens=tokens, **options)

    monkeypatch.setattr(trainer_module, "train_step", recording_step)
    run(
        config(directory, "train.subword_regularization=bpe_dropout(p=0.5)", "train.steps=3"),
        directory,
    )
    assert len(divisors) == 3
    assert all(tokens == sampled for tokens, sampled in divisors)


def test_batches_that_do_not_fit_in_memory_are_split_with_the_same_result(
    directory: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    experiment = config(directory, "model.dropout=0.0", "train.steps=8", "train.best_metric=loss")
    run(experiment, directory, "unlimited")
    backward = step_module.backward
    max_size = 0

    def limited_backward(model: Any, batch: Batch, *rest: Any) -> Any:
        nonlocal max_size
        if batch.tgt_in_BT.numel() > 100:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        max_size = max(max_size, batch.tgt_in_BT.numel())
        return backward(model, batch, *rest)

    monkeypatch.setattr(step_module, "backward", limited_backward)
    run(experiment, directory, "limited")
    assert 50 < max_size <= 100
    assert capsys.readouterr().err.count("the batches do not fit in memory") == 1
    assert losses(directory / "limited") == pytest.approx(losses(directory / "unlimited"), abs=1e-5)


def test_model_that_does_not_fit_in_memory_raises(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trainer_module, "parse_optimizer", lambda *_: torch.empty(2**60))
    with pytest.raises(TrainingError, match="the model does not fit in memory"):
        run(config(directory), directory)


def test_tensors_of_a_call_without_memory_are_freed_at_once() -> None:
    class Tensors: ...

    def fail() -> weakref.ref[Tensors]:
        tensors = Tensors()
        references.append(weakref.ref(tensors))
        raise torch.OutOfMemoryError

    references: list[weakref.ref[Tensors]] = []
    gc.disable()
    try:
        with contextlib.suppress(MemoryError), out_of_memory_as(MemoryError()):
            fail()
        assert references[0]() is None
    finally:
        gc.enable()


def test_optimizer_that_does_not_fit_in_memory_raises(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def step(*_: object, **__: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory.")

    monkeypatch.setattr(torch.nn.utils, "clip_grad_norm_", step)
    with pytest.raises(TrainingError, match="the gradients and the optimizer do not fit in memory"):
        run(config(directory), directory)


def test_pair_that_does_not_fit_in_memory_raises(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def out_of_memory(*_: Any, **__: Any) -> Any:
        return torch.empty(2**60)

    monkeypatch.setattr(step_module, "backward", out_of_memory)
    with pytest.raises(TrainingError, match=r"a single pair of .* tokens does not fit in memory"):
        run(config(directory), directory)
    monkeypatch.undo()
    monkeypatch.setattr(trainer_module, "batch_loss", out_of_memory)
    with pytest.raises(TrainingError, match="a line of the validation set does not fit in memory"):
        run(config(directory), directory, "validation")


def test_clipping_limits_the_gradient_norm(directory: Path) -> None:
    model = build_model(
        ModelConfig(dim=16, heads=2, ffn_dim=32, encoder_layers=1, decoder_layers=1), 20
    )
    experiment = config(directory, "train.clip_norm=0.01")
    stats = train_step(
        model, [collate([([5], [6, 7])])], adamw(model, experiment.train), experiment.train
    ).read()
    assert stats.grad_norm > 0.01  # the norm before clipping
    norm = torch.stack([p.grad.norm() for p in model.parameters() if p.grad is not None]).norm()
    assert norm.item() == pytest.approx(0.01, rel=1e-3)


def test_update_uses_the_configured_label_smoothing(directory: Path) -> None:
    model = build_model(
        ModelConfig(dim=16, heads=2, ffn_dim=32, encoder_layers=1, decoder_layers=1, dropout=0.0),
        20,
    )
    batch = collate([([5, 6], [7, 8]), ([9], [10])])
    hidden_ND = model(batch.src_BS, batch.src_mask_BS, batch.tgt_in_BT, batch.target_index_N)
    for smoothing in (0.0, 0.3):
        options = config(directory, f"train.label_smoothing={smoothing}").train
        expected = (
            cross_entropy(hidden_ND, model.output_weight_VD, batch.labels_N, smoothing=smoothing)
            / batch.tokens
        )
        assert train_step(
            model, [batch], adamw(model, options), options
        ).read().loss == pytest.approx(expected.item(), rel=1e-5)


def test_learning_rates_follow_the_schedule(directory: Path) -> None:
    spec = "cosine(peak=1e-2, warmup=3)"
    run(config(directory, f"train.schedule={spec}"), directory)
    rates = [line["lr"] for line in metrics(directory / "run") if "lr" in line]
    assert rates == [pytest.approx(parse_schedule(spec)(step, 12, 16)) for step in range(1, 13)]


@pytest.mark.parametrize("name", ["loss", "gradient"])
def test_non_finite_update_raises_and_keeps_the_weights(directory: Path, name: str) -> None:
    model = build_model(
        ModelConfig(dim=16, heads=2, ffn_dim=32, encoder_layers=1, decoder_layers=1), 20
    )
    optimizer = adamw(model, config(directory).train)
    optimizer.param_groups[0]["lr"] = 0.1
    if name == "loss":
        with torch.no_grad():
            model.output_weight_VD[9] = float("nan")
    else:
        model.output_weight_VD.register_hook(lambda grad: grad * float("inf"))
    before = [p.detach().clone() for p in model.parameters()]
    with pytest.raises(TrainingError, match=f"the {name} is (nan|inf).*lines 42, 8") as caught:
        train_step(
            model, [collate([([5], [9]), ([6], [7])], [41, 7])], optimizer, config(directory).train
        ).read()
    assert "--resume" in caught.value.hint
    for a, b in zip(before, model.parameters(), strict=True):
        torch.testing.assert_close(a, b, equal_nan=True, rtol=0, atol=0)


@pytest.mark.parametrize(
    ("peak", "problem"),
    [
        (1e39, "the weights are not finite after update 3"),
        (1e30, "the validation loss is nan after update 3"),
    ],
)
def test_divergence_in_the_last_update_before_a_validation(
    directory: Path, peak: float, problem: str
) -> None:
    run(config(directory, "train.steps=2", "train.valid_every=2"), directory)
    changes = (
        "train.steps=9",
        "train.valid_every=3",
        f"train.schedule=constant(peak={peak}, warmup=1)",
    )
    with pytest.raises(TrainingError, match=problem) as caught:
        run(config(directory, *changes), directory, resume=True)
    assert "lower the learning rate, which was 1.0e+" in caught.value.hint
    assert [path.name for path in checkpoint.checkpoints(directory / "run")] == ["step-000002"]
    # As the hint says.
    run(config(directory, "train.steps=3", "train.valid_every=3"), directory, resume=True)


def test_a_stop_signal_does_not_save_a_diverged_model(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop_at(1, monkeypatch)
    with pytest.raises(TrainingError, match="the weights are not finite after update 1"):
        run(config(directory, "train.schedule=constant(peak=1e39, warmup=1)"), directory)
    assert checkpoint.checkpoints(directory / "run") == []


def test_resuming_a_diverged_model_names_the_checkpoint_and_the_schedule(directory: Path) -> None:
    experiment = config(directory, "train.steps=4", "train.valid_every=2")
    run(experiment, directory)
    last = checkpoint.checkpoints(directory / "run")[-1]
    weights, training_state = checkpoint.load(last)
    next(iter(weights.values())).fill_(math.inf)
    progress, tokenizer = checkpoint.read_progress(last), checkpoint.read_meta(last)["tokenizer"]
    checkpoint.save(directory / "run", progress, weights, training_state, tokenizer)
    longer = config(
        directory, "train.steps=6", "train.valid_every=2", "train.schedule=constant(peak=2.0)"
    )
    with pytest.raises(
        TrainingError, match="step-000004 are not finite: training has diverged"
    ) as caught:
        run(longer, directory, resume=True)
    assert (
        f"delete {last}, lower the learning rate of train.schedule=constant(peak=2.0)"
        in caught.value.hint
    )
    shutil.rmtree(last)
    run(experiment, directory, resume=True)


def test_fp16_overflow_skips_the_update(directory: Path) -> None:
    from torch.amp.grad_scaler import GradScaler

    model = build_model(
        ModelConfig(dim=16, heads=2, ffn_dim=32, encoder_layers=1, decoder_layers=1), 20
    )
    optimizer, scaler = adamw(model, config(directory).train), GradScaler("cpu", init_scale=2.0**20)
    optimizer.param_groups[0]["lr"] = 0.1
    before = model.output_weight_VD.detach().clone()
    handle = model.output_weight_VD.register_hook(lambda grad: grad * float("inf"))
    batch = collate([([5], [9]), ([6], [7])])
    assert (
        train_step(model, [batch], optimizer, config(directory).train, scaler=scaler).read().skipped
    )
    assert torch.equal(before, model.output_weight_VD)
    assert scaler.get_scale() == 2.0**19
    handle.remove()
    assert (
        not train_step(model, [batch], optimizer, config(directory).train, scaler=scaler)
        .read()
        .skipped
    )
    assert not torch.equal(before, model.output_weight_VD)


@pytest.mark.slow
def test_time_limit_is_met_and_the_schedule_adapts(directory: Path) -> None:
    started = time.monotonic()
    experiment = config(
        directory,
        "train.steps=1000000",
        "train.valid_every=100000",
        "train.schedule=linear(warmup=5)",
    )
    best = run(experiment, directory, limit=1.5)
    assert time.monotonic() - started < 6
    assert checkpoint.read_progress(best).step > 5
    rates = [line["lr"] for line in metrics(directory / "run") if "lr" in line]
    assert rates[-1] < 0.1 * max(rates)


def test_validation_loss_uses_saved_weights_and_no_label_smoothing(directory: Path) -> None:
    fast = "train.schedule=constant(peak=1e-2, warmup=1)"
    best = run(
        config(directory, fast, "train.steps=6", "train.ema=0.9", "train.label_smoothing=0.3"),
        directory,
    )
    model, store = discovery.load(best).model, prepare(config(directory)).store("valid")
    batch = collate([store[i] for i in range(len(store))])
    with torch.inference_mode():
        hidden_ND = model(batch.src_BS, batch.src_mask_BS, batch.tgt_in_BT, batch.target_index_N)
        loss = (
            cross_entropy(hidden_ND, model.output_weight_VD, batch.labels_N, smoothing=0.0)
            / batch.tokens
        )
    assert validations(directory / "run") == {6: pytest.approx(loss.item(), rel=1e-5)}


def test_patience_stops_training_early(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # With a learning rate near zero, no validation improves on the first.
    experiment = config(
        directory,
        "train.steps=1000",
        "train.valid_every=2",
        "train.patience=3",
        "train.best_metric=loss",
        "train.schedule=inverse_sqrt(peak=1e-30, warmup=1)",
    )
    run(experiment, directory)
    assert [line["step"] for line in metrics(directory / "run") if "valid_bleu" in line] == [
        2,
        4,
        6,
        8,
    ]
    run(experiment, directory, resume=True)
    assert (
        "training has already stopped early; increase train.patience to continue"
        in capsys.readouterr().err
    )


@pytest.mark.parametrize(
    ("options", "values", "kept"),
    [
        (["train.steps=20"], [-3.0, -1.0, -2.0, -4.0, -5.0], [8, 16, 20]),
        (
            ["train.steps=24", "train.keep_last=1", "train.keep_best=3"],
            [3.0, 9.0, 7.0, 4.0, 5.0, 1.0],
            [8, 12, 20, 24],
        ),
    ],
)
def test_best_checkpoints_are_kept_and_the_best_is_returned(
    directory: Path,
    options: list[str],
    values: list[float],
    kept: list[int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scores, left = {"valid_loss": 1.0, "valid_bleu": 1.0}, iter(values)
    monkeypatch.setattr(
        Trainer, "validate", lambda self: scores | {"best_metric_value": next(left)}
    )
    assert run(config(directory, "train.valid_every=4", *options), directory).name == "step-000008"
    assert [path.name for path in checkpoint.checkpoints(directory / "run")] == [
        f"step-{step:06d}" for step in kept
    ]


def test_of_checkpoints_with_equal_scores_the_one_with_the_lowest_loss_is_the_best(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    losses = iter([5.0, 4.0, 3.0, 4.0, 3.0, 3.0])
    equal = {"valid_bleu": 0.0, "best_metric_value": 0.0}
    monkeypatch.setattr(Trainer, "validate", lambda self: equal | {"valid_loss": next(losses)})
    experiment = config(
        directory, "train.valid_every=4", "train.steps=40", "train.patience=3", "train.keep_last=1"
    )
    assert run(experiment, directory).name == "step-000012"
    assert [path.name for path in checkpoint.checkpoints(directory / "run")] == [
        "step-000012",
        "step-000024",
    ]


@pytest.mark.parametrize("best", ["bleu", "chrf", "loss"])
def test_best_metric_selects_the_quality(
    directory: Path, best: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        Translator, "translate", lambda self, lines, spec: [f"{line} ba" for line in lines]
    )
    run(config(directory, f"train.best_metric={best}", "train.steps=6"), directory)
    (line,) = [line for line in metrics(directory / "run") if "best_metric_value" in line]
    references = (directory / "valid.de").read_text().splitlines()
    for name, metric in {"bleu": bleu, "chrf": chrf}.items():
        value = metric([f"{reference} ba" for reference in references], [references]).value
        assert line[f"valid_{name}"] == pytest.approx(value)
    assert line["valid_bleu"] != line["valid_chrf"]
    assert line["best_metric_value"] == (
        -line["valid_loss"] if best == "loss" else line[f"valid_{best}"]
    )
    assert (", chrF " in capsys.readouterr().err) == (best == "chrf")


@given(
    capacity=st.integers(1, 10**6), smallest=st.integers(16, 512), largest=st.integers(16, 10**6)
)
def test_batch_size_search_approaches_the_capacity(
    capacity: int, smallest: int, largest: int
) -> None:
    largest = max(smallest, largest)
    size = profiling.search_batch_size(lambda tokens: tokens <= capacity, smallest, largest)
    if capacity < smallest:
        assert size == 0
    elif capacity >= largest:
        assert size == largest
    else:
        assert smallest <= size <= capacity
        assert size == smallest or 0.78 * capacity <= size <= profiling.SAFETY_MARGIN * capacity


BATCH_SIZES = """
import os, resource
from pathlib import Path

import torch

from nmt.data.prepare import prepare
from nmt.training.distributed import RankGroup
from nmt.core.config.config_io import load
from nmt.training import profiling

config = load(Path("config.yaml"))
prepared = prepare(config)
torch.set_num_threads(1)
cpu = torch.device("cpu")
for megabytes in (80, 240):
    if os.fork():
        os.wait()
        continue
    # Starts the threads before memory is measured
    torch.nn.Linear(8, 8)(torch.zeros(8, 8)).sum().backward()
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + (megabytes << 20),) * 2)
    found = profiling.find_batch_size(config, prepared, cpu, torch.float32, RankGroup())
    print(found.train.batch_tokens, flush=True)
    os._exit(0)
"""
"""Prints the largest batch sizes of processes that may use some more memory."""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs /proc")
def test_batch_size_grows_with_memory(directory: Path) -> None:
    """A process with limited memory simulates a GPU."""
    copy_text(directory, 30_000, longest=20)
    copy_text(directory, 20, split="valid")
    experiment = config(directory, "model.dim=64", "model.ffn_dim=2048")
    (directory / "config.yaml").write_text(config_io.dump(experiment))
    prepare(experiment)
    command = [sys.executable, "-c", BATCH_SIZES]
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    sizes = list(map(int, done.stdout.split()))
    assert len(sizes) == 2, done.stderr
    assert sizes[0] > 256
    assert 1.3 * sizes[0] < sizes[1] < 20_000, sizes


def test_plan_estimates_match_the_training_run(directory: Path) -> None:
    experiment = config(
        directory, "train.grad_accumulation=2", "train.ema=0.9", "train.optimizer=muon"
    )
    began = time.monotonic()
    estimate = training.estimate_training(experiment, device="cpu", precision="fp32")
    elapsed = time.monotonic() - began
    prepared = prepare(experiment)
    loader = Loader(
        prepared.store("train"),
        prepared.tokenizer(),
        experiment.train,
        experiment.seed,
        mix=prepared.mix(experiment),
    )
    updates = list(loader.updates(0))
    tokens = sum(update.tokens for update in updates)
    positions = sum(batch.tgt_in_BT.numel() for update in updates for batch in update.batches)
    assert (estimate.tokens_per_epoch, estimate.updates_per_epoch) == (tokens, len(updates))
    assert estimate.padding == pytest.approx(1 - tokens / positions)
    assert estimate.measured_updates == 3  # see conftest.py
    assert 0 < 3 * estimate.seconds_per_update < elapsed
    seconds = 3 * estimate.seconds_per_update
    measured = [*updates, *loader.updates(1)][1:4]  # the first update includes planning the epoch
    assert estimate.tokens_per_second * seconds == pytest.approx(
        sum(update.tokens for update in measured)
    )
    run(experiment, directory)
    weights, state = checkpoint.load(checkpoint.checkpoints(directory / "run")[-1])
    saved = [
        *weights.values(),
        *(tensor for name, tensor in state.items() if not name.startswith("rng.")),
    ]
    # Two latest and one best checkpoint.
    assert estimate.disk == 3 * sum(tensor.nbytes for tensor in saved)


@pytest.mark.parametrize(("ema", "second", "third"), [(0.2, 0.2, 0.2), (0.99, 3 / 12, 4 / 13)])
def test_saved_weights_are_the_exponential_moving_average(
    directory: Path, ema: float, second: float, third: float
) -> None:
    """a ← decay·a + (1-decay)·w after every update, decay = min(ema, (1+step)/(10+step))."""
    # Changes the weights visibly in every update
    fast = "train.schedule=constant(peak=1e-2, warmup=1)"
    options = ["train.valid_every=1", "train.steps=3", "train.keep_last=3", fast]
    run(config(directory, *options, f"train.ema={ema}"), directory)
    run(config(directory, *options), directory, "plain")
    steps = checkpoint.checkpoints(directory / "run")
    raw = [
        load_file(path / checkpoint.WEIGHTS) for path in checkpoint.checkpoints(directory / "plain")
    ]
    for name, first in raw[0].items():
        one = load_file(steps[0] / checkpoint.WEIGHTS)[name]
        two = second * one + (1 - second) * raw[1][name]
        three = third * two + (1 - third) * raw[2][name]
        torch.testing.assert_close(load_file(steps[2] / checkpoint.WEIGHTS)[name], three)
        torch.testing.assert_close(load_file(steps[0] / checkpoint.TRAINING)[f"raw.{name}"], first)


def test_average_last_averages_checkpoints_at_the_end(directory: Path) -> None:
    experiment = config(
        directory,
        "train.valid_every=3",
        "train.keep_last=3",
        "train.average_last=3",
        "train.best_metric=loss",
    )
    best = run(experiment, directory)
    steps = [
        load_file(path / checkpoint.WEIGHTS)
        for path in checkpoint.checkpoints(directory / "run")[-3:]
    ]
    average = directory / "run" / "average-3"
    for name, tensor in load_file(average / checkpoint.WEIGHTS).items():
        torch.testing.assert_close(tensor, sum(step[name] for step in steps) / 3)
    best_metric_value = checkpoint.read_progress(average).scores["best_metric_value"]
    single = max(
        checkpoint.read_progress(path).scores["best_metric_value"]
        for path in checkpoint.checkpoints(directory / "run")
    )
    assert best_metric_value != single
    assert best == (average if best_metric_value > single else checkpoint.best(directory / "run"))
    assert Translator.load(average, "cpu").checkpoint == average
    assert checkpoint.average(directory / "run", 3) == average
    # Kept.
    assert checkpoint.read_progress(average).scores["best_metric_value"] == best_metric_value
    (average / checkpoint.WEIGHTS).write_bytes(b"")
    checkpoint.average(directory / "run", 3)
    assert load_file(average / checkpoint.WEIGHTS)  # repaired
    # Training never resumes from an average.
    assert checkpoint.load_latest_intact(directory / "run")[0].name == "step-000012"


def test_an_interruption_does_not_change_the_average(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment = config(
        directory, "train.valid_every=4", "train.keep_last=2", "train.average_last=2"
    )
    run(experiment, directory, "whole")
    stop_at(10, monkeypatch)
    with pytest.raises(StoppedError):
        run(experiment, directory, "parts")
    assert checkpoint.checkpoints(directory / "parts")[-1].name == "step-000010"
    monkeypatch.undo()
    run(experiment, directory, "parts", resume=True)
    one, two = (
        load_file(directory / name / "average-2" / checkpoint.WEIGHTS)
        for name in ("whole", "parts")
    )
    assert all(torch.equal(one[name], two[name]) for name in one)


def test_best_average_is_loaded(directory: Path) -> None:
    run(config(directory, "train.valid_every=4", "train.keep_last=3"), directory)
    path = checkpoint.average(directory / "run", 2)
    assert checkpoint.best(directory / "run") != path
    for best_metric_value, chosen in ((1e9, True), (-1e9, False)):
        checkpoint.write_scores(path, {"best_metric_value": best_metric_value})
        assert (discovery.load(directory / "run").checkpoint == path) == chosen
    with pytest.raises(CheckpointError, match="has 3 validated checkpoints, not 9"):
        checkpoint.average(directory / "run", 9)


@pytest.mark.slow
def test_init_from_loads_the_weights_of_another_run(directory: Path) -> None:
    best = run(config(directory, "train.ema=0.9"), directory, "first")
    tokenizer = f"tokenizer.model={directory / 'first' / 'spm.model'}"
    start = f"train.init_from={directory / 'first'}"
    slow = "train.schedule=constant(peak=1e-9)"
    for ema in ("0.0", "0.9"):
        tuned = run(
            config(directory, start, tokenizer, slow, f"train.ema={ema}"), directory, f"tuned {ema}"
        )
        one, two = (load_file(path / checkpoint.WEIGHTS) for path in (best, tuned))
        assert all((one[name] - two[name]).abs().max() < 1e-6 for name in one)
    with pytest.raises(CheckpointError, match="do not fit this model"):
        run(config(directory, start, tokenizer, "model.dim=32"), directory, "wide")
    copy_text(directory, 300, seed=3)
    with pytest.raises(CheckpointError, match="differs from the tokenizer of the prepared data"):
        run(config(directory, start), directory, "other")


def test_validations_log_sample_translations(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(config(directory, "train.num_samples=3"), directory)
    sample_lines = [line for line in capsys.readouterr().err.splitlines() if " → " in line]
    assert len(sample_lines) == 6
    source = (directory / "valid.en").read_text().splitlines()
    assert [line.removeprefix("nmt:   ").partition(" → ")[0] for line in sample_lines] == source[
        :3
    ] * 2
    assert (
        next(line["samples"] for line in metrics(directory / "run") if "samples" in line)[0][0]
        == source[0]
    )
    run(config(directory, "train.num_samples=3", "train.valid_pairs=2"), directory, "sampled")
    samples = [line["samples"] for line in metrics(directory / "sampled") if "samples" in line]
    assert [[source for source, _, _ in each] for each in samples] == [
        [source[0], source[10]]
    ] * 2  # of 20, spread


def test_loss_spike_is_detected() -> None:
    spikes = loop.LossSpikeDetector()
    normal = [spikes.update(UpdateStats(loss, 10, 1.0)) for loss in [9.0, 2.0] + [3.0] * 60]
    assert not any(normal)
    short_sentences = [5.0, 5.0, 3.0, 5.0, 5.0, 4.0]
    assert not any(spikes.update(UpdateStats(loss, 10, 1.0)) for loss in short_sentences)
    jumps = [spikes.update(UpdateStats(5.0, 10, 1.0)) for _ in range(6)]
    assert jumps == [False, False, True, False, False, False]
    assert spikes.mean == pytest.approx(3.0, abs=0.3)


def test_first_and_skipped_updates_are_not_loss_spikes() -> None:
    spikes = loop.LossSpikeDetector()
    assert not any(
        spikes.update(UpdateStats(loss, 10, 1.0)) for loss in [2.0] + [9.0] * 5 + [3.0] * 60
    )
    mean = spikes.mean
    assert not any(
        spikes.update(UpdateStats(math.inf, 10, math.inf, skipped=True)) for _ in range(5)
    )
    assert spikes.mean == mean


def test_a_period_of_skipped_updates_has_no_loss() -> None:
    period = loop.PeriodStats()
    period.add(UpdateStats(math.inf, 10, math.inf, skipped=True))
    assert period.means().keys() == {"tokens_per_second", "skipped"}
    period.add(UpdateStats(2.0, 10, 3.0))
    assert (period.means()["loss"], period.means()["grad_norm"]) == (2.0, 3.0)


def test_the_validation_cannot_change_in_a_resumed_run(directory: Path) -> None:
    run(config(directory), directory)
    for name, value in (("best_metric", "loss"), ("valid_search", "beam"), ("valid_pairs", 5)):
        with pytest.raises(UsageError, match=rf"train\.{name}"):
            run(
                config(directory, f"train.{name}={value}", "train.steps=20"), directory, resume=True
            )


def test_the_estimate_of_the_last_update_continues_in_a_resumed_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now, progress = 1000.0, checkpoint.Progress(step=4500, seconds=450.0)
    monkeypatch.setattr(time, "monotonic", lambda: now)
    budget = stopping.TimeBudget(50.0, progress)
    assert budget.last_step(10_000, 10**6) == 5000
    now, progress.step = 1030.0, 4501  # the first update of a session takes long
    assert budget.last_step(10_000, 10**6) == 4501 + 200
    now, progress.step = 1034.0, 4521
    assert budget.last_step(10_000, 10**6) == 4521 + 80
    new = stopping.TimeBudget(50.0, checkpoint.Progress())
    assert new.last_step(10_000, 10**6) == 10_000


def test_time_limit_includes_data_preparation(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare, train_loop, limits = training.prepare, loop.run, []
    monkeypatch.setattr(
        training, "prepare", lambda experiment: time.sleep(0.2) or prepare(experiment)
    )
    monkeypatch.setattr(loop, "run", lambda *rest: limits.append(rest[3]) or train_loop(*rest))
    run(config(directory, "train.steps=1"), directory, limit=100)
    assert limits[0] < 99.8


def test_damaged_checkpoints_are_logged_and_skipped(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    experiment = config(directory)
    run(experiment, directory)
    first, last = checkpoint.checkpoints(directory / "run")
    weights = (last / checkpoint.WEIGHTS).read_bytes()
    (last / checkpoint.WEIGHTS).write_bytes(weights[:-7])
    run(experiment, directory, resume=True)
    log = capsys.readouterr().err
    assert f"skipping {last.name}" in log
    assert f"at update {checkpoint.read_progress(first).step}" in log
    assert checkpoint.read_tensors(last, checkpoint.WEIGHTS)  # trained and saved again
    flipped = bytearray((first / checkpoint.TRAINING).read_bytes())
    flipped[len(flipped) // 2] ^= 1
    (first / checkpoint.TRAINING).write_bytes(flipped)
    with pytest.raises(CheckpointError, match="checksum differs"):
        checkpoint.read_tensors(first, checkpoint.TRAINING)
    (last / checkpoint.TRAINING).unlink()
    with pytest.raises(CheckpointError, match="all checkpoints of"):
        run(experiment, directory, resume=True)


def test_damaged_checkpoint_is_never_the_best(directory: Path) -> None:
    run(config(directory), directory)
    _, last = checkpoint.checkpoints(directory / "run")
    meta = json.loads((last / checkpoint.META).read_text())
    meta["progress"]["best"] = meta["progress"]["scores"]["best_metric_value"] = 1e9
    (last / checkpoint.META).write_text(json.dumps(meta))
    (last / checkpoint.WEIGHTS).write_bytes(b"")
    best = run(config(directory, "train.valid_every=4"), directory, resume=True)
    assert checkpoint.read_tensors(best, checkpoint.WEIGHTS)
    assert (directory / "run" / f"{last.name}.damaged").is_dir()
    (last / checkpoint.WEIGHTS).write_bytes(b"")  # damaged again
    run(config(directory), directory, resume=True)
    assert checkpoint.read_tensors(last, checkpoint.WEIGHTS)


@pytest.mark.parametrize(
    "content", ["", '{"recipe": []}', '{"recipe": {"train": [1]}}', '{"recipe": {}, "teacher": 1}']
)
def test_a_damaged_record_of_the_data_is_ignored(content: str, tmp_path: Path) -> None:
    (tmp_path / "data.json").write_text(content)
    check_data_unchanged(tmp_path, {"recipe": {"train": [("a", "1")], "valid": ("b", "2")}})


def test_resume_with_changed_data_or_tokenizer_raises(directory: Path) -> None:
    run(config(directory), directory)
    copy_text(directory, 300, seed=1)
    (directory / "train.en").write_text(
        (directory / "train.en").read_text().replace("ba", "xylophone"), encoding="utf-8"
    )
    with pytest.raises(TrainingError, match="the data or the tokenizer of"):
        run(config(directory, "train.steps=20"), directory, resume=True)
    # Without it, the tokenizer is compared.
    (directory / "run" / "data.json").rename(directory / "data.json")
    with pytest.raises(TrainingError, match="differs from the tokenizer of the prepared data"):
        run(config(directory, "train.steps=20"), directory, resume=True)
    (directory / "data.json").rename(directory / "run" / "data.json")
    assert discovery.load(directory / "run").config.train.steps == 12  # the run is unchanged


def test_very_long_validation_pair_is_a_batch_of_its_own(directory: Path) -> None:
    copy_text(directory, 300)
    for code in ("en", "de"):
        (directory / f"valid.{code}").write_text(
            "ba be bi\n" * 100 + "ba be " * 300 + "\n", encoding="utf-8"
        )
    sizes = []

    def recording_collate(pairs: list[Any], numbers: Any = (), **options: Any) -> Batch:
        sizes.append((len(pairs), max(len(tgt) for _, tgt in pairs)))
        return collate(pairs, numbers, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trainer_module, "collate", recording_collate)
        run(config(directory, "train.steps=1"), directory)
    assert sum(sentences for sentences, _ in sizes) == 101
    assert all(sentences == 1 or sentences * longest < 256 for sentences, longest in sizes)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_gpu_run_resumes(directory: Path) -> None:
    train(config(directory), directory / "run", resume=False, device="cuda", precision="auto")
    train(
        config(directory, "train.steps=18"),
        directory / "run",
        resume=True,
        device="cuda",
        precision="auto",
    )
    assert checkpoint.checkpoints(directory / "run")[-1].name == "step-000018"


def test_progress_line_shows_the_bleu_of_the_last_validation(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[str] = []
    monkeypatch.setattr(tqdm, "set_postfix_str", lambda bar, text, refresh: shown.append(text))
    run(config(directory, "train.steps=4", "train.valid_every=2"), directory)
    assert [", BLEU " in text for text in shown] == [False, False, True, True]
